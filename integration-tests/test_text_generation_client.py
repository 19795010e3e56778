"""TGI's own Python client needs huggingface_hub below 1: it runs in an environment of its own."""

from __future__ import annotations

import pytest
from clients import families
from conftest import Server


@pytest.mark.timeout(900)
def test_text_generation(server: Server) -> None:
    result = families.run(families.FAMILIES["text-generation"], server.url)
    assert result.versions["text-generation"] == "0.7.0"
    assert result.failed == {}, result.log[-4000:]
    assert len(result.passed) >= 13
