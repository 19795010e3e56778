// Writes llama_cpp_ids.json: llama.cpp's ids of every text of strings.json, for the demo model's vocabulary.
//
// Run in a folder with `npm install node-llama-cpp@3.22.1` (prebuilt llama.cpp, no compiler needed):
//   node llama_cpp_ids.mjs GGUF TINY_GGUF      (the second: from transformers_golden.py)
//
// `parse` has special tokens parsed, `plain` has not. `by_pre` repeats `parse` with other values of
// `tokenizer.ggml.pre` over the same vocabulary; only ids that differ from `parse` are written. `tiny` are the ids of
// the small SentencePiece-like vocabulary.

import fs from "node:fs";
import path from "node:path";
import {createRequire} from "node:module";
import {fileURLToPath, pathToFileURL} from "node:url";

const here = path.dirname(fileURLToPath(import.meta.url));
const require = createRequire(path.join(process.cwd(), "x.js"));
const {getLlama} = await import(pathToFileURL(require.resolve("node-llama-cpp")).href);

const PRES = [
    "default", "gpt-2", "starcoder", "llama-bpe", "smaug-bpe", "qwen2", "qwen35", "tekken", "gpt-4o",
    "deepseek-v3", "falcon", "seed-coder", "bailingmoe", "minicpm5", "laguna", "glm4"
];

const texts = JSON.parse(fs.readFileSync(path.join(here, "strings.json"), "utf8"));
const llama = await getLlama({gpu: false, build: "never", logLevel: "error"});

async function idsOf(pre, special, modelPath = process.argv[2]) {
    const metadataOverrides = pre == null ? undefined : {tokenizer: {ggml: {pre}}};
    const model = await llama.loadModel({modelPath, vocabOnly: true, metadataOverrides});
    const ids = texts.map((text) => Array.from(model.tokenize(text, special)));
    await model.dispose();
    return ids;
}

const parse = await idsOf(null, true);
const plain = await idsOf(null, false);
const byPre = {};
for (const pre of PRES) {
    const ids = await idsOf(pre, true);
    byPre[pre] = Object.fromEntries(
        ids.map((row, index) => [index, row]).filter(([index, row]) => String(row) !== String(parse[index]))
    );
}
const tiny = await idsOf(null, true, process.argv[3]);
const rows = (list) => "[\n" + list.map((row) => JSON.stringify(row)).join(",\n") + "\n]";
const pres = Object.entries(byPre).map(([pre, ids]) => `${JSON.stringify(pre)}: ${JSON.stringify(ids)}`);
fs.writeFileSync(
    path.join(here, "llama_cpp_ids.json"),
    `{"parse": ${rows(parse)},\n"plain": ${rows(plain)},\n"tiny": ${rows(tiny)},\n"by_pre": {\n${pres.join(",\n")}\n}}\n`
);
await llama.dispose();
