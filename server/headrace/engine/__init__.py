"""The engine of one rank: slots, KV cache, one step after another. Knows tensors, not sockets."""

from headrace.engine.engine import Engine, GroupFailure
from headrace.engine.limits import EngineLimits, PreparationError
from headrace.engine.mask_source import CALLED_OFF, MaskSource, NoMasks, PlacedMask, StreamEnded
from headrace.engine.preparation import prepare
from headrace.engine.step import (
    BlockAppend,
    NewSequence,
    Outcome,
    RowStatus,
    Step,
    StepOutcome,
    StepRows,
    Timings,
)

__all__ = [
    "CALLED_OFF",
    "BlockAppend",
    "Engine",
    "EngineLimits",
    "GroupFailure",
    "MaskSource",
    "NewSequence",
    "NoMasks",
    "Outcome",
    "PlacedMask",
    "PreparationError",
    "RowStatus",
    "Step",
    "StepOutcome",
    "StepRows",
    "StreamEnded",
    "Timings",
    "prepare",
]
