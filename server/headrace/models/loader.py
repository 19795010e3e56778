"""From a model document to a model on this rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from headrace.models.config import architecture_of
from headrace.models.registry import family_loader
from headrace.weights.source import open_weights

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.distributed.process_group import ProcessGroup
    from headrace.document import ModelDocument
    from headrace.models.causal_model import CausalModel
    from headrace.ops.op_set import OpSet

_DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


@dataclass(frozen=True)
class LoadContext:
    """What a family's loader needs beside configuration and files.

    Attributes:
        ops: Packs weights and runs layers.
        group: The ranks that hold the model.
        device: Where parameters go.
        dtype: Of parameters and activations.
        num_positions: The longest sequence that will be served, in tokens.
        progress: Called with stage, done, total, unit.
    """

    ops: OpSet
    group: ProcessGroup
    device: torch.device
    dtype: torch.dtype
    num_positions: int
    progress: Callable[[str, int, int, str], None]


def load_model(
    document: ModelDocument,
    ops: OpSet,
    group: ProcessGroup,
    progress: Callable[[str, int, int, str], None],
    max_total_tokens: int | None = None,
) -> CausalModel:
    """Loads this rank's part of a model.

    Parameters go to the group's device, on the CPU in float32 and elsewhere in the document's dtype.

    Args:
        document: The model.
        ops: The op set that will run it.
        group: The ranks.
        progress: Called with `("weights", done, total, "bytes")`.
        max_total_tokens: The longest sequence that will be served; absent: the document's
            `max_position_embeddings`.

    Raises:
        ConfigError: The configuration is not supported.
        ShardingError: The model cannot be split over the ranks.
        WeightsError: The files are broken or hold another model.
    """
    load = family_loader(architecture_of(document.config))
    on_cpu = group.device.type == "cpu"
    context = LoadContext(
        ops=ops,
        group=group,
        device=group.device,
        dtype=torch.float32 if on_cpu else _DTYPES[document.dtype],
        num_positions=max_total_tokens or document.max_position_embeddings,
        progress=progress,
    )
    source = open_weights(document.weights)
    try:
        return load(document.config, source, context)
    finally:
        source.close()
