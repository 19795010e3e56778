"""Logprobs of an id and of the best ones: log-softmax of the model's logits, in float32: the logit less the
logsumexp of its row.

Shapes: R = rows, V = vocabulary, N = top logprobs asked for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_LOWEST = torch.finfo(torch.float32).min


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """What is reported beside an id.

    Attributes:
        logprob: Of the id itself.
        top_ids: Exactly top_n ids, best first, the lower id first among equals.
        top_logprobs: One for each of `top_ids`.
        rank: The id's place in that order over the whole vocabulary, from 1; None if not asked for.
    """

    logprob: float
    top_ids: list[int]
    top_logprobs: list[float]
    rank: int | None = None


def rank_logprobs(
    logits: torch.Tensor,
    logsumexp: torch.Tensor,
    ids: torch.Tensor,
    top_n: npt.NDArray[np.int64],
    *,
    with_ranks: bool = False,
) -> list[TokenLogprobs]:
    """Logprobs for a batch of rows.

    Args:
        logits: [R, V] float32, finite.
        logsumexp: [R] of each row.
        ids: [R] int64, the id of each row.
        top_n: [R] how many of the best each row reports (at most V).
        with_ranks: Report the place of each row's id too.

    Returns:
        One entry a row. Every value is finite and at most 0: what underflows is the lowest float32.
    """
    normaliser = logsumexp.unsqueeze(1)
    own = (logits.gather(1, ids.unsqueeze(1)) - normaliser).clamp_(_LOWEST, 0.0)
    own_values = own.squeeze(1).tolist()
    most = int(top_n.max()) if top_n.size else 0
    if most == 0:
        ranked = [TokenLogprobs(logprob, [], []) for logprob in own_values]
    else:
        top_ids, top_values = _top(logits, normaliser, most)
        ranked = [
            TokenLogprobs(logprob, top_ids[row][:count], top_values[row][:count])
            for row, (logprob, count) in enumerate(zip(own_values, top_n.tolist(), strict=True))
        ]
    if not with_ranks:
        return ranked
    places = zip(ranked, ids.tolist(), _ranks(logits, ids), strict=True)
    return [replace(one, rank=_place(one, token, rank)) for one, token, rank in places]


def _ranks(logits: torch.Tensor, ids: torch.Tensor) -> list[int]:
    """The place of each row's id by its logit, the lower id first among equals, from 1."""
    own = logits.gather(1, ids.unsqueeze(1))
    better = (logits > own).sum(1)
    equal = logits == own
    # Few rows have an equal logit besides their own.
    tied = torch.nonzero(equal.sum(1) > 1).flatten().tolist()
    for row in tied:
        better[row] += equal[row, : int(ids[row])].sum()
    return [int(count) + 1 for count in better.tolist()]


def _place(one: TokenLogprobs, token: int, rank: int) -> int:
    """Where the list has the token, its place there: different logits may have one logprob."""
    return one.top_ids.index(token) + 1 if token in one.top_ids else rank


def _top(
    logits: torch.Tensor, normaliser: torch.Tensor, count: int
) -> tuple[list[list[int]], list[list[float]]]:
    """The `count` best of each row; `topk` alone leaves the order of equal values open."""
    wide = min(count + 1, logits.shape[1])
    values, ids = torch.topk(logits, wide, dim=-1)
    if wide > count:
        # A tie across the cut: which of the equal ids topk returned is not defined.
        tied = values[:, count] == values[:, count - 1]
        for row in torch.nonzero(tied).flatten().tolist():
            every = torch.argsort(logits[row], descending=True, stable=True)
            ids[row] = every[:wide]
            values[row] = logits[row][every[:wide]]
    values, ids = (values - normaliser)[:, :count].clamp_(_LOWEST, 0.0), ids[:, :count]
    order = torch.argsort(ids, dim=-1)
    values, ids = values.gather(1, order), ids.gather(1, order)
    order = torch.argsort(values, dim=-1, descending=True, stable=True)
    return ids.gather(1, order).tolist(), values.gather(1, order).tolist()
