"""Greedy ids of the demo model equal transformers', whatever the batch, chunking, cache, pressure and crashes."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import FULL, Server, StartServer, output_ids, same_ids

# By place in greedy.json: prompts of 1, 17, 129, 513 and 1,500 tokens, and a chat.
SIX = [0, 6, 13, 18, 21, 23]


@pytest.fixture(scope="module")
def entries(golden: list[dict]) -> list[dict]:
    return golden if FULL else [golden[place] for place in SIX]


def all_at_once(server: Server, entries: list[dict]) -> None:
    answers = server.generate_all([entry["prompt"] for entry in entries])
    for answer, entry in zip(answers, entries, strict=True):
        same_ids(answer, entry)


def test_no_near_ties_in_the_golden_file(golden: list[dict]) -> None:
    # Said in bench/RESULTS.md: none of the 30 answers has a step with a gap below 1e-3.
    assert [entry["prompt"] for entry in golden if min(entry["gaps"]) < 1e-3] == []


def test_alone_cold_then_warm(server: Server, entries: list[dict]) -> None:
    for entry in entries:
        same_ids(server.generate(entry["prompt"]), entry)
    before = server.metric("vllm:prefix_cache_hits_total")
    for entry in entries:
        same_ids(server.generate(entry["prompt"]), entry)
    assert server.metric("vllm:prefix_cache_hits_total") > before


def test_prompt_ids_equal_the_pipeline_that_the_file_names(
    server: Server, entries: list[dict]
) -> None:
    for entry in entries[:4]:
        answer = server.generate(entry["prompt"], max_new_tokens=1, decoder_input_details=True)
        assert [token["id"] for token in answer["details"]["prefill"]] == entry["prompt_ids"]


def test_sixteen_at_once(server: Server, golden: list[dict]) -> None:
    all_at_once(server, golden[6:22] if not FULL else golden)


@pytest.mark.parametrize("chunk", [16, 64, 512])
def test_chunks(start_server: StartServer, entries: list[dict], chunk: int) -> None:
    all_at_once(start_server("--max-batch-prefill-tokens", str(chunk)), entries)


def test_pool_so_small_that_preemption_happens(
    start_server: StartServer, golden: list[dict]
) -> None:
    # 34 blocks of 16 tokens of 46,080 bytes. Three of these four need 29 to come in and 41 at their ends.
    entries = [golden[place] for place in (12, 13, 14, 15)]
    server = start_server("--kv-cache-memory", str(34 * 16 * 46_080), "--disable-prefix-caching")
    all_at_once(server, entries)
    assert server.metric("vllm:num_preemptions_total") > 0


def test_worker_killed_half_way(start_server: StartServer, entries: list[dict]) -> None:
    server = start_server()
    (victim,) = server.workers()
    with ThreadPoolExecutor(max_workers=len(entries)) as pool:
        answers = [pool.submit(server.generate, entry["prompt"]) for entry in entries]
        deadline = time.monotonic() + 60
        while server.metric("vllm:generation_tokens_total") < 20:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        os.kill(victim, signal.SIGKILL)
        for answer, entry in zip(answers, entries, strict=True):
            same_ids(answer.result(), entry)
    assert server.workers() != [victim]
    assert server.client.get(f"{server.url}/health").status_code == 200


def test_two_ranks_give_the_same_text_up_to_near_ties(
    start_server: StartServer, entries: list[dict]
) -> None:
    server = start_server("--num-shard", "2")
    assert len(server.workers()) == 2
    # A sum over two ranks rounds otherwise: equal up to the first step that two logits within 2e-3 decide.
    for entry in entries:
        got = output_ids(server.generate(entry["prompt"]))
        near = next((i for i, gap in enumerate(entry["gaps"]) if gap < 2e-3), len(entry["gaps"]))
        assert got[:near] == entry["output_ids"][:near]


def test_seeded_text_is_the_same_alone_and_among_sixteen(
    server: Server, golden: list[dict]
) -> None:
    prompts = [entry["prompt"] for entry in golden[:16]]
    sampling = {
        "do_sample": True,
        "temperature": 0.9,
        "top_p": 0.95,
        "max_new_tokens": 32,
        "seed": 42,
    }
    together = server.generate_all(prompts, **sampling)
    for prompt, answer in list(zip(prompts, together, strict=True))[::5]:
        assert output_ids(server.generate(prompt, **sampling)) == output_ids(answer)
