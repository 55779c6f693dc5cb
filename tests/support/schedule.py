"""In which order several workers run the tests: what takes long comes first, so that none is left alone with it."""

from typing import Any

import pytest

LONG = (
    "tests/sim/test_seeds",
    "tests/sim/test_redlock_seeds",
    "tests/sim/test_fence",
    "tests/sim/test_redis_lua",
    "tests/sweeps/",
    "tests/processes/",
    "tests/chaos/",
    "tests/quality/test_bench",
    "tests/stores/",
    "tests/fencing/",
    "tests/api/",
    "tests/cli/",
    "tests/quality/test_s",
    "tests/regressions/",
    "tests/traps/",
    "tests/interop/",
    "tests/compat/",
    "tests/conformance/",
    "tests/docs/",
)
"""What takes long, or has files that do, longest first; the rest follows."""
IN_PARTS = ("tests/sweeps/", "tests/sim/test_fence", "tests/sim/test_mutants_of", "tests/sim/test_small")
"""Files whose tests may run anywhere; those of other files share something, so a worker takes the whole file."""


BUSY = "tests/chaos/"
"""Files each of which has work for all cores: side by side they would keep each other from being in time."""
APART = 2
"""So many other files come between two of them."""


def sort_by_length(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: next((at for at, start in enumerate(LONG) if item.nodeid.startswith(start)), len(LONG)))
    files = list(dict.fromkeys(map(_file, items)))
    calm = [file for file in files if not file.startswith(BUSY)]
    busy = [file for file in files if file.startswith(BUSY)]
    places = {file: float(place) for place, file in enumerate(calm)}
    first = files.index(busy[0]) if busy else 0
    places |= {file: first + number * APART - 0.5 for number, file in enumerate(busy)}
    items.sort(key=lambda item: places[_file(item)])


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def scheduler(config: pytest.Config, log: Any) -> Any:
    from xdist.scheduler import LoadFileScheduling

    class InOrder(LoadFileScheduling):  # type: ignore[misc, unused-ignore]
        def _split_scope(self, nodeid: str) -> str:
            return nodeid if nodeid.startswith(IN_PARTS) else str(super()._split_scope(nodeid))

    config.option.loadscopereorder = False  # by the number of tests, which are not of one length
    return InOrder(config, log)
