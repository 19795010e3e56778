"""Ops: tensor in, tensor out; see :mod:`headrace.ops.op_set` for the protocol."""

from headrace.ops.attention import AttentionBackend, AttentionMetadata, LayerKv
from headrace.ops.op_set import LinearWeight, OpSet
from headrace.ops.select import Preference, select_op_set
from headrace.ops.torch_ops import TorchOpSet

__all__ = [
    "AttentionBackend",
    "AttentionMetadata",
    "LayerKv",
    "LinearWeight",
    "OpSet",
    "Preference",
    "TorchOpSet",
    "select_op_set",
]
