// Runs the checks of one client package and writes a JSON line for each, as ../checks.py does.
//
//   node NAME_checks.mjs URL
//
// Each check is an async function of the server's URL that throws where the client does not get what it should.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";

export const QUESTION = [{ role: "user", content: "What is the capital of France?" }];
export const ANSWER = "The capital of France is Paris.";
export const MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct";

function report(line) {
  process.stdout.write(`${JSON.stringify(line)}\n`);
}

function version(name) {
  const file = new URL(`node_modules/${name}/package.json`, import.meta.url);
  return JSON.parse(readFileSync(file, "utf8")).version;
}

// The error of a call that must be refused.
export async function refusal(call) {
  try {
    await call();
  } catch (error) {
    return error;
  }
  return assert.fail("not refused");
}

export async function run(name, checks) {
  const url = process.argv[2];
  report({ versions: { [name]: version(name), node: process.versions.node } });
  for (const [title, check] of Object.entries(checks)) {
    let error = null;
    try {
      await check(url);
    } catch (problem) {
      console.error(title, problem);
      error = `${problem?.name}: ${problem?.message}`.slice(0, 600);
    }
    report({ check: title, error });
  }
}
