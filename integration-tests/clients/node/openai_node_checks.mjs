// OpenAI's JavaScript client: chat, streams, completions, models, typed errors, leaving.
import assert from "node:assert/strict";
import OpenAI from "openai";
import { ANSWER, MODEL, QUESTION, refusal, run } from "./checks.mjs";

const client = (url, more = {}) =>
  new OpenAI({ baseURL: `${url}/v1`, apiKey: "-", maxRetries: 0, timeout: 300_000, ...more });
const chat = (more = {}) => ({ model: "any", messages: QUESTION, max_tokens: 30, temperature: 0, ...more });
const text = (more = {}) => ({ model: "any", prompt: "1, 2, 3, 4,", max_tokens: 12, temperature: 0, ...more });

await run("openai", {
  "chat": async (url) => {
    const whole = await client(url).chat.completions.create(chat());
    assert.equal(whole.choices[0].message.content, ANSWER);
    assert.equal(whole.choices[0].finish_reason, "stop");
    assert.equal(whole.usage.total_tokens, whole.usage.prompt_tokens + whole.usage.completion_tokens);
  },
  "chat stream with usage": async (url) => {
    const stream = await client(url).chat.completions.create(
      chat({ stream: true, stream_options: { include_usage: true } }),
    );
    const chunks = [];
    for await (const chunk of stream) chunks.push(chunk);
    assert.equal(chunks.map((c) => c.choices[0]?.delta.content ?? "").join(""), ANSWER);
    assert.deepEqual(chunks.at(-1).choices, []);
    assert.ok(chunks.at(-1).usage.completion_tokens > 0);
  },
  "stream helper": async (url) => {
    const stream = client(url).chat.completions.stream(chat());
    let said = "";
    stream.on("content", (delta) => { said += delta; });
    const final = await stream.finalChatCompletion();
    assert.equal(said, ANSWER);
    assert.equal(final.choices[0].message.content, ANSWER);
  },
  "logprobs, stop, n and seed": async (url) => {
    const whole = await client(url).chat.completions.create(chat({ logprobs: true, top_logprobs: 2, stop: [" Paris"] }));
    assert.equal(whole.choices[0].message.content, "The capital of France is");
    for (const entry of whole.choices[0].logprobs.content) assert.equal(entry.top_logprobs.length, 2);
    const draw = async () =>
      (await client(url).chat.completions.create(chat({ n: 2, seed: 4, temperature: 1.2, max_tokens: 8 })))
        .choices.map((choice) => choice.message.content);
    assert.deepEqual(await draw(), await draw());
  },
  "text completions": async (url) => {
    const whole = await client(url).completions.create(text({ logprobs: 1 }));
    assert.ok(whole.choices[0].text.startsWith(" 5, 6, 7"));
    assert.equal(whole.choices[0].logprobs.tokens.join(""), whole.choices[0].text);
    let said = "";
    for await (const chunk of await client(url).completions.create(text({ stream: true }))) {
      said += chunk.choices[0]?.text ?? "";
    }
    assert.equal(said, whole.choices[0].text);
  },
  "models": async (url) => {
    const ids = [];
    for await (const model of client(url).models.list()) ids.push(model.id);
    assert.deepEqual(ids, [MODEL]);
    assert.equal((await client(url).models.retrieve(MODEL)).id, MODEL);
  },
  "typed errors": async (url) => {
    const wrong = await refusal(() => client(url).chat.completions.create(chat({ temperature: -1 })));
    assert.ok(wrong instanceof OpenAI.BadRequestError);
    assert.equal(wrong.param, "temperature");
    assert.ok(wrong.requestID);
    const long = await refusal(() => client(url).completions.create(text({ prompt: "word ".repeat(20_000) })));
    assert.equal(long.code, "context_length_exceeded");
    const stream = await refusal(() => client(url).chat.completions.create(chat({ top_p: 2, stream: true })));
    assert.ok(stream instanceof OpenAI.BadRequestError);
    const missing = await refusal(() => client(url).models.retrieve("unknown"));
    assert.ok(missing instanceof OpenAI.NotFoundError);
  },
  "raw response": async (url) => {
    const { data, response, request_id: id } = await client(url).chat.completions.create(chat()).withResponse();
    assert.equal(data.choices[0].message.content, ANSWER);
    assert.equal(response.headers.get("x-request-id"), id);
  },
  "leaving a stream, and time-out": async (url) => {
    const stream = await client(url).chat.completions.create(chat({ stream: true, max_tokens: 2000, ignore_eos: true }));
    for await (const chunk of stream) {
      assert.ok(chunk.id);
      break;
    }
    const late = await refusal(() =>
      client(url, { timeout: 500 }).chat.completions.create(chat({ max_tokens: 2000, ignore_eos: true })));
    assert.ok(late instanceof OpenAI.APIConnectionTimeoutError);
    const whole = await client(url).chat.completions.create(chat());
    assert.equal(whole.choices[0].message.content, ANSWER);
  },
});
