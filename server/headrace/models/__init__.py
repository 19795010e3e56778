"""Decoders, one folder a family, and how a model document becomes one."""

from headrace.models.causal_model import CausalModel, StepBatch
from headrace.models.config import ModelConfig
from headrace.models.loader import load_model

__all__ = ["CausalModel", "ModelConfig", "StepBatch", "load_model"]
