"""Which op set serves: decided once, at start; the caller logs the name."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Literal

import torch

from headrace.ops.torch_ops import TorchOpSet

if TYPE_CHECKING:
    from headrace.ops.op_set import OpSet

Preference = Literal["auto", "native", "torch"]


def select_op_set(
    device: torch.device | str, dtype: torch.dtype, preference: Preference = "auto"
) -> OpSet:
    """Chooses the op set.

    ``auto`` takes the native set for float32 on the CPU and plain torch for everything else.

    Args:
        device: where weights, activations and KV are.
        dtype: their dtype.
        preference: ``auto``, or one set by name.

    Raises:
        ValueError: if ``native`` is asked for and cannot serve this device and dtype, or if the
            preference is unknown.
        ImportError: if the native set is chosen and its extension module is not installed.
    """
    device = torch.device(device)
    if preference not in ("auto", "native", "torch"):
        raise ValueError(f"unknown op set {preference!r}: use auto, native or torch")
    fits = device.type == "cpu" and dtype == torch.float32
    if preference == "torch" or (preference == "auto" and not fits):
        return TorchOpSet(device, dtype)
    if not fits:
        raise ValueError(f"the native op set serves float32 on the cpu, not {dtype} on {device}")
    # Imported here so that GPU workers and the oracle need no native extension.
    op_set: OpSet = import_module("headrace.ops.native").NativeOpSet()
    return op_set
