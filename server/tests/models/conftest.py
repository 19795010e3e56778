import os

import pytest
import torch
from headrace.ops.select import select_op_set


@pytest.fixture(scope="session")
def ops():
    """The op set that serves on this machine; HEADRACE_TEST_OPS=torch takes the oracle instead."""
    return select_op_set("cpu", torch.float32, os.environ.get("HEADRACE_TEST_OPS", "auto"))
