"""The site that `make docs` builds: its menu, its version, its copy buttons, and what its search finds."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

import gripfast
from serve.browser import browser
from support.pages import PAGES, ROOT

PATIENCE = 60_000
"""Milliseconds, for a browser on a busy machine."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as `make docs` builds it: a warning fails."""
    folder = tmp_path_factory.mktemp("site")
    words = ["-m", "sphinx", "-q", "-W", "--keep-going", "-E", "-d", str(folder / "read"), "docs", str(folder / "html")]
    built = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, timeout=170)
    assert built.returncode == 0, built.stderr
    return folder / "html"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as running:
        yield running


def test_the_menu_has_every_page_and_the_version_is_shown(site: Path) -> None:
    text = (site / "index.html").read_text(encoding="utf-8")
    menu = text.partition('class="sidebar-tree"')[2].partition("</aside>")[0]
    chinese = {f"zh/{path.stem}" for path in (ROOT / "docs" / "zh").glob("*.md")}
    assert set(re.findall(r'href="([\w/-]+)\.html"', menu)) == (set(PAGES) | chinese) - {"index"}
    assert f"Gripfast {gripfast.__version__}" in text


@pytest.mark.parametrize(
    ("words", "page"),
    [
        ("recipe", "Recipes"),
        ("cron", "Recipes"),
        ("kubernetes", "Recipes"),
        ("cache stampede", "Recipes"),
        ("semaphore", "More than a lock"),
        ("blocking_timeout", "Coming from another library"),
        ("filelock", "Coming from another library"),
    ],
)
def test_the_search_finds(words: str, page: str, site: Path, chromium: Browser) -> None:
    visit = chromium.new_page()
    visit.goto(f"{(site / 'search.html').as_uri()}?q={words.replace(' ', '+')}")
    expect(visit.locator("#search-results li a", has_text=page).first).to_be_visible(timeout=PATIENCE)
    visit.close()


def test_programs_and_commands_can_be_copied_and_what_they_print_can_not(site: Path, chromium: Browser) -> None:
    visit = chromium.new_page()
    visit.goto((site / "tutorial.html").as_uri())
    buttons = visit.locator(".copybtn")
    expect(buttons.first).to_be_attached(timeout=PATIENCE)
    assert visit.locator("div.highlight-python .copybtn").count() == visit.locator("div.highlight-python").count()
    assert visit.locator("div.highlight-console .copybtn").count() == visit.locator("div.highlight-console").count()
    assert visit.locator("div.highlight-text .copybtn").count() == 0
    visit.close()
