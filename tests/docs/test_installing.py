"""Gripfast is installed from a clone until it is published: every page has a line that works today."""

import re
import tomllib
from pathlib import Path

import pytest

from gripfast.extras import how_to_install
from gripfast.stores import EXTRAS
from support.pages import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "src/gripfast/lab/page_head.md"]
FROM_AN_INDEX = re.compile(r"pip install '?gripfast(\[\w+\])?")
OFFERED = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]


def misleading(text: str) -> list[str]:
    """Paragraphs that would have a reader install whatever has that name on an index, without a way from a clone."""
    paragraphs = [part for part in re.split(r"\n\s*\n", text) if FROM_AN_INDEX.search(part)]
    return [part for part in paragraphs if not re.search(r"pip install '?\.", part) or "published" not in part]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_page_tells_how_to_install_from_a_clone(path: Path) -> None:
    assert misleading(path.read_text(encoding="utf-8")) == []


def test_a_planted_line_for_an_index_alone_is_found() -> None:
    assert misleading("first\n\npip install 'gripfast[redis]'\n") == ["pip install 'gripfast[redis]'\n"]
    assert misleading("pip install '.[sim]'  # once published: pip install 'gripfast[sim]'") == []


def test_the_readme_says_that_it_is_not_published() -> None:
    start = PAGES[0].read_text(encoding="utf-8").partition("## Start")[2].partition("```")[0]
    assert "not on PyPI yet" in start
    assert "from a clone" in start


@pytest.mark.parametrize("extra", sorted({*EXTRAS.values(), "sim"}))
def test_what_an_error_advises_is_an_extra_that_exists(extra: str) -> None:
    assert extra in OFFERED
    assert misleading(f"published: {how_to_install(extra)}") == []
