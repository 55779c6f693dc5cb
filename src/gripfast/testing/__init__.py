"""For tests, with pytest or without: of programs that lock, and of stores.

*Programs that lock.* A `World` is a store in memory, with others who hold locks, outages, losses and a clock that can
be moved. With pytest it is the fixture `gripfast_world`; see docs/testing.md.

world           what happens around the code under test
clock           a clock that can be moved, and what follows it
moments         who waits for which moment
store           the store of a World
leaks           locks that a test has left held
once            `once_per_run`: a set-up that all workers of a test run share
pytest_plugin   the fixtures; pytest loads it by itself

*Stores*, for whoever writes one. A package with a store has one file of tests, which says where an empty lock space is:

    import pytest
    from gripfast.testing.conformance import *

    @pytest.fixture
    def url(tmp_path):
        return f"files://{tmp_path}"

pytest then runs every test of Gripfast's own stores over it, sync and async. What the store can't do it says in its
Capabilities: those tests are skipped, and no others.

conformance   the suite
fixtures      `world`, `threads`, `tasks`: what a test asks for; `needs` and `unless`: what a store must be able to do
plugin        runs tests that are `async def`
colours       actors: one test body for sync and async
observing     an observer that keeps what it is told
waiting       waits for a condition
waiters       who waits for a lock, also where the store does not count them
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gripfast.testing.clock import Clock
    from gripfast.testing.once import OncePerRun
    from gripfast.testing.world import Held, World

__all__ = ["Clock", "Held", "OncePerRun", "World"]

_LATER = {"Clock": "clock", "Held": "world", "OncePerRun": "once", "World": "world"}
"""What is loaded when it is first used, and from where: pytest imports this package in every run."""

if "pytest" in sys.modules:  # a World needs none
    sys.modules["pytest"].register_assert_rewrite("gripfast.testing.conformance")

if not TYPE_CHECKING:  # a type checker would take every name that is not there for one of these

    def __getattr__(name: str) -> object:
        if name not in _LATER:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
