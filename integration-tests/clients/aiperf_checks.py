"""aiperf, a load generator, run as its user would: chat, text completions and TGI's routes, a few requests each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from checks import MODEL, run
from demo_tokenizer import folder as tokenizer

REQUESTS = 12
OUTPUT = 16


def load(url: str, kind: str, *more: str) -> dict:
    """The report of one run."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable, "-m", "aiperf", "profile", "--model", MODEL, "--url", url, "--endpoint-type", kind,
            "--tokenizer", tokenizer().name, "--concurrency", "3", "--request-count", str(REQUESTS),
            "--synthetic-input-tokens-mean", "40", "--output-tokens-mean", str(OUTPUT),
            "--random-seed", "1", "--output-artifact-dir", folder, "--ui", "none", "--no-gpu-telemetry",
            "--workers-max", "1", "--record-processor-service-count", "1", *more,
        ]  # fmt: skip
        env = os.environ | {"HF_HOME": folder, "HOME": folder, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            command, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=500
        )
        reports = list(Path(folder).rglob("profile_export_aiperf.json"))
        assert reports, (done.stdout + done.stderr)[-1500:]
        report = json.loads(reports[0].read_text(encoding="utf-8"))
    assert report["request_count"]["avg"] == REQUESTS, report
    assert "error_request_count" not in report or report["error_request_count"]["avg"] == 0, report
    return report


def check_chat_streams(url: str) -> None:
    report = load(
        url, "chat", "--streaming", "--extra-inputs", "ignore_eos:true", "--use-server-token-count"
    )
    assert report["output_sequence_length"]["avg"] == OUTPUT
    assert report["time_to_first_token"]["avg"] > 0
    assert report["inter_token_latency"]["avg"] > 0


def check_chat(url: str) -> None:
    report = load(url, "chat", "--extra-inputs", "min_tokens:4", "--use-legacy-max-tokens")
    assert 4 <= report["output_sequence_length"]["avg"] <= OUTPUT + 1


def check_completions_streams(url: str) -> None:
    report = load(
        url,
        "completions",
        "--streaming",
        "--extra-inputs",
        "ignore_eos:true",
        "--use-server-token-count",
    )
    assert report["output_sequence_length"]["avg"] == OUTPUT


def check_tgi_generate(url: str) -> None:
    assert load(url, "huggingface-generate")["request_latency"]["avg"] > 0


def check_tgi_generate_stream(url: str) -> None:
    assert load(url, "huggingface-generate", "--streaming")["time_to_first_token"]["avg"] > 0


if __name__ == "__main__":
    run(globals(), "aiperf")
