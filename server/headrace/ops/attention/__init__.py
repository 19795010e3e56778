"""Paged attention: the interface, the metadata and the backends, one a file."""

from headrace.ops.attention.backend import AttentionBackend, LayerKv
from headrace.ops.attention.metadata import AttentionMetadata

__all__ = ["AttentionBackend", "AttentionMetadata", "LayerKv"]
