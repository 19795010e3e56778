"""lm-eval's `local-completions` against the server and its `hf` model against transformers, on the same small tasks.

The first asks for prompts by ids, echoed with logprobs, and encodes through the server's own routes; the second has
the demo model's weights, dequantised by transformers, and a tokenizer built from the file by other code.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from checks import MODEL, run

HERE = Path(__file__).resolve().parent
TASKS = HERE / "lm_eval_tasks"
NAMES = ["headrace_choice", "headrace_last_word", "headrace_text", "headrace_generate"]
# Float32 on both sides; kernels sum in another order.
NEAR = 1e-3

Samples = dict[str, list[dict]]


@cache
def served(url: str, batch: int = 1) -> tuple[dict, Samples]:
    """Results and samples of the command, as its user would run it."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = f"base_url={url}/v1/completions,model={MODEL},num_concurrent=4,max_retries=3,timeout=600"
        command = [
            sys.executable, "-m", "lm_eval", "run", "--model", "local-completions",
            "--model_args", arguments, "--batch_size", str(batch),
            "--tasks", ",".join(NAMES), "--include_path", str(TASKS),
            "--output_path", folder, "--log_samples",
        ]  # fmt: skip
        env = os.environ | {"HF_HOME": folder, "HF_DATASETS_CACHE": folder}
        done = subprocess.run(
            command, cwd=TASKS, env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr[-2000:]
        (results,) = Path(folder).rglob("results_*.json")
        samples = {}
        for name in NAMES:
            (file,) = Path(folder).rglob(f"samples_{name}_*.jsonl")
            samples[name] = [
                json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()
            ]
        return json.loads(results.read_text(encoding="utf-8"))["results"], ordered(samples)


@cache
def through_transformers() -> tuple[dict, Samples]:
    """The same tasks through lm-eval's own model of transformers."""
    import lm_eval
    import torch
    from demo_tokenizer import demo_tokenizer
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager
    from transformers import AutoModelForCausalLM

    # The server has the other core; two threads of torch would wait for each other.
    torch.set_num_threads(1)
    tokenizer = demo_tokenizer()
    from make_greedy import demo_gguf

    path = demo_gguf()
    model = AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32
    )
    os.chdir(TASKS)
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"HF_HOME": folder, "HF_DATASETS_CACHE": folder}
        found = lm_eval.simple_evaluate(
            model=HFLM(pretrained=model.eval(), tokenizer=tokenizer, batch_size=1),
            tasks=NAMES,
            task_manager=TaskManager(include_path=str(TASKS)),
            log_samples=True,
        )
    return found["results"], ordered(found["samples"])


def ordered(samples: Samples) -> Samples:
    return {name: sorted(rows, key=lambda row: row["doc_id"]) for name, rows in samples.items()}


def numbers(row: dict) -> list[tuple[float, bool]]:
    """Each request's loglikelihood, and whether its continuation is the likeliest."""
    return [(float(response[0]), str(response[1]) == "True") for response in row["filtered_resps"]]


def same(url: str, name: str, *metrics: str) -> None:
    (results, samples), (expected, oracle) = served(url), through_transformers()
    for metric in metrics:
        assert results[name][f"{metric},none"] == expected[name][f"{metric},none"], metric
    for row, other in zip(samples[name], oracle[name], strict=True):
        for got, right in zip(numbers(row), numbers(other), strict=True):
            assert abs(got[0] - right[0]) < NEAR, (name, row["doc_id"], got, right)
            assert got[1] == right[1], (name, row["doc_id"], got, right)


def check_choices_by_loglikelihood(url: str) -> None:
    same(url, "headrace_choice", "acc", "acc_norm")


def check_last_words(url: str) -> None:
    same(url, "headrace_last_word", "acc")


def check_perplexity_of_texts(url: str) -> None:
    (results, samples), (expected, oracle) = served(url), through_transformers()
    name = "headrace_text"
    for metric in ("word_perplexity", "byte_perplexity", "bits_per_byte"):
        got, right = (side[name][f"{metric},none"] for side in (results, expected))
        assert abs(got - right) < NEAR * right, (metric, got, right)
    for row, other in zip(samples[name], oracle[name], strict=True):
        got, right = (float(side["filtered_resps"][0]) for side in (row, other))
        assert abs(got - right) < NEAR * 10, (row["doc_id"], got, right)


def check_generation(url: str) -> None:
    (results, samples), (expected, oracle) = served(url), through_transformers()
    name = "headrace_generate"
    assert results[name]["exact_match,none"] == expected[name]["exact_match,none"]
    got, right = ([row["filtered_resps"] for row in side[name]] for side in (samples, oracle))
    assert got == right


def check_batches_of_prompts(url: str) -> None:
    alone, together = served(url)[1], served(url, 4)[1]
    for name in NAMES[:2]:
        for row, other in zip(alone[name], together[name], strict=True):
            for got, right in zip(numbers(row), numbers(other), strict=True):
                assert abs(got[0] - right[0]) < NEAR


if __name__ == "__main__":
    run(globals(), "lm_eval")
