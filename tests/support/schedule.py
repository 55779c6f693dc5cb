"""In which order several workers run the tests: what takes long comes first, so that none is left alone with it."""

from typing import Any

import pytest

LONG = ("sweeps", "processes", "stores", "chaos", "fencing", "cli", "traps", "interop", "compat", "conformance", "docs")
"""Folders whose files take long, longest first; other files follow."""
IN_PARTS = "tests/sweeps/"
"""Files whose tests may run anywhere; those of other files share servers, so a worker takes the whole file."""


def sort_by_length(items: list[pytest.Item]) -> None:
    places = {folder: place for place, folder in enumerate(LONG)}
    items.sort(key=lambda item: places.get(item.path.parent.name, len(LONG)))


def scheduler(config: pytest.Config, log: Any) -> Any:
    from xdist.scheduler import LoadFileScheduling

    class InOrder(LoadFileScheduling):  # type: ignore[misc, unused-ignore]
        def _split_scope(self, nodeid: str) -> str:
            return nodeid if nodeid.startswith(IN_PARTS) else str(super()._split_scope(nodeid))

    config.option.loadscopereorder = False  # by the number of tests, which are not of one length
    return InOrder(config, log)
