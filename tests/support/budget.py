"""Each folder of tests has a budget of seconds, `tests/budget.toml`: a run that exceeds it fails and tells where.

Seconds are those of the tests added up, whichever worker ran them. On a machine that is slow or busy all folders take
longer: each may take as much longer as the others together do, beyond the half of their budgets that they take on a
quiet one. Of tests that only compute, which are run when the cores have nothing else to do (COMPUTING), the seconds are
those of the processor. A run of every combination has no budget.
"""

import time
import tomllib
from collections import Counter
from collections.abc import Generator
from pathlib import Path

import pytest

from support.sample import is_everything

FILE = Path(__file__).parents[1] / "budget.toml"
SLOWEST = 5
COMPUTING = "tests/sim/"
COMPUTED = "seconds of the processor"


class Budget:
    def __init__(self, seconds: dict[str, float]) -> None:
        self._seconds = seconds
        self._spent: Counter[str] = Counter()
        self._files: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        seconds = spent(report)
        self._spent[folder(report.nodeid)] += seconds  # type: ignore[assignment]
        self._files[report.nodeid.partition("::")[0]] += seconds  # type: ignore[assignment]

    def exceeded(self) -> list[str]:
        return sorted(name for name, spent in self._spent.items() if spent > self._allowed(name))

    def _allowed(self, name: str) -> float:
        others = self._spent.keys() - {name}
        expected = sum(self._seconds.get(other, 0) for other in others) / 2
        slower = sum(self._spent[other] for other in others) / expected if expected else 1.0
        return self._seconds.get(name, 0) * max(1.0, slower)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if exitstatus == pytest.ExitCode.OK and self.exceeded():
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("seconds of tests, and their budget")
        parts = [f"{name} {spent:.0f}/{self._seconds.get(name, 0):.0f}" for name, spent in self._spent.most_common()]
        terminalreporter.write_line(", ".join(parts))
        for name in self.exceeded():
            terminalreporter.write_line(f"{name} is over its budget of {FILE.name}:", red=True)
            slow = [each for each in self._files.most_common() if folder(each[0]) == name]
            for file, spent in slow[:SLOWEST]:
                terminalreporter.write_line(f"  {spent:.0f} s {file}", red=True)


class Processor:
    """In each worker: how long the processor was at a test that only computes stands in its report."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        began = time.process_time()
        try:
            return (yield)
        finally:
            if item.nodeid.startswith(COMPUTING):
                item.user_properties.append((COMPUTED, time.process_time() - began))


def spent(report: pytest.TestReport) -> float:
    if not report.nodeid.startswith(COMPUTING):
        return report.duration
    computed = (value for name, value in report.user_properties if name == COMPUTED and isinstance(value, float))
    return sum(computed) if report.when == "call" else 0.0


def folder(nodeid: str) -> str:
    """`tests/cli/test_run.py::test_it` → cli."""
    parts = Path(nodeid.partition("::")[0]).parts
    return parts[1] if len(parts) > 2 else parts[0]


def register(config: pytest.Config) -> None:
    """In the process that collects the results; the workers of pytest-xdist only run tests."""
    config.pluginmanager.register(Processor())
    if not hasattr(config, "workerinput") and not is_everything(config):
        config.pluginmanager.register(Budget(tomllib.loads(FILE.read_text(encoding="utf-8"))["seconds"]))
