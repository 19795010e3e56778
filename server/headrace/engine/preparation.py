"""From a model document to an engine: weights, the largest step, the KV cache, warm-up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from headrace.engine.batch import build_batch
from headrace.engine.engine import Engine, allocate_kv
from headrace.engine.limits import MAX_BLOCKS, PreparationError
from headrace.engine.memory import PeakMeter, free_bytes, kv_budget
from headrace.engine.slots import SlotTable
from headrace.models import load_model
from headrace.sampling import Sampler, SamplingParameters

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.distributed import ProcessGroup
    from headrace.document import ModelDocument
    from headrace.engine.limits import EngineLimits
    from headrace.models import CausalModel
    from headrace.ops.attention.backend import LayerKv
    from headrace.ops.op_set import OpSet

    Progress = Callable[[str, int, int, str], None]


def prepare(
    document: ModelDocument,
    ops: OpSet,
    group: ProcessGroup,
    limits: EngineLimits,
    progress: Progress,
) -> Engine:
    """Makes the engine of one rank; every rank of the group calls it.

    Args:
        document: The model.
        ops: The op set.
        group: The ranks.
        limits: Sizes.
        progress: Called with stage, done, total, unit.

    Raises:
        HeadraceError: A bad checkpoint or an impossible request.
    """
    limits.check()
    if limits.max_total_tokens > document.max_position_embeddings:
        raise PreparationError(
            f"max_total_tokens {limits.max_total_tokens} is more than the model's "
            f"{document.max_position_embeddings} positions"
        )
    model = load_model(document, ops, group, progress, limits.max_total_tokens)
    return prepare_model(model, ops, group, limits, progress)


def prepare_model(
    model: CausalModel,
    ops: OpSet,
    group: ProcessGroup,
    limits: EngineLimits,
    progress: Progress,
) -> Engine:
    """As `prepare`, for a model that is loaded."""
    with torch.inference_mode():
        progress("largest step", 0, 1, "steps")
        activation_bytes, block_bytes = _largest_step(model, ops, group, limits)
        progress("largest step", 1, 1, "steps")
        num_blocks = _agree_on_blocks(limits, group, block_bytes, activation_bytes)
        progress("kv cache", 0, num_blocks * block_bytes, "bytes")
        engine = Engine(model, ops, group, limits, num_blocks)
        progress("kv cache", engine.kv_cache_bytes, engine.kv_cache_bytes, "bytes")
        _warm_up(engine, ops, group, progress)
    return engine


def _agree_on_blocks(
    limits: EngineLimits, group: ProcessGroup, block_bytes: int, activation_bytes: int
) -> int:
    """`plan_blocks` on every rank: all measure before any allocates, and one that fails fails all."""
    fault: PreparationError | None = None
    num_blocks = 0
    group.vote(ok=True)
    try:
        num_blocks = plan_blocks(limits, group, block_bytes, activation_bytes)
    except PreparationError as error:
        fault = error
    if not group.vote(ok=fault is None):
        raise fault or PreparationError("another rank has no room for its KV cache")
    return num_blocks


def plan_blocks(
    limits: EngineLimits, group: ProcessGroup, block_bytes: int, activation_bytes: int
) -> int:
    """How many blocks this rank's pool gets.

    Raises:
        PreparationError: Not a single one, or not the required number.
    """
    if limits.kv_cache_bytes is None:
        budget = kv_budget(group.device, activation_bytes, group.world_size)
        source = "the memory that is free"
        fitting = min(budget // block_bytes, MAX_BLOCKS)
    else:
        budget = limits.kv_cache_bytes
        source = f"--kv-cache-memory {budget}"
        fitting = budget // block_bytes
        if limits.required_blocks is None:
            _refuse_more_than_free(budget, group)
    if limits.required_blocks is not None:
        # A restart finds less free than the first start did (the page cache of the weights, the router's
        # growth); what was admitted must still fit, so all of what is free may be used, not 40 % of it.
        if limits.kv_cache_bytes is None:
            fitting = free_bytes(group.device) // group.world_size // block_bytes
            source = "the memory that is free"
        if limits.required_blocks > fitting:
            raise PreparationError(
                f"{limits.required_blocks} KV blocks are required, {source} holds {fitting}"
            )
        return limits.required_blocks
    if fitting < 1:
        raise PreparationError(f"{source} holds no KV block: one takes {block_bytes} bytes")
    return fitting


def _refuse_more_than_free(budget: int, group: ProcessGroup) -> None:
    """Pages of a KV cache are taken when they are first written: too large a one would fail much later.

    Raises:
        PreparationError: This rank's part of what is free is less than `budget` bytes.
    """
    ranks = group.world_size if group.device.type == "cpu" else 1
    room = free_bytes(group.device) // ranks
    if budget > room:
        raise PreparationError(
            f"--kv-cache-memory {budget}: more than the {room} bytes that are free for each worker"
        )


def _largest_step(
    model: CausalModel, ops: OpSet, group: ProcessGroup, limits: EngineLimits
) -> tuple[int, int]:
    """Runs the step with the most tokens and rows: bytes it took at its peak, bytes of a block."""
    longest = min(limits.max_batch_tokens, limits.max_total_tokens)
    rows = min(-(-limits.max_batch_tokens // longest), limits.max_sequences)
    num_tokens = np.full(rows, longest, np.int64)
    num_tokens[-1] = min(longest, max(1, limits.max_batch_tokens - longest * (rows - 1)))
    blocks_of_row = -(-longest // limits.block_size)
    kv = allocate_kv(model, ops, limits.block_size, rows * blocks_of_row, poison=False)
    block_bytes = sum(layer.num_bytes for layer in kv) // (rows * blocks_of_row)
    table = SlotTable(limits, rows * blocks_of_row, model.config.vocab_size)
    for row in range(rows):
        table.tables[row, :blocks_of_row] = np.arange(blocks_of_row) + row * blocks_of_row
    meter = PeakMeter(group.device)
    hidden = _forward(model, table, kv, np.arange(rows), num_tokens, limits, group)
    rows_of_logits = min(limits.max_sequences, hidden.shape[0])
    logits = model.logits(hidden[:rows_of_logits])
    if logits is not None:
        _sample_all(logits, limits, group, ops)
    return meter.peak(), block_bytes


def _forward(
    model: CausalModel,
    table: SlotTable,
    kv: list[LayerKv],
    slots: np.ndarray[tuple[int], np.dtype[np.int64]],
    num_tokens: np.ndarray[tuple[int], np.dtype[np.int64]],
    limits: EngineLimits,
    group: ProcessGroup,
) -> torch.Tensor:
    batch, _ = build_batch(table, slots, num_tokens, limits.block_size, group.device)
    return model.forward(batch, kv)


def _sample_all(
    logits: torch.Tensor, limits: EngineLimits, group: ProcessGroup, ops: OpSet
) -> None:
    """The dearest kind of sampling, for every row."""
    sampler = Sampler(limits.max_sequences, logits.shape[1], group.device, ops)
    parameters = SamplingParameters(do_sample=True, top_p=0.95, logprobs=True)
    slots = np.arange(logits.shape[0])
    for slot in slots.tolist():
        sampler.admit(slot, parameters, np.zeros(1, np.int64), 1)
    sampler.sample(logits, slots, np.zeros(slots.size, np.int64), {})


def _warm_up(engine: Engine, ops: OpSet, group: ProcessGroup, progress: Progress) -> None:
    """Decode steps of one row and of all slots, on blocks that a stream finds empty anyway."""
    limits = engine.limits
    sizes = sorted({1, min(limits.max_sequences, limits.max_batch_tokens)})
    table = SlotTable(limits, engine.num_blocks, engine.model.config.vocab_size)
    for done, rows in enumerate(sizes):
        progress("warm-up", done, len(sizes), "steps")
        slots = np.arange(rows)
        # All tables name block 0: the rows overwrite each other, and nobody reads the result.
        ones = np.ones(rows, np.int64)
        hidden = _forward(engine.model, table, engine.kv, slots, ones, limits, group)
        logits = engine.model.logits(hidden)
        if logits is not None:
            ops.argmax_logsumexp(logits)
    progress("warm-up", len(sizes), len(sizes), "steps")
