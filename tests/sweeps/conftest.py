"""Each sweep reports its points; the end of the run adds them up, or lists them where every point was asked for."""

from collections.abc import Callable
from itertools import groupby

import pytest

from support.sweeping import FULL, Report, Swept

_swept = pytest.StashKey[dict[tuple[str, str], Swept]]()


@pytest.fixture
def report(request: pytest.FixtureRequest, record_property: Callable[[str, object], None]) -> Report:
    def note(swept: Swept) -> None:
        request.config.stash.setdefault(_swept, {})[request.path.stem, request.node.callspec.id] = swept
        record_property("swept", str(swept))
        if swept.findings:
            pytest.fail(swept.explain(), pytrace=False)

    return note


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    everything = config.stash.get(_swept, {})
    if not everything:
        return
    terminalreporter.section("points swept")
    for file, entries in groupby(everything.items(), key=lambda entry: entry[0][0]):
        sweeps = {scenario: swept for (_, scenario), swept in entries}
        if FULL or config.get_verbosity() > 0:
            for scenario, swept in sweeps.items():
                terminalreporter.write_line(f"{file} {scenario}: {swept}")
        broken, total = (sum(getattr(each, part) for each in sweeps.values()) for part in ("broken", "total"))
        terminalreporter.write_line(f"{file}: {len(sweeps)} scenarios, {broken} points broken of {total}")
