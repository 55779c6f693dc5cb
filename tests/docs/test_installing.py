"""Gripfast is installed from a clone until it is published: every page has a line that works today."""

import re
import tomllib
from pathlib import Path

import pytest

from gripfast.cli.commands import NOT_HERE
from gripfast.extras import how_to_install
from gripfast.stores import specs
from support.pages import ROOT

HEAD_OF_THE_LAB = ROOT / "lab" / "src" / "gripfast_lab" / "page_head.md"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "lab" / "README.md", HEAD_OF_THE_LAB]
FROM_AN_INDEX = re.compile(r"pip install '?gripfast(-lab|\[\w+\])?")
OFFERED = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]


def misleading(text: str) -> list[str]:
    """Paragraphs that would have a reader install whatever has that name on an index, without a way from a clone."""
    paragraphs = [part for part in re.split(r"\n\s*\n", text) if FROM_AN_INDEX.search(part)]
    return [part for part in paragraphs if not re.search(r"pip install '?\.", part) or "published" not in part]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_page_tells_how_to_install_from_a_clone(path: Path) -> None:
    assert misleading(path.read_text(encoding="utf-8")) == []


def test_a_planted_line_for_an_index_alone_is_found() -> None:
    assert misleading("first\n\npip install 'gripfast[redis]'\n") == ["pip install 'gripfast[redis]'\n"]
    assert misleading("pip install '.[redis]'  # once published: pip install 'gripfast[redis]'") == []


def test_the_readme_says_that_it_is_not_published() -> None:
    start = PAGES[0].read_text(encoding="utf-8").partition("## Start")[2].partition("```")[0]
    assert "not on PyPI yet" in start
    assert "from a clone" in start


@pytest.mark.parametrize("extra", sorted({spec.extra for spec in specs() if spec.extra}))
def test_what_an_error_advises_is_an_extra_that_exists(extra: str) -> None:
    assert extra in OFFERED
    assert misleading(f"published: {how_to_install(extra)}") == []


@pytest.mark.parametrize("command", NOT_HERE)
def test_what_is_said_of_a_command_that_is_not_here_helps_in_a_clone_too(command: str) -> None:
    assert misleading(f"published: {NOT_HERE[command]}") == []
    assert FROM_AN_INDEX.search(NOT_HERE[command])
