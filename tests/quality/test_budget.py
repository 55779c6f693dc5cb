"""A folder of tests that takes too long is noticed, and a busy machine is not."""

import time
from types import SimpleNamespace
from typing import Any

import pytest

from support.budget import COMPUTED, Budget, Processor, spent

SECONDS = {"cli": 100.0, "core": 40.0, "stores": 600.0}


def after(**folders: float) -> Budget:
    budget = Budget(SECONDS)
    for name, seconds in folders.items():
        budget.pytest_runtest_logreport(report_of(name, seconds))
    return budget


def report_of(name: str, seconds: float, when: Any = "call", properties: Any = None) -> pytest.TestReport:
    place = f"tests/{name}/test_it.py::test_it", ("", None, "")
    return pytest.TestReport(*place, {}, "passed", None, when, duration=seconds, user_properties=properties)


def test_a_folder_that_takes_too_long_is_noticed() -> None:
    assert after(cli=101, core=20, stores=300).exceeded() == ["cli"]
    assert after(cli=99, core=20, stores=300).exceeded() == []
    assert after(cli=101).exceeded() == ["cli"]
    assert after(new=1).exceeded() == ["new"]


def test_a_machine_on_which_everything_takes_longer_is_none() -> None:
    assert after(cli=130, core=40, stores=560).exceeded() == []
    assert after(cli=200, core=40, stores=560).exceeded() == ["cli"]


def test_of_tests_that_only_compute_the_seconds_are_those_of_the_processor() -> None:
    """However long they waited for it."""
    budget = Budget({"sim": 10.0})
    properties = [(COMPUTED, 6.0)]
    for when in ("setup", "call", "teardown"):
        budget.pytest_runtest_logreport(report_of("sim", 100.0, when, properties))
    assert budget.exceeded() == []
    budget.pytest_runtest_logreport(report_of("sim", 1.0, "call", properties))
    assert budget.exceeded() == ["sim"]


def test_they_are_measured() -> None:
    assert spent(report_of("sim", 1.0, "call", [])) == 0.0
    item = SimpleNamespace(nodeid="tests/sim/test_it.py::test_it", user_properties=[])
    call = Processor().pytest_runtest_call(item)  # type: ignore[arg-type]
    next(call)
    began = time.process_time()
    while time.process_time() < began + 0.01:
        pass
    with pytest.raises(StopIteration):
        next(call)
    assert spent(report_of("sim", 0.0, "call", item.user_properties)) >= 0.01
