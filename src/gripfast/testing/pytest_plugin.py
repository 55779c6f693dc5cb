"""The fixtures for programs that lock. pytest finds it by an entry point, so every test run on the machine imports it:
it loads nothing of Gripfast before a test asks for a fixture."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import gripfast
    from gripfast.testing.clock import Clock
    from gripfast.testing.once import OncePerRun
    from gripfast.testing.world import World

_ONCE = pytest.StashKey["OncePerRun"]()


@pytest.fixture
def gripfast_world() -> Iterator[World]:
    """A store in memory for this test, and what happens to it: outages, losses, others who hold locks, a clock.
    `gripfast.lock()` and `gripfast.connect()` use it. The test fails if it leaves a lock held."""
    from gripfast.testing.world import World

    with World() as world:
        yield world


@pytest.fixture
def gripfast_client(gripfast_world: World) -> gripfast.Client:
    """A client for threads, in the `gripfast_world` of this test."""
    return gripfast_world.client


@pytest.fixture
def gripfast_async_client(gripfast_world: World) -> gripfast.AsyncClient:
    """A client for tasks, in the `gripfast_world` of this test."""
    return gripfast_world.async_client


@pytest.fixture
def gripfast_clock(gripfast_world: World) -> Clock:
    """The clock of the `gripfast_world` of this test."""
    return gripfast_world.clock


@pytest.fixture(scope="session")
def once_per_run(request: pytest.FixtureRequest) -> OncePerRun:
    """`once_per_run(name, make, cleanup=…)`: one worker of the test run makes something, all of them get the result.
    Works with and without pytest-xdist."""
    return _once(request.config)


def pytest_collection_finish(session: pytest.Session) -> None:
    """A worker counts from here on, not from its first use: until then others must not clean up."""
    if any(_uses_once(item) for item in session.items) and not session.config.option.collectonly:
        _once(session.config)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Behind the teardown of all fixtures."""
    once = session.config.stash.get(_ONCE, None)
    if once is not None:
        once.close()


def _uses_once(item: pytest.Item) -> bool:
    """Ours, not a fixture of the same name that somebody else has."""
    known = getattr(getattr(item, "_fixtureinfo", None), "name2fixturedefs", {}).get("once_per_run", ())
    return any(each.func.__module__ == __name__ for each in known[-1:])


def _once(config: pytest.Config) -> OncePerRun:
    if _ONCE not in config.stash:
        from gripfast.testing.once import OncePerRun

        config.stash[_ONCE] = OncePerRun(*_folder_and_worker(config))
    return config.stash[_ONCE]


def _folder_and_worker(config: pytest.Config) -> tuple[str, str]:
    """All workers of a run have the same parent of their folder, and the same id of the run."""
    base = config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined] # the fixture is there for tests only
    worker: dict[str, str] | None = getattr(config, "workerinput", None)
    if worker is None:
        return str(base / "gripfast-once"), "main"
    return str(base.parent / f"gripfast-once-{worker['testrunuid']}"), worker["workerid"]
