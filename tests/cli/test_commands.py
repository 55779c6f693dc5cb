"""Commands that other packages add, and the one that is known although its package is not installed."""

import importlib.metadata
import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint, EntryPoints
from types import ModuleType

import click
import pytest

from cli.commandline import Call
from gripfast.cli.commands import GROUP

Install = Callable[..., None]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Nothing is installed but these: `greet="greeting:greet"`."""

    def install(**commands: str) -> None:
        there = EntryPoints(EntryPoint(name, value, GROUP) for name, value in commands.items())
        monkeypatch.setattr(importlib.metadata, "entry_points", lambda **which: there.select(**which))

    return install


@pytest.fixture
def greeting(monkeypatch: pytest.MonkeyPatch) -> str:
    """A module of another package, with a command in it."""

    @click.command(short_help="Say hello.")
    @click.argument("name")
    def greet(name: str) -> int:
        click.echo(f"hello {name}")
        return 3

    module = ModuleType("greeting")
    module.greet = greet  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "greeting", module)
    return "greeting:greet"


def test_the_command_of_another_package_is_called(install: Install, greeting: str, call: Call) -> None:
    install(greet=greeting)
    assert call("greet", "you") == (3, "hello you\n", "")
    assert "  greet       Say hello.\n" in call("--help").stdout


def test_our_own_commands_can_t_be_replaced(install: Install, greeting: str, call: Call) -> None:
    install(ls=greeting)
    assert "hello" not in call("ls", "--help").stdout
    assert call("--help").stdout.count("\n  ls ") == 1


def test_a_command_that_can_t_be_loaded_is_told_and_the_help_stays(install: Install, call: Call) -> None:
    install(greet="nowhere.to.be.found:greet")
    ended = call("greet", "--loudly")
    assert (ended.returncode, ended.stdout) == (64, "")
    assert "nowhere.to.be.found:greet can't be loaded, ModuleNotFoundError" in ended.stderr
    assert call("--help").returncode == 0


def test_what_is_no_command_is_told_and_the_help_stays(install: Install, call: Call) -> None:
    install(greet="os.path:join")
    assert "os.path:join is not a click.Command" in call("greet").stderr
    assert call("--help").returncode == 0


@pytest.mark.parametrize("args", [[], ["--help"], ["show", "failover"], ["seed", "1", "--svg", "-"]], ids=" ".join)
def test_without_the_lab_the_line_that_installs_it_is_told(args: list[str], install: Install, call: Call) -> None:
    install()
    ended = call("lab", *args)
    assert (ended.returncode, ended.stdout) == (64, "")
    assert ended.stderr.count("\n") == 1
    assert (
        "in a clone of Gripfast run pip install . ./lab (once it is published: pip install gripfast-lab)"
        in ended.stderr
    )


def test_without_the_lab_the_help_does_not_name_it(install: Install, call: Call) -> None:
    install()
    assert "\n  lab " not in call("--help").stdout


def test_without_the_lab_nothing_is_completed_and_nobody_is_disturbed(
    install: Install, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    install()
    typed = "gripfast lab show fail"
    for name, value in (("_GRIPFAST_COMPLETE", "bash_complete"), ("COMP_LINE", typed), ("COMP_POINT", str(len(typed)))):
        monkeypatch.setenv(name, value)
    assert call() == (0, "\n", "")


def test_a_command_that_nobody_has_is_wrong_usage(install: Install, call: Call) -> None:
    install()
    assert call("greet").returncode == 64


@pytest.mark.usefixtures("url")
def test_for_our_own_commands_nobody_looks_at_what_is_installed(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def looked(**which: str) -> None:
        raise AssertionError(which)

    monkeypatch.setattr(importlib.metadata, "entry_points", looked)
    assert call("ls").returncode == 0
