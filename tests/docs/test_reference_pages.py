"""docs/api.md, docs/cli.md and docs/doctor.md are what scripts/reference.py writes now, and leave nothing out."""

import inspect
import re
from dataclasses import is_dataclass
from types import FunctionType, MemberDescriptorType
from typing import get_args, is_typeddict

import click
import pytest

import gripfast
from gripfast.cli.app import cli
from gripfast.errors import Reason
from scripts.reference import FURTHER, pages
from support.pages import page


def as_every_click_has_it(text: str) -> str:
    """Which brackets stand in a line of usage differs between versions of click."""
    return re.sub(r"^Usage:.*$", lambda line: re.sub(r"[][]", "", line[0]), text, flags=re.MULTILINE)


@pytest.mark.parametrize("name", ["api", "cli", "doctor"])
def test_the_page_is_what_the_code_says(name: str) -> None:
    generated = pages()[f"{name}.md"]
    assert as_every_click_has_it(page(name)) == as_every_click_has_it(generated), "run: make docs"


@pytest.mark.parametrize("name", [name for name in gripfast.__all__ if not name.startswith("_")])
def test_every_public_name_has_a_heading(name: str) -> None:
    assert f"\n## {name}\n" in page("api")


def what_it_has(kind: type) -> set[str]:
    """Methods, properties, slots, fields, also those of a TypedDict's bases, and what `__init__` sets."""
    names = set(kind.__annotations__) if is_typeddict(kind) else set()
    for base in (base for base in kind.__mro__ if base.__module__.startswith("gripfast.")):
        told = (FunctionType, property, MemberDescriptorType)
        names |= {name for name, value in vars(base).items() if isinstance(value, told)} | set(base.__annotations__)
        made = vars(base).get("__init__")
        if isinstance(made, FunctionType) and not is_dataclass(base):  # whose fields are annotations
            names |= set(re.findall(r"^ +self\.(\w+)(?:: .*)? = ", inspect.getsource(made), re.MULTILINE))
    return {name for name in names if not name.startswith("_")}


@pytest.mark.parametrize("name", [name for name in gripfast.__all__ if inspect.isclass(getattr(gripfast, name))])
def test_every_public_thing_of_a_class_is_told(name: str) -> None:
    section = page("api").partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    told = {
        each for each in what_it_has(getattr(gripfast, name)) if re.search(rf"- `{each}: |{name}\.{each}\(", section)
    }
    assert what_it_has(getattr(gripfast, name)) == told


def test_the_test_sees_what_was_left_out_once() -> None:
    assert {"ttl", "wait", "reentrant"} <= what_it_has(gripfast.LockKwargs)
    assert {"holder", "done"} <= what_it_has(gripfast.Run)
    assert {"waited", "holder"} <= what_it_has(gripfast.LockTimeout)


@pytest.mark.parametrize("module", FURTHER)
def test_every_public_module_has_a_heading(module: str) -> None:
    assert f"\n## {module}\n" in page("api")


@pytest.mark.parametrize("reason", get_args(Reason))
def test_every_reason_of_a_loss_is_told(reason: str) -> None:
    assert f"- `{reason}`: " in page("api")


@pytest.mark.parametrize("command", cli.list_commands(click.Context(cli)))
def test_every_command_has_a_heading(command: str) -> None:
    assert f"\n## gripfast {command}\n" in page("cli")


def test_parameters_are_told_by_name_and_type() -> None:
    assert "\n    max_hold: float | None = None,\n" in page("api")
    assert "Lease.ensure_held() -> None\n" in page("api")
