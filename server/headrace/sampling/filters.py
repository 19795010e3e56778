"""Temperature, top-k, top-p, min-p, typical-p, and the draw.

Formulas and order are transformers' warpers'. A full sort of the vocabulary is avoided: each row is tried
with its best 64 or 1024 ids and falls back to more where those do not decide it. Which ids are kept does not
depend on how many were looked at, and that number depends on the row alone, so neither do the bits.

The draw inverts the cumulative distribution over the kept ids in the order of their ids (not of their
scores: two near-equal scores may swap places between kernel sets, ids never do), summed in float64.

Shapes: N = rows at hand, V = vocabulary, n = rows of one group, K = candidates looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from headrace.sampling.ranking import best_scores

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import numpy.typing as npt

    from headrace.sampling.parameters import SamplingParameters

_CANDIDATES = (64, 1024, 8192)
_SUM_BLOCK = 256
_CHUNK_SCORES = 1 << 19
"""Scores at a time: bounds the memory and stays in the caches; changes no bits."""


def draw(
    scores: torch.Tensor, rows: Sequence[SamplingParameters], uniforms: npt.NDArray[np.float64]
) -> torch.Tensor:
    """Draws one id a row.

    Args:
        scores: [N, V] float32 after all processors; -inf is impossible, at least one is finite.
        rows: [N] parameters, all with do_sample.
        uniforms: [N] in [0, 1).

    Returns:
        [N] int64 ids on the device of `scores`.
    """
    device, vocab_size = scores.device, scores.shape[1]
    numbers = torch.from_numpy(uniforms).to(device)
    ids = torch.empty(len(rows), dtype=torch.int64, device=device)
    chunk_rows = max(1, _CHUNK_SCORES // vocab_size)
    pending: dict[int, list[int]] = {}
    for row, parameters in enumerate(rows):
        pending.setdefault(_first_width(parameters, vocab_size), []).append(row)
    while pending:
        width = min(pending)
        group = pending.pop(width)
        for start in range(0, len(group), chunk_rows):
            chunk = group[start : start + chunk_rows]
            index = torch.tensor(chunk, device=device)
            its_rows = [rows[row] for row in chunk]
            part = _scale(scores[index], its_rows)
            if width == 0:
                ids[index] = _draw_unsorted(part, its_rows, numbers[index])
                continue
            drawn, decided = _draw_candidates(part, its_rows, numbers[index], width)
            ids[index] = drawn
            for row, is_decided in zip(chunk, decided.tolist(), strict=True):
                if not is_decided:
                    pending.setdefault(_next_width(width, vocab_size), []).append(row)
    return ids


def _scale(scores: torch.Tensor, rows: Sequence[SamplingParameters]) -> torch.Tensor:
    """Scores [n, V] less their maximum, over the temperature; a copy."""
    temperature = _column(
        [1.0 if p.temperature is None else p.temperature for p in rows], scores.device
    )
    # The maximum is taken off first (transformers does it in softmax): a tiny temperature cannot overflow.
    return (scores - scores.amax(-1, keepdim=True)) / temperature.float()


def kept(scores: torch.Tensor, parameters: SamplingParameters, width: int) -> torch.Tensor | None:
    """The ids that a row's filters keep, ascending; None if `width` candidates do not decide it.

    For tests and explanations: `draw` uses the same parts.

    Args:
        scores: [V] after processors.
        parameters: Of the row.
        width: Candidates to look at; V for all.
    """
    scaled = _scale(scores.unsqueeze(0), [parameters])
    ids, weights, decided = _weigh_candidates(scaled, [parameters], min(width, scores.shape[0]))
    return ids[0][weights[0] > 0].sort().values if bool(decided[0]) else None


def _first_width(parameters: SamplingParameters, vocab_size: int) -> int:
    """Candidates to start with; 0: no sorting is needed."""
    cuts_by_rank = parameters.top_k is not None and parameters.top_k < vocab_size
    cuts_by_mass = parameters.top_p is not None and parameters.top_p < 1.0
    if not (cuts_by_rank or cuts_by_mass):
        # Typicality is relative to the entropy of everything that is left.
        return 0 if parameters.typical_p is None else vocab_size
    if cuts_by_rank:
        top_k = parameters.top_k or 0
        for width in _CANDIDATES:
            if top_k < width < vocab_size:
                return width
        return vocab_size
    return _next_width(0, vocab_size)


def _next_width(width: int, vocab_size: int) -> int:
    return next((w for w in _CANDIDATES if width < w < vocab_size), vocab_size)


def _column(values: list[float], device: torch.device) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64, device=device).unsqueeze(1)


def _draw_unsorted(
    scaled: torch.Tensor, rows: Sequence[SamplingParameters], numbers: torch.Tensor
) -> torch.Tensor:
    """Rows with neither top-k, top-p nor typical-p: [n, V] scores -> [n] ids."""
    weights = torch.softmax(scaled, dim=-1)
    if any(p.min_p for p in rows):
        share = _column([p.min_p or 0.0 for p in rows], scaled.device).float()
        weights = weights.masked_fill(weights < share * weights.amax(-1, keepdim=True), 0.0)
    return _invert(weights, numbers)


def _draw_candidates(
    scaled: torch.Tensor, rows: Sequence[SamplingParameters], numbers: torch.Tensor, width: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows [n, V] from their best `width` ids: ids [n], and whether those decide the row [n]."""
    ids, weights, decided = _weigh_candidates(scaled, rows, width)
    if width >= scaled.shape[1]:
        return _invert(torch.zeros_like(weights).scatter_(1, ids, weights), numbers), decided
    ids, order = torch.sort(ids, dim=-1)
    place = _invert(weights.gather(1, order), numbers)
    return ids.gather(1, place.unsqueeze(1)).squeeze(1), decided


def _invert(weights: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    """Inverse of the cumulative distribution: weights [n, K], numbers [n] -> places [n].

    Long rows are summed in blocks first: adding one number after the other is slow, and only one block
    needs it.
    """
    count = weights.shape[1]
    if count <= _SUM_BLOCK:
        return _place(weights, numbers)
    padded = torch.nn.functional.pad(weights, (0, -count % _SUM_BLOCK))
    blocks = padded.reshape(weights.shape[0], -1, _SUM_BLOCK)
    sums = blocks.sum(-1, dtype=torch.float64)
    cumulative = sums.cumsum(-1)
    target = numbers.unsqueeze(1) * cumulative[:, -1:]
    block = _place(sums, numbers)
    rows = torch.arange(block.shape[0], device=block.device)
    before = cumulative[rows, block] - sums[rows, block]
    rest = (target.squeeze(1) - before) / sums[rows, block]
    return block * _SUM_BLOCK + _place(blocks[rows, block], rest.clamp_(0.0, 1.0))


def _place(weights: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    """`_invert` of short rows: the first place where the sum so far exceeds the share `numbers`."""
    cumulative = weights.cumsum(-1, dtype=torch.float64)
    total = cumulative[:, -1:]
    # Below the total even after rounding, so the place found has a weight.
    below = torch.nextafter(total, torch.zeros_like(total))
    target = torch.minimum(numbers.unsqueeze(1) * total, below)
    return torch.searchsorted(cumulative, target, right=True).squeeze(1)


def _weigh_candidates(
    scaled: torch.Tensor, rows: Sequence[SamplingParameters], width: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Applies the filters to the best `width` ids of each row.

    Args:
        scaled: [n, V] float32, the row's maximum at 0.
        rows: [n].
        width: K.

    Returns:
        ids [n, K] best first; weights [n, K] float64, 0 where filtered out; decided [n] bool: no id
        outside the K could have been kept.
    """
    device, vocab_size = scaled.device, scaled.shape[1]
    values, ids = best_scores(scaled, width)
    wide = values.double()
    possible = values > -torch.inf
    undecided = torch.zeros(len(rows), dtype=torch.bool, device=device)
    # top-k: what ties with the k-th stays.
    limits = [min(p.top_k or vocab_size, vocab_size) for p in rows]
    places = torch.tensor([min(k, width) - 1 for k in limits], device=device).unsqueeze(1)
    ranked = torch.tensor([k < vocab_size for k in limits], device=device)
    threshold = values.gather(1, places)
    keep = possible & (~ranked.unsqueeze(1) | (values >= threshold))
    undecided |= ranked & (values[:, -1] >= threshold[:, 0])
    # Probabilities among what is left: all ids where top-k is off, which needs the whole row.
    probabilities = torch.softmax(wide.masked_fill(~keep, -torch.inf), dim=-1)
    open_rows = torch.nonzero(~ranked).flatten()
    if open_rows.numel():
        whole = torch.softmax(scaled[open_rows], dim=-1)
        probabilities[open_rows] = whole.gather(1, ids[open_rows]).double()
    if any(p.top_p is not None and p.top_p < 1.0 for p in rows):
        mass = _column([1.0 if p.top_p is None else p.top_p for p in rows], device)
        before = probabilities.cumsum(-1).roll(1, dims=-1)
        before[:, 0] = 0.0
        cut = mass < 1.0
        keep = keep & (~cut | (before < mass))
        # Without top-k, whatever ties with the last candidate must be out, or more might be in.
        undecided |= ~ranked & (keep & (values <= values[:, -1:])).any(-1)
    if any(p.min_p for p in rows):
        share = _column([p.min_p or 0.0 for p in rows], device)
        keep = keep & ~(probabilities < share * probabilities[:, :1])
    if any(p.typical_p is not None for p in rows):
        keep = _typical(wide, keep, rows)
    if width >= vocab_size:
        undecided = torch.zeros_like(undecided)
    return ids, torch.where(keep, probabilities, 0.0), ~undecided


def _typical(
    wide: torch.Tensor, keep: torch.Tensor, rows: Sequence[SamplingParameters]
) -> torch.Tensor:
    """Typical-p over what is kept: scores [n, K] float64, keep [n, K] -> keep [n, K]."""
    left = wide.masked_fill(~keep, -torch.inf)
    logprobs = torch.log_softmax(left, dim=-1)
    probabilities = torch.softmax(left, dim=-1)
    # Cumulative sums instead of `sum`: one order whatever the batch.
    surprise = torch.where(keep, probabilities * logprobs, 0.0).cumsum(-1)
    entropy = -surprise[:, -1:]
    shifted = torch.where(keep, (-logprobs - entropy).abs(), torch.inf)
    ordered, order = torch.sort(shifted, dim=-1, stable=True)
    cumulative = probabilities.gather(1, order).cumsum(-1)
    mass = _column([2.0 if p.typical_p is None else p.typical_p for p in rows], wide.device)
    last = (cumulative < mass).sum(-1, keepdim=True).clamp_(max=wide.shape[1] - 1)
    return keep & (shifted <= ordered.gather(1, last))
