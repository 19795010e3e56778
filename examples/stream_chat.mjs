// Streams one chat answer with OpenAI's JavaScript client (npm install openai@6):
//
//   node examples/stream_chat.mjs "Why is the sky blue?"
import OpenAI from "openai";

const client = new OpenAI({
  baseURL: `${process.env.HEADRACE_URL ?? "http://127.0.0.1:3000"}/v1`,
  apiKey: process.env.API_KEY ?? "-",
});
const stream = await client.chat.completions.create({
  model: "tgi",
  messages: [{ role: "user", content: process.argv.slice(2).join(" ") || "What is the capital of France?" }],
  max_tokens: 200,
  temperature: 0,
  stream: true,
});
for await (const chunk of stream) process.stdout.write(chunk.choices[0]?.delta.content ?? "");
process.stdout.write("\n");
