"""What threads share is copied at one stroke before it is looked through.

`list(shared.items())` makes a tuple for each item. So the garbage collector may run in the middle of it, and with it
whatever else may run meanwhile: "dictionary changed size during iteration". `shared.copy()` makes nothing on its way.
`tests/quality/test_shared_collections.py` looks for such copies.
"""

import gc
import itertools
from collections.abc import Iterator

import pytest

from gripfast.core.ports import Claim
from gripfast.stores.granting import Row
from gripfast.stores.memory.engine import MemoryEngine


@pytest.fixture
def engine() -> Iterator[MemoryEngine]:
    """There is another row whenever the collector runs, and it runs all the time."""
    engine, number = MemoryEngine(), itertools.count()

    def another(phase: str, info: dict[str, int]) -> None:
        engine._rows[f"new {next(number)}"] = Row()

    for name in range(200):
        engine.claim(Claim(f"old {name}", "somebody", 30.0, None, None))
    before = gc.get_threshold()
    gc.callbacks.append(another)
    gc.set_threshold(20)
    try:
        yield engine
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(another)


def test_a_listing_goes_on_though_the_collector_lets_others_run(engine: MemoryEngine) -> None:
    for _ in range(50):
        assert len(engine.page("old", None).infos) > 0
