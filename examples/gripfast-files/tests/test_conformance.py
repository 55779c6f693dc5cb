"""Gripfast's own suite, over this store."""

from pathlib import Path

import pytest

from gripfast.testing.conformance import *


@pytest.fixture
def url(tmp_path: Path) -> str:
    """The URL of an empty lock space."""
    return f"files://{tmp_path}/locks"
