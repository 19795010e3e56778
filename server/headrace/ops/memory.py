"""Where a tensor's rows are: what native kernels are told instead of the tensor.

Shape legend: T rows; the remaining dimensions of a row are contiguous.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor


def float_rows(tensor: Tensor, name: str) -> tuple[int, int]:
    """Address and stride of the rows of a float32 CPU tensor [T, ...].

    Raises:
        ValueError: if the tensor is of another kind, or a row is not contiguous; names it.
    """
    if tensor.dtype != torch.float32 or not tensor.is_cpu:
        raise ValueError(
            f"{name}: float32 on the cpu is needed, not {tensor.dtype} on {tensor.device}"
        )
    if not tensor.is_contiguous():
        expected = 1
        for size, stride in zip(
            reversed(tensor.shape[1:]), reversed(tensor.stride()[1:]), strict=True
        ):
            if size != 1 and stride != expected:
                raise ValueError(f"{name}: rows are not contiguous (stride {tensor.stride()})")
            expected *= size
    return tensor.data_ptr(), tensor.stride(0)


def address(tensor: Tensor, dtype: torch.dtype, name: str) -> int:
    """Address of a contiguous CPU tensor.

    Raises:
        ValueError: if the tensor is of another kind; names it.
    """
    if tensor.dtype != dtype or not tensor.is_cpu or not tensor.is_contiguous():
        raise ValueError(f"{name}: a contiguous {dtype} tensor on the cpu is needed")
    return tensor.data_ptr()
