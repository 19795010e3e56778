"""The best scores of each row in a total order: larger scores first, lower ids first among equals.

Shapes: n = rows, V = vocabulary, K = scores asked for.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

_WORD = 0xFFFFFFFF


def best_scores(scores: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The best `count` scores of each row.

    Args:
        scores: [n, V] float32, no NaN.
        count: K; V or more: all.

    Returns:
        Values [n, K] and their ids [n, K] int64, in order.
    """
    count = min(count, scores.shape[1])
    if scores.device.type == "cpu":
        ids = _best_on_cpu(scores, count)
        return scores.gather(1, ids), ids
    if count == scores.shape[1]:
        return torch.sort(scores, dim=-1, descending=True, stable=True)
    values, ids = torch.topk(scores, count, dim=-1, sorted=False)
    ids, order = torch.sort(ids, dim=-1)
    values, order = torch.sort(values.gather(1, order), dim=-1, descending=True, stable=True)
    return values, ids.gather(1, order)


def _best_on_cpu(scores: torch.Tensor, count: int) -> torch.Tensor:
    """With numpy, whose selection and sorts are vectorised and several times as fast here."""
    table = scores.contiguous().numpy()
    if count == table.shape[1]:
        return torch.from_numpy(_sorted_ids(table))
    ids = np.empty((table.shape[0], count), np.int64)
    cut = table.shape[1] - count
    for row, values in enumerate(table):
        # What ties with the last one may be more than asked for: the stable sort takes the lowest ids.
        candidates = np.flatnonzero(values >= np.partition(values, cut)[cut])
        order = np.argsort(-values[candidates], kind="stable")
        ids[row] = candidates[order[:count]]
    return torch.from_numpy(ids)


def _sorted_ids(table: npt.NDArray[np.float32]) -> npt.NDArray[np.int64]:
    """All ids, through 64-bit keys (score, then id): all are different, so no stable sort is needed."""
    bits = table.view(np.int32)
    # The bit patterns of negative floats are in reverse order.
    ordered = np.where(bits < 0, bits ^ 0x7FFFFFFF, bits).astype(np.int64)
    keys = (ordered << 32) | (_WORD - np.arange(table.shape[1], dtype=np.int64))
    return _WORD - (np.sort(keys, axis=-1)[:, ::-1] & _WORD)
