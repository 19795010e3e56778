"""What changes scores before the choice: logit bias, penalties, suppressed ids, allowed ids, bad words.

All work in place on a float32 copy of the logits and do single IEEE operations an element, so a row's bits
depend on nothing else.

Only the (row, id) pairs that a step names are touched, and whole rows where only some ids are allowed.

Shapes: N = rows at hand, V = vocabulary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.sampling.bad_words import BadWords
    from headrace.sampling.history import SlotHistory
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
    histories: Sequence[SlotHistory | None],
) -> None:
    """Repetition penalty (multiplicative, over seen ids), then frequency and presence (additive).

    Args:
        scores: [N, V], changed in place.
        rows: [N].
        histories: [N]; there is one for each row that has penalties.
    """
    having = [
        (row, p, history)
        for row, (p, history) in enumerate(zip(rows, histories, strict=True))
        if history is not None and p.has_penalties
    ]
    if not having:
        return
    sizes = [history.ids.size for _, _, history in having]
    device = scores.device

    def pairs(values: list[float] | list[int], kind: type[np.generic]) -> torch.Tensor:
        return torch.from_numpy(np.repeat(np.array(values, kind), sizes)).to(device)

    pair_rows = pairs([row for row, _, _ in having], np.int64)
    pair_ids = torch.from_numpy(np.concatenate([h.ids for _, _, h in having])).to(device)
    part = scores[pair_rows, pair_ids]
    # x / 1, x * 1, x - 0: exact, so rows without one of the penalties come out unchanged.
    repetition = pairs([p.repetition_penalty or 1.0 for _, p, _ in having], np.float32)
    part = torch.where(part < 0, part * repetition, part / repetition)
    counts = torch.from_numpy(np.concatenate([h.counts for _, _, h in having])).to(device)
    frequency = pairs([p.frequency_penalty or 0.0 for _, p, _ in having], np.float32)
    presence = pairs([p.presence_penalty or 0.0 for _, p, _ in having], np.float32)
    part = part - counts.to(torch.float32) * frequency
    part = part - (counts > 0).to(torch.float32) * presence
    # A tiny repetition penalty can overflow; an infinity would turn into NaN further on.
    scores[pair_rows, pair_ids] = part.clamp_(-_LARGEST, _LARGEST)


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


def allow(scores: torch.Tensor, rows: Sequence[SamplingParameters]) -> None:
    """Makes all but the allowed ids impossible in the rows [N] that list some."""
    for row, p in enumerate(rows):
        if p.allowed_ids.size:
            ids = torch.from_numpy(p.allowed_ids).to(scores.device)
            kept = scores[row, ids]
            scores[row].fill_(-torch.inf)
            scores[row, ids] = kept


def forbid_words(scores: torch.Tensor, words: Sequence[BadWords | None]) -> None:
    """Makes the id impossible that would complete a bad word, in the rows [N] that have some."""
    for row, of_row in enumerate(words):
        if of_row is None:
            continue
        ids = torch.from_numpy(of_row.next_forbidden()).to(scores.device)
        scores[row, ids] = -torch.inf
