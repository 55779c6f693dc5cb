"""What docs/simulation.md says is what the simulation has: every fault, every rule, every command."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner

from gripfast_lab.sim.__main__ import main
from gripfast_lab.sim.checks import RULES
from gripfast_lab.sim.faults import KINDS
from support.pages import page

PAGE = page("simulation")


def faults(row: str) -> list[str]:
    found = re.search(rf"^\| {re.escape(row)} \| (.*) \|$", PAGE, re.MULTILINE)
    assert found is not None
    return found[1].split(", ")


def test_every_fault_is_told_and_no_other() -> None:
    told = [kind for row in ("network", "server", "client", "operator") for kind in faults(row)]
    assert sorted(told) == sorted(kind for kind in KINDS if not KINDS[kind].is_declared)


def test_every_declared_fault_is_told_as_one() -> None:
    assert sorted(faults("*declared*")) == sorted(kind for kind in KINDS if KINDS[kind].is_declared)


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_is_told_in_its_own_words(rule: str) -> None:
    assert f"| {rule} | {RULES[rule]} |" in PAGE


@pytest.mark.parametrize("line", re.findall(r"^python -m gripfast_lab\.sim (.*?)(?: {2,}#.*)?$", PAGE, re.MULTILINE))
def test_the_command_line_knows_what_the_page_shows(line: str) -> None:
    options = set(re.findall(r"--[a-z-]+", line))
    assert options
    assert options <= set(re.findall(r"--[a-z-]+", CliRunner().invoke(main, ["--help"]).output))
