// @huggingface/inference: chat and text generation of an endpoint.
import assert from "node:assert/strict";
import { InferenceClient, InferenceClientProviderApiError } from "@huggingface/inference";
import { ANSWER, QUESTION, refusal, run } from "./checks.mjs";

const client = (url) => new InferenceClient("hf_any", { endpointUrl: url });
const chat = (more = {}) => ({ messages: QUESTION, max_tokens: 30, temperature: 0, ...more });
const SCHEMA = {
  type: "object",
  properties: { city: { type: "string", maxLength: 20 } },
  required: ["city"],
};

await run("@huggingface/inference", {
  "chat": async (url) => {
    for (const base of [url, `${url}/v1`]) {
      const whole = await client(base).chatCompletion(chat());
      assert.equal(whole.choices[0].message.content, ANSWER);
      assert.equal(whole.choices[0].finish_reason, "stop");
      assert.ok(whole.usage.completion_tokens > 0);
    }
  },
  "chat stream": async (url) => {
    let said = "";
    let end = null;
    for await (const chunk of client(url).chatCompletionStream(chat())) {
      said += chunk.choices[0]?.delta.content ?? "";
      end = chunk.choices[0]?.finish_reason ?? end;
    }
    assert.equal(said, ANSWER);
    assert.equal(end, "stop");
  },
  "chat logprobs, seed and stop": async (url) => {
    const whole = await client(url).chatCompletion(chat({ logprobs: true, top_logprobs: 2, seed: 1, stop: [" Paris"] }));
    assert.equal(whole.choices[0].message.content, "The capital of France is");
    assert.equal(whole.choices[0].logprobs.content[0].top_logprobs.length, 2);
  },
  "chat grammar": async (url) => {
    const whole = await client(url).chatCompletion(
      chat({ response_format: { type: "json", value: SCHEMA }, max_tokens: 60 }),
    );
    assert.deepEqual(Object.keys(JSON.parse(whole.choices[0].message.content)), ["city"]);
  },
  "text generation": async (url) => {
    const whole = await client(url).textGeneration({
      inputs: "The capital of France is",
      parameters: { max_new_tokens: 12, temperature: 0, do_sample: false, return_full_text: false },
    });
    assert.ok(whole.generated_text.includes("Paris"));
  },
  "text generation stream": async (url) => {
    const ask = { inputs: "The capital of France is", parameters: { max_new_tokens: 12, temperature: 0 } };
    const whole = await client(url).textGeneration(ask);
    let said = "";
    for await (const chunk of client(url).textGenerationStream(ask)) said += chunk.choices[0]?.text ?? "";
    assert.equal(said, whole.generated_text);
  },
  "errors": async (url) => {
    const wrong = await refusal(() => client(url).chatCompletion(chat({ temperature: -1 })));
    assert.ok(wrong instanceof InferenceClientProviderApiError);
    // Outside streams the client drops the words of an error that is an object, but keeps the body.
    assert.equal(wrong.httpResponse.status, 400);
    assert.equal(wrong.httpResponse.body.error.param, "temperature");
    assert.ok(wrong.httpResponse.requestId);
    const stream = await refusal(async () => {
      for await (const chunk of client(url).chatCompletionStream(chat({ top_p: 2 }))) assert.fail(chunk.id);
    });
    assert.ok(stream.message.includes("top_p"));
    const long = await refusal(() => client(url).textGeneration({ inputs: "word ".repeat(20_000) }));
    assert.equal(long.httpResponse.status, 400);
    assert.equal(long.httpResponse.body.error.code, "context_length_exceeded");
  },
  "leaving a stream": async (url) => {
    const leave = new AbortController();
    const stream = client(url).chatCompletionStream(chat({ max_tokens: 2000 }), { signal: leave.signal });
    for await (const chunk of stream) {
      assert.ok(chunk.id);
      leave.abort();
      break;
    }
    const whole = await client(url).chatCompletion(chat());
    assert.equal(whole.choices[0].message.content, ANSWER);
  },
});
