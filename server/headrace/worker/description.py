"""`Describe`: what the document says of the model, before any weight is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.distributed.splits import split_heads
from headrace.models.config import read_config
from headrace.pb import worker_pb2 as pb

if TYPE_CHECKING:
    import torch

    from headrace.document import ModelDocument
    from headrace.ops.op_set import OpSet
    from headrace.worker.arguments import WorkerArguments

MAX_STEPS_IN_FLIGHT = 2


def describe(
    document: ModelDocument,
    arguments: WorkerArguments,
    ops: OpSet,
    device: torch.device,
    dtype: torch.dtype,
) -> pb.DescribeReply:
    """The reply of this rank.

    Raises:
        HeadraceError: The configuration is not supported, or cannot be split over the ranks.
    """
    config = read_config(document.config)
    split = split_heads(config.num_query_heads, config.num_kv_heads, arguments.world_size)
    kv_heads = len(split[arguments.rank].kv_heads)
    # One table for all layers: a window counts for the group only if every layer has it.
    windows = set(config.layer_windows)
    window = windows.pop() if len(windows) == 1 else None
    bytes_per_token = 2 * config.num_layers * kv_heads * config.head_dim * dtype.itemsize
    return pb.DescribeReply(
        rank=arguments.rank,
        world_size=arguments.world_size,
        device=str(device),
        compute_dtype=str(dtype).removeprefix("torch."),
        vocab_size=config.vocab_size,
        max_position_embeddings=document.max_position_embeddings,
        kv_groups=[
            pb.KvGroup(
                num_layers=config.num_layers,
                sliding_window=window,
                num_kv_heads=kv_heads,
                head_dim=config.head_dim,
                bytes_per_token=bytes_per_token,
            )
        ],
        max_steps_in_flight=MAX_STEPS_IN_FLIGHT,
        kernel_set=ops.name,
        prompt_logprobs=True,
        attention_backend=ops.attention.name,
    )
