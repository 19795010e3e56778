"""The rows of `gpu_check.py` that need no server: ops, grammar masks and prompt logprobs on the device."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from headrace.engine.prompt_logprobs import CHUNK, PromptTargets, prompt_logprobs
from headrace.ops import AttentionMetadata, OpSet, select_op_set
from headrace.sampling import Sampler, SamplingParameters, TokenMask
from headrace.sampling.philox import PURPOSE_SAMPLE, uniforms

TOLERANCES = {torch.float32: 1e-3, torch.bfloat16: 3e-2, torch.float16: 5e-3}


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str
    error: str
    allowed: str
    ok: bool


def compare(name: str, got: torch.Tensor, want: torch.Tensor, tolerance: float) -> Row:
    """The largest difference relative to the largest value."""
    difference = (got.double().cpu() - want.double()).abs().max().item()
    relative = difference / max(want.abs().max().item(), 1e-12)
    return Row(name, f"{relative:.1e}", f"{tolerance:.0e}", relative <= tolerance)


def count_wrong(name: str, verdicts: Iterable[bool]) -> Row:
    """How many of the verdicts are no."""
    listed = list(verdicts)
    wrong = listed.count(False)
    return Row(name, f"{wrong} of {len(listed)} wrong", "0", wrong == 0 and bool(listed))


def milliseconds(run: Callable[[], object], device: torch.device) -> float:
    """Median of 20 runs, after 5 that do not count; the device is waited for."""
    times = []
    for index in range(25):
        start = time.perf_counter()
        run()
        if device.type == "cuda":
            torch.cuda.synchronize()
        if index >= 5:
            times.append((time.perf_counter() - start) * 1e3)
    return sorted(times)[len(times) // 2]


def check_device(device: torch.device) -> list[Row]:
    """Every row of this file."""
    rows: list[Row] = []
    for dtype in TOLERANCES:
        rows += check_ops(device, dtype)
    for vocab_size in (1003, 49_152):
        rows += check_masks(device, vocab_size)
    return [*rows, *check_prompt_logprobs(device)]


def rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """The formula, in the precision given."""
    return x / (x.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * weight


def rotated(heads: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    """Each pair (n, n + D / 2) of [T, H, D] turned by [T, D / 2]: a product of complex numbers."""
    turned = (
        torch.complex(*heads.chunk(2, -1)) * torch.polar(torch.ones_like(angles), angles)[:, None]
    )
    return torch.cat([turned.real, turned.imag], -1)


def check_ops(device: torch.device, dtype: torch.dtype) -> list[Row]:
    """Every op of the set on the device against its formula in float64 on the CPU."""
    # What a GPU gets, wherever this runs: the CPU's own set has its tests.
    ours = select_op_set(device, dtype, "auto" if device.type == "cuda" else "torch")
    tolerance = TOLERANCES[dtype]
    label = f"{ours.name} {str(dtype).removeprefix('torch.')}"
    generator = torch.Generator().manual_seed(1)

    def random(*shape: int) -> tuple[torch.Tensor, torch.Tensor]:
        values = torch.randn(*shape, generator=generator).to(dtype)
        return values.to(device), values.double()

    x, x64 = random(64, 576)
    w, w64 = random(1536, 576)
    packed = ours.pack_linear(w)
    time_ms = milliseconds(lambda: ours.linear(x, packed, None), device)
    weight, weight64 = random(576)
    residual, residual64 = random(64, 576)
    gate, gate64 = random(64, 3072)
    first, second = gate64.chunk(2, -1)
    added, total = ours.add_rms_norm(x, residual, weight, 1e-5)
    logits, logits64 = random(8, 1003)
    index, logsumexp = ours.argmax_logsumexp(logits)
    pairs = [
        (f"linear 64x576x1536 ({time_ms:.3f} ms)", ours.linear(x, packed, None), x64 @ w64.T),
        ("rms_norm", ours.rms_norm(x, weight, 1e-5), rms_norm(x64, weight64)),
        ("add_rms_norm, norm", added, rms_norm(x64 + residual64, weight64)),
        ("add_rms_norm, sum", total, x64 + residual64),
        ("silu_mul", ours.silu_mul(gate), first * torch.sigmoid(first) * second),
        ("logsumexp", logsumexp, logits64.exp().sum(-1).log()),
        ("paged attention, mixed rows", *attention(ours, device, random)),
    ]
    q, q64 = random(64, 9, 64)
    k, k64 = random(64, 3, 64)
    angles = torch.rand(300, 32, generator=generator)
    positions = torch.randint(300, (64,), generator=generator)
    ours.rotary(q, k, angles.cos().to(device), angles.sin().to(device), positions.to(device))
    own = angles[positions].double()
    pairs += [("rotary, queries", q, rotated(q64, own)), ("rotary, keys", k, rotated(k64, own))]
    rows = [compare(f"{label}: {name}", got, want, tolerance) for name, got, want in pairs]
    rows.append(
        # Half precision has equal logits: the lowest of the largest, as Python finds it.
        count_wrong(
            f"{label}: argmax, the lowest on ties",
            (
                place == line.index(max(line))
                for place, line in zip(index.tolist(), logits64.tolist(), strict=True)
            ),
        )
    )
    x[3, 5], x[7, 575] = float("nan"), float("inf")
    flags = ours.non_finite(x).tolist()
    rows.append(
        count_wrong(f"{label}: non_finite", (flag == (n in (3, 7)) for n, flag in enumerate(flags)))
    )
    return rows


def attention(
    ours: OpSet,
    device: torch.device,
    random: Callable[..., tuple[torch.Tensor, torch.Tensor]],
) -> tuple[torch.Tensor, torch.Tensor]:
    """Three rows, the last tokens of each over its history: paged on the device, and plain."""
    heads, kv_heads, head_dim, block_size, blocks = 9, 3, 64, 16, 32
    lengths = [1, 17, 200]
    tokens = [1, 17, 8]
    q, q64 = random(sum(tokens), heads, head_dim)
    history, history64 = random(sum(lengths), 2, kv_heads, head_dim)
    tables = torch.zeros(3, 13, dtype=torch.int32)
    # Not in order, and the first of them not the first.
    free = iter(range(blocks - 1, 0, -1))
    for row, length in enumerate(lengths):
        for column in range(-(-length // block_size)):
            tables[row, column] = next(free)
    kv = ours.attention.allocate(blocks, kv_heads, head_dim, block_size, poison=True)
    full = metadata(lengths, lengths, tables, block_size, device)
    ours.attention.write(kv, history[:, 0], history[:, 1], full)
    last = metadata(tokens, lengths, tables, block_size, device)
    got = ours.attention.attend(q, kv, last, head_dim**-0.5, None)

    plain = []
    for count, length in zip(tokens, lengths, strict=True):
        queries, q64 = q64[:count], q64[count:]
        past, history64 = history64[:length], history64[length:]
        for n, query in enumerate(queries):
            # Each key-value head serves three query heads.
            seen = past[: length - count + n + 1].repeat_interleave(heads // kv_heads, 2)
            scores = torch.einsum("hd,thd->ht", query, seen[:, 0]) * head_dim**-0.5
            plain.append(torch.einsum("ht,thd->hd", scores.softmax(-1), seen[:, 1]))
    return got, torch.stack(plain)


def metadata(
    tokens: list[int],
    lengths: list[int],
    tables: torch.Tensor,
    block_size: int,
    device: torch.device,
) -> AttentionMetadata:
    """The last `tokens[r]` tokens of rows that are `lengths[r]` long."""
    starts = torch.tensor([0, *tokens]).cumsum(0).to(torch.int32)
    positions = torch.cat([torch.arange(n - t, n) for t, n in zip(tokens, lengths, strict=True)])
    return AttentionMetadata(
        row_starts=starts.to(device),
        context_lengths=torch.tensor(lengths, dtype=torch.int32, device=device),
        block_tables=tables.to(device),
        positions=positions.to(device),
        block_size=block_size,
    )


def bitset(ids: Iterable[int], num_words: int) -> TokenMask:
    """The protocol's words: bit i % 32 of the little-endian word i // 32 allows id i."""
    words = [0] * num_words
    for i in ids:
        words[i // 32] |= 1 << (i % 32)
    return TokenMask.from_bitset(struct.pack(f"<{num_words}I", *words))


def some_masks(vocab_size: int) -> list[tuple[TokenMask | None, set[int]]]:
    """Masks of every kind, each with the ids that it allows; the third row has none."""
    draw = np.random.default_rng(2)
    everything = set(range(vocab_size))
    num_words = -(-vocab_size // 32)

    def ids(count: int) -> set[int]:
        return set(draw.choice(vocab_size, count, replace=False).tolist())

    half, few, listed, denied = ids(vocab_size // 2), ids(9), ids(40), ids(vocab_size // 3)
    short = {i for i in ids(vocab_size // 2) if i < 320}
    past_the_end = set(range(vocab_size, num_words * 32))
    return [
        (bitset(half, num_words), half),
        (bitset(few | past_the_end, num_words), few),
        (None, everything),
        # Words that were left off allow nothing.
        (bitset(short, 10), short),
        (TokenMask.from_ids("allow", np.array(sorted(listed), np.int64)), listed),
        (TokenMask.from_ids("deny", np.array(sorted(denied), np.int64)), everything - denied),
        (TokenMask.from_ids("deny", np.empty(0, np.int64)), everything),
    ]


def sample(
    device: torch.device,
    logits: torch.Tensor,
    parameters: SamplingParameters,
    masks: dict[int, TokenMask],
) -> list[int]:
    """One id a row by the worker's sampler, each sequence at output 3 and with its place added to the seed."""
    count, vocab_size = logits.shape
    sampler = Sampler(count, vocab_size, device, select_op_set(device, torch.float32, "torch"))
    for slot in range(count):
        own = SamplingParameters(
            do_sample=parameters.do_sample,
            temperature=parameters.temperature,
            seed=parameters.seed + slot,
        )
        sampler.admit(slot, own, np.array([1, 2], np.int64), 2)
    slots = np.arange(count, dtype=np.int64)
    result = sampler.sample(logits.to(device), slots, np.full(count, 3, np.int64), masks)
    # Refused rows get an id that nothing equals.
    return [-1 if n in result.errors else token for n, token in enumerate(result.ids.tolist())]


def check_masks(device: torch.device, vocab_size: int) -> list[Row]:
    """Masked rows against the same choice in float64 on the CPU."""
    label = f"masks, vocabulary {vocab_size}"
    generator = torch.Generator().manual_seed(3)
    alone = [0, 1, 7, 8, 31, 32, 33, 63, 64, 255, vocab_size // 32 * 32 - 1, vocab_size - 1]
    logits = torch.randn(len(alone), vocab_size, generator=generator)
    num_words = -(-vocab_size // 32)
    greedy = SamplingParameters()
    chosen = sample(
        device, logits, greedy, {n: bitset([i], num_words) for n, i in enumerate(alone)}
    )
    rows = [
        count_wrong(
            f"{label}: bit order, one id allowed a row",
            (got == want for got, want in zip(chosen, alone, strict=True)),
        )
    ]

    several = some_masks(vocab_size)
    logits = torch.randn(len(several), vocab_size, generator=generator)
    masks = {n: mask for n, (mask, _) in enumerate(several) if mask is not None}
    scores = logits.double()
    for n, (_, allowed) in enumerate(several):
        forbidden = sorted(set(range(vocab_size)) - allowed)
        scores[n, torch.tensor(forbidden, dtype=torch.int64)] = -torch.inf
    chosen = sample(device, logits, greedy, masks)
    rows.append(
        count_wrong(
            f"{label}: greedy, every kind and one row without",
            (got == want for got, want in zip(chosen, scores.argmax(-1).tolist(), strict=True)),
        )
    )

    # The draw is the inverse of the cumulative distribution: how far outside of its id's interval a number lies.
    seed, temperature, worst, forbidden_ids = 11, 0.8, 0.0, 0
    shares = torch.softmax(scores / temperature, -1)
    ends = shares.cumsum(-1)
    for turn in range(20):
        drawn = SamplingParameters(
            do_sample=True, temperature=temperature, seed=seed + turn * len(several)
        )
        chosen = sample(device, logits, drawn, masks)
        seeds = np.arange(len(several), dtype=np.uint64) + np.uint64(drawn.seed)
        numbers = uniforms(seeds, np.full(len(several), 3, np.int64), PURPOSE_SAMPLE)
        for n, token in enumerate(chosen):
            forbidden_ids += token not in several[n][1]
            end = float(ends[n, token])
            start = end - float(shares[n, token])
            worst = max(worst, start - numbers[n], numbers[n] - end)
    rows.append(
        Row(f"{label}: {20 * len(several)} draws", f"{worst:.1e} outside", "1e-05", worst <= 1e-5)
    )
    rows.append(
        Row(
            f"{label}: forbidden ids drawn",
            f"{forbidden_ids} of {20 * len(several)}",
            "0",
            not forbidden_ids,
        )
    )
    return rows


class GivenLogits:
    """A model whose hidden state is the number of a row of logits."""

    def __init__(self, logits: torch.Tensor) -> None:
        """Of [T, V]."""
        self._logits = logits

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """[R, 1] -> [R, V]."""
        return self._logits[hidden[:, 0].long()]


def check_prompt_logprobs(device: torch.device) -> list[Row]:
    """More prompt ids than one chunk, and equal logits among them, against float64 on the CPU."""
    count, vocab_size, top_n = 2 * CHUNK + 6, 1003, 5
    generator = torch.Generator().manual_seed(4)
    # Two decimals, so that a row has equal logits and places are decided by the ids.
    logits = (torch.randn(count, vocab_size, generator=generator) * 3).mul(100).round().div(100)
    ids = torch.randint(vocab_size, (count,), generator=generator)
    ids[:8] = logits[:8].argmax(-1)
    targets = PromptTargets(
        places=np.zeros(count, np.int64),
        tokens=np.arange(count, dtype=np.int64),
        ids=ids.numpy(),
        top_n=np.full(count, top_n, np.int64),
    )
    model: Any = GivenLogits(logits.to(device))
    hidden = torch.arange(count, dtype=torch.float32, device=device).unsqueeze(1)
    ops = select_op_set(device, torch.float32, "torch")
    told, broken = prompt_logprobs(model, ops, hidden, targets)
    if broken or [token for token, _ in told[0]] != ids.tolist():
        raise SystemExit("prompt logprobs are of other ids than were asked for")
    want = torch.log_softmax(logits.double(), -1)
    ranked = [sorted(range(vocab_size), key=lambda i: (-row[i], i)) for row in logits.tolist()]
    got = torch.tensor([one.logprob for _, one in told[0]], dtype=torch.float64)
    label = f"prompt logprobs, {count} ids"
    return [
        compare(f"{label}: logprob", got, want.gather(1, ids.unsqueeze(1)).squeeze(1), 1e-5),
        count_wrong(
            f"{label}: the {top_n} likeliest",
            (one.top_ids == order[:top_n] for (_, one), order in zip(told[0], ranked, strict=True)),
        ),
        count_wrong(
            f"{label}: rank",
            (
                one.rank == order.index(token) + 1
                for (token, one), order in zip(told[0], ranked, strict=True)
            ),
        ),
    ]
