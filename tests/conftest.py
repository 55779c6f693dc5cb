"""Every test runs as a user of its own: no $HOLDFAST_URL of the developer's, no lock database in the real home."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home directory for this test alone, for the test and for the processes it starts."""
    path = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(path))
    for name in ("HOLDFAST_URL", "HOLDFAST_REQUIRE_URL", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    return path


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """The URL of a lock database that does not exist yet."""
    return f"sqlite:///{tmp_path / 'locks.db'}"
