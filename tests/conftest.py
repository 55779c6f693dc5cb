"""Every test runs as a user of its own: no $GRIPFAST_URL of the developer's, no lock database in the real home."""

import gc
from collections.abc import Generator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from support import budget, misbehaving, sample, schedule
from support.signals import pass_on_defaults

# A busy machine may take its time over one example, and over thinking it up.
PATIENT = hypothesis.settings(deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.register_profile("all", PATIENT)
hypothesis.settings.register_profile("sample", PATIENT, max_examples=30)


def pytest_configure(config: pytest.Config) -> None:
    """In each worker, and in the process that starts them."""
    pass_on_defaults()
    hypothesis.settings.load_profile("all" if sample.is_everything(config) else "sample")
    config.addinivalue_line("markers", "in_turn(of): `make test` takes one of so many of its parameters, in turn")
    budget.register(config)


def pytest_addoption(parser: pytest.Parser) -> None:
    sample.add_option(parser)
    misbehaving.add_option(parser)


def pytest_report_header(config: pytest.Config) -> str:
    return sample.describe(config)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not sample.is_everything(config):
        left_out = sample.left_out(items, int(config.getoption("sample")), sample.takes_turns(config))
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]
    schedule.sort_by_length(items)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Nothing of what is collected is garbage: to look for it again and again takes a quarter of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """What was collected stays. Without it, whoever has garbage collected in a test is done in a tenth of the time."""
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """In place of that of `--dist loadfile`; other ways are left as they are."""
    return schedule.scheduler(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home directory for this test alone, for the test and for the processes it starts."""
    path = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(path))
    for name in ("GRIPFAST_URL", "GRIPFAST_REQUIRE_URL", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    return path


@pytest.fixture(scope="session")
def is_sampled(pytestconfig: pytest.Config) -> bool:
    """Whether crowds may be small ones: in `make test`, unless it is to leave out nothing."""
    return not sample.is_everything(pytestconfig)


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """The URL of a lock database that does not exist yet."""
    return f"sqlite:///{tmp_path / 'locks.db'}"
