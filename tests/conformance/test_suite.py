"""The suite is one: what runs here over Gripfast's stores is what a package with a store of its own runs."""

import inspect
from pathlib import Path

from gripfast.stores import specs
from gripfast.testing import conformance
from support.stores import STORES

HERE = Path(__file__).parent
OWN = {Path(__file__).name, "test_misbehaving_observers.py"}
SHIPPED = Path(conformance.__file__).parent


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("test_*.py")}


def test_every_file_of_the_suite_runs_here() -> None:
    assert files(HERE) - OWN == files(SHIPPED)


def test_the_suite_has_every_test_of_its_files() -> None:
    for file in files(SHIPPED):
        module = vars(conformance)[file.removesuffix(".py")]
        tests = {name: test for name, test in vars(module).items() if inspect.isfunction(test) and name[:5] == "test_"}
        assert tests
        assert tests.items() <= vars(conformance).items()


def test_every_engine_has_a_lock_space() -> None:
    """By the names of their folders; one that has several modes has one for each."""
    assert {store.name.partition("-")[0] for store in STORES} == {spec.name for spec in specs() if spec.schemes}
