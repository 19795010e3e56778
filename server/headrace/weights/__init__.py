"""Tensors out of weight files: memory-mapped, slice by slice, checked before use."""
