"""A folder of tests that takes too long is noticed, and a busy machine is not."""

import pytest

from support.budget import Budget

SECONDS = {"cli": 100.0, "core": 40.0, "stores": 600.0}


def after(**spent: float) -> Budget:
    budget = Budget(SECONDS)
    for name, seconds in spent.items():
        report = pytest.TestReport(
            f"tests/{name}/test_it.py::test_it", ("", None, ""), {}, "passed", None, "call", duration=seconds
        )
        budget.pytest_runtest_logreport(report)
    return budget


def test_a_folder_that_takes_too_long_is_noticed() -> None:
    assert after(cli=101, core=20, stores=300).exceeded() == ["cli"]
    assert after(cli=99, core=20, stores=300).exceeded() == []
    assert after(cli=101).exceeded() == ["cli"]
    assert after(new=1).exceeded() == ["new"]


def test_a_machine_on_which_everything_takes_longer_is_none() -> None:
    assert after(cli=130, core=40, stores=560).exceeded() == []
    assert after(cli=200, core=40, stores=560).exceeded() == ["cli"]
