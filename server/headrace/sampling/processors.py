"""What changes scores before the choice: logit bias, penalties, suppressed ids, masks.

All work in place on a float32 copy of the logits and do single IEEE operations an element, so a row's bits
depend on nothing else.

Shapes: N = rows at hand, V = vocabulary, n = those of the rows that have the step, E = (row, id) pairs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.sampling.parameters import SamplingParameters

_LARGEST = torch.finfo(torch.float32).max


def add_bias(scores: torch.Tensor, rows: Sequence[SamplingParameters]) -> None:
    """Adds each row's `logit_bias` to scores [N, V]."""
    having = [(row, p) for row, p in enumerate(rows) if p.bias_ids.size]
    if not having:
        return
    device = scores.device
    counts = [p.bias_ids.size for _, p in having]
    pair_rows = torch.from_numpy(np.repeat([row for row, _ in having], counts)).to(device)
    pair_ids = torch.from_numpy(np.concatenate([p.bias_ids for _, p in having])).to(device)
    values = torch.from_numpy(np.concatenate([p.bias_values for _, p in having])).to(device)
    scores[pair_rows, pair_ids] = scores[pair_rows, pair_ids] + values


def apply_penalties(
    scores: torch.Tensor,
    rows: Sequence[SamplingParameters],
    slots: torch.Tensor,
    seen: torch.Tensor,
    counts: torch.Tensor,
) -> None:
    """Repetition penalty (multiplicative, over seen ids), then frequency and presence (additive).

    Args:
        scores: [N, V], changed in place.
        rows: [N].
        slots: [N] int64, rows of `seen` and `counts`.
        seen: [S, V] bool: in the prompt or the output.
        counts: [S, V] int32: times in the output.
    """
    having = [row for row, p in enumerate(rows) if p.has_penalties]
    if not having:
        return
    index = torch.tensor(having, device=scores.device)
    its_slots = slots[index]
    part = scores[index]

    def column(values: list[float]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.float32, device=scores.device).unsqueeze(1)

    parameters = [rows[row] for row in having]
    if any(p.repetition_penalty not in (None, 1.0) for p in parameters):
        # x / 1 and x * 1 are exact: rows without this penalty come out unchanged.
        penalty = column([p.repetition_penalty or 1.0 for p in parameters])
        changed = torch.where(part < 0, part * penalty, part / penalty)
        part = torch.where(seen[its_slots], changed, part)
    if any(p.frequency_penalty or p.presence_penalty for p in parameters):
        times = counts[its_slots].to(torch.float32)
        part = part - times * column([p.frequency_penalty or 0.0 for p in parameters])
        present = (times > 0).to(torch.float32)
        part = part - present * column([p.presence_penalty or 0.0 for p in parameters])
    # A tiny repetition penalty can overflow; an infinity would turn into NaN further on.
    scores[index] = part.clamp_(-_LARGEST, _LARGEST)


def suppress(
    scores: torch.Tensor, rows: Sequence[SamplingParameters], output_indexes: Sequence[int]
) -> None:
    """Makes suppressed ids impossible in the rows [N] with fewer than `min_tokens` out."""
    having = [
        (row, p.suppressed_ids)
        for row, (p, index) in enumerate(zip(rows, output_indexes, strict=True))
        if p.suppressed_ids.size and index < p.min_tokens
    ]
    if not having:
        return
    pair_rows = np.repeat([row for row, _ in having], [ids.size for _, ids in having])
    pair_ids = np.concatenate([ids for _, ids in having])
    device = scores.device
    scores[
        torch.from_numpy(pair_rows).to(device), torch.from_numpy(pair_ids).to(device)
    ] = -torch.inf
