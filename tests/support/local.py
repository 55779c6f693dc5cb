"""`make test-local` runs where no server is installed: a test that needs one is skipped there, and nowhere else."""

import os

import pytest

LOCAL = "GRIPFAST_TESTS"
"""The variable of the environment that `make test-local` sets to `local`."""


def needs(program: str) -> None:
    """Call this before a server is started."""
    if os.environ.get(LOCAL) == "local":
        pytest.skip(f"needs {program}")
