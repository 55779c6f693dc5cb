"""Tests wait for a condition, they do not sleep and hope. `gripfast/testing/waiting.py` is the one place that polls."""

import ast
from collections.abc import Iterator

import pytest

from quality.tree import ROOT, broken, parsed, python_files

THE_ONE_PLACE = ROOT / "src" / "gripfast" / "testing" / "waiting.py"
SLEEPS = {"time.sleep", "asyncio.sleep"}


def sleeps(tree: ast.Module) -> list[str]:
    """The calls of this module that sleep; `asyncio.sleep(0)`, which only gives way, is none."""
    names = dict(_imported(tree))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [f"line {call.lineno}: {_called(call, names)}" for call in calls if _sleeps(call, names)]


def _imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Local name → what it stands for, so that an alias hides nothing."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.asname or alias.name, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names)


def _called(call: ast.Call, names: dict[str, str]) -> str:
    match call.func:
        case ast.Name(id=name):
            return names.get(name, name)
        case ast.Attribute(value=ast.Name(id=module), attr=name):
            return f"{names.get(module, module)}.{name}"
    return ""


def _sleeps(call: ast.Call, names: dict[str, str]) -> bool:
    called = _called(call, names)
    gives_way = called == "asyncio.sleep" and ast.unparse(call).endswith("(0)")
    return called in SLEEPS and not gives_way


def test_no_test_sleeps() -> None:
    checked = [path for path in python_files("tests", "src/gripfast/testing") if path != THE_ONE_PLACE]
    assert checked
    assert broken(checked, lambda path: sleeps(parsed(path))) == []


@pytest.mark.parametrize(
    "source",
    [
        "import time\ntime.sleep(0.1)",
        "import time as t\nt.sleep(0)",
        "from time import sleep\nsleep(1)",
        "from time import sleep as rest\nrest(1)",
        "import asyncio\nasync def f():\n    await asyncio.sleep(0.01)",
        "import asyncio\nasync def f(pause):\n    await asyncio.sleep(pause)",
        "from asyncio import sleep\nasync def f():\n    await sleep(10)",
    ],
)
def test_a_planted_sleep_is_found(source: str) -> None:
    assert len(sleeps(ast.parse(source))) == 1


def test_giving_way_to_the_loop_is_no_sleep() -> None:
    assert sleeps(ast.parse("import asyncio\nasync def f():\n    await asyncio.sleep(0)")) == []


def test_the_one_place_that_polls_would_be_found_too() -> None:
    assert len(sleeps(parsed(THE_ONE_PLACE))) == 2
