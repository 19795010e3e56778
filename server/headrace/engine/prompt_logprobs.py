"""Logprobs of prompt ids, without ever holding the logits of a whole prompt.

Shapes: T = tokens of the step, E = prompt ids to report, V = vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from headrace.sampling import TokenLogprobs, rank_logprobs

if TYPE_CHECKING:
    import numpy.typing as npt

    from headrace.engine.slots import SlotTable
    from headrace.engine.step import StepRows
    from headrace.models.causal_model import CausalModel
    from headrace.sampling.sampler import LogitsOps

CHUNK = 32
"""Rows of logits at a time."""


@dataclass(frozen=True, slots=True)
class PromptTargets:
    """Which hidden states predict which prompt ids.

    Attributes:
        places: [E] int64, row of the step.
        tokens: [E] int64, token of the step whose hidden state predicts the id.
        ids: [E] int64, the prompt id.
        top_n: [E] int64.
    """

    places: npt.NDArray[np.int64]
    tokens: npt.NDArray[np.int64]
    ids: npt.NDArray[np.int64]
    top_n: npt.NDArray[np.int64]


def prompt_targets(
    table: SlotTable,
    rows: StepRows,
    good: npt.NDArray[np.int64],
    row_starts: npt.NDArray[np.int64],
    top_n: npt.NDArray[np.int64],
) -> PromptTargets | None:
    """Finds the ids to report: those at computed + 1 up to the end of the prompt, as far as computed.

    Args:
        table: The slots, lengths not yet advanced.
        rows: The step's.
        good: [G] places of the rows that are computed.
        row_starts: [G + 1] first token of each.
        top_n: [G].

    Returns:
        The targets, or None if no row asks.
    """
    parts = []
    for n, place in enumerate(good.tolist()):
        if not rows.prompt_logprobs[place]:
            continue
        slot = int(rows.slots[place])
        first = int(table.computed[slot]) + 1
        last = min(first + int(rows.num_tokens[place]), int(table.prompt_length[slot]))
        if first < last:
            start = int(row_starts[n])
            parts.append((place, start, last - first, table.ids[slot, first:last], int(top_n[n])))
    if not parts:
        return None
    counts = [count for _, _, count, _, _ in parts]
    return PromptTargets(
        places=np.repeat([place for place, _, _, _, _ in parts], counts),
        tokens=np.concatenate([np.arange(start, start + c) for _, start, c, _, _ in parts]),
        ids=np.concatenate([ids for _, _, _, ids, _ in parts]).astype(np.int64),
        top_n=np.repeat([n for _, _, _, _, n in parts], counts).astype(np.int64),
    )


def prompt_logprobs(
    model: CausalModel, ops: LogitsOps, hidden: torch.Tensor, targets: PromptTargets
) -> tuple[dict[int, list[tuple[int, TokenLogprobs]]], set[int]]:
    """Logits in chunks, and of each chunk only what is reported. Every rank calls it in step.

    Returns:
        By place: (prompt id, its logprobs) in order; and the places whose logits were not finite. Both
        empty on ranks but the first.
    """
    reported: dict[int, list[tuple[int, TokenLogprobs]]] = {}
    broken: set[int] = set()
    for start in range(0, targets.tokens.size, CHUNK):
        part = slice(start, start + CHUNK)
        index = torch.from_numpy(targets.tokens[part]).to(hidden.device)
        logits = model.logits(hidden[index])
        if logits is None:
            continue
        ids = targets.ids[part]
        places = targets.places[part].tolist()
        flags = ops.non_finite(logits).cpu().tolist()
        broken.update(place for place, flag in zip(places, flags, strict=True) if flag)
        _, logsumexp = ops.argmax_logsumexp(logits)
        device_ids = torch.from_numpy(ids).to(hidden.device)
        ranked = rank_logprobs(logits, logsumexp, device_ids, targets.top_n[part], with_ranks=True)
        for place, token, logprobs in zip(places, ids.tolist(), ranked, strict=True):
            reported.setdefault(place, []).append((token, logprobs))
    return reported, broken
