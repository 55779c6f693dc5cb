"""Each sweep reports its points; the end of the run lists them, so that "every point" can be read off."""

from collections.abc import Callable

import pytest

from support.sweeping import Report, Swept

_swept = pytest.StashKey[dict[str, str]]()


@pytest.fixture
def report(request: pytest.FixtureRequest, record_property: Callable[[str, object], None]) -> Report:
    def note(swept: Swept) -> None:
        lines = request.config.stash.setdefault(_swept, {})
        lines[f"{request.path.stem}[{request.node.callspec.id}]"] = str(swept)
        record_property("swept", str(swept))
        if swept.findings:
            pytest.fail(swept.explain(), pytrace=False)

    return note


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    lines = config.stash.get(_swept, {})
    if not lines:
        return
    terminalreporter.section("points swept")
    width = max(map(len, lines))
    for name, line in lines.items():
        terminalreporter.write_line(f"{name:<{width}}  {line}")
