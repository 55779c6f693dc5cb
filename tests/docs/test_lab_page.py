"""docs/lab.md and its pictures are what the search finds now; of Gripfast's own part, what is quick to search again."""

import ast
import re
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from gripfast_lab import beside
from gripfast_lab import page as lab_page
from gripfast_lab.entries import ENTRIES
from gripfast_lab.entry import Entry
from gripfast_lab.own import OWN, RELATIVES, Own
from gripfast_lab.sim.explore import EXPLORATIONS, Report, explore
from support.pages import DOCS, blocks, is_as_told, page, run_typed

PAGE = page("lab")
OLD = "the lab has changed, run: make docs"
QUICK = ["queue", "fence-time"]
SHELL = [line.partition("  #")[0].strip() for block in blocks(PAGE, "sh") for line in block.splitlines()]
NOT_RUN = ["pip install . ./lab", "gripfast lab"]
"""The first changes the machine; the second takes two minutes, and is tested in parts."""


@cache
def written() -> dict[str, str]:
    """Page and pictures by name, without Gripfast's own part."""
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as folder:
        patch.setattr(lab_page, "OWN", ())
        return {path.name: path.read_text(encoding="utf-8") for path in lab_page.written(Path(folder))}


def own_heading(place: int) -> str:
    return f"\n## {len(ENTRIES) + 1 + place}. {OWN[place].title}\n"


def without_own_part(text: str) -> str:
    """What comes before it, and the last paragraph."""
    links = tuple(f"[{own.title}](" for own in OWN)
    before, _, after = text.partition(own_heading(0))
    rows = (line for line in before.splitlines(keepends=True) if not any(link in line for link in links))
    return "".join([*rows, "\n", after.splitlines(keepends=True)[-1]])


def test_the_page_tells_what_is_found_now() -> None:
    assert without_own_part(PAGE) == written()["lab.md"], OLD


@pytest.mark.parametrize("entry", ENTRIES, ids=[entry.name for entry in ENTRIES])
def test_the_picture_shows_what_is_found_now(entry: Entry) -> None:
    assert (DOCS / "lab" / f"{entry.name}.svg").read_text(encoding="utf-8") == written()[f"{entry.name}.svg"], OLD


def test_there_is_no_picture_of_anything_else() -> None:
    names = [*(entry.name for entry in ENTRIES), beside.NAME]
    assert {path.name for path in (DOCS / "lab").iterdir()} == {f"{name}.svg" for name in names}


def test_the_picture_of_a_lease_shows_the_events_that_break_a_lock_and_nothing_breaks_it() -> None:
    drawn = (DOCS / "lab" / f"{beside.NAME}.svg").read_text(encoding="utf-8")
    assert drawn == written()[f"{beside.NAME}.svg"], OLD
    story = beside.beside()
    assert [(moment.lane, moment.sign) for moment in story.moments] == [
        *(("A", "enter"), ("A", "slow")),
        *(("time", "time"), ("B", "enter")),
    ]
    first, second = story.bars
    assert first.ends is not None
    assert first.ends < second.begins
    found = explore(beside.lab())
    assert (found.ended, list(found.violations)) == (True, [])


def test_every_program_is_shown_and_none_that_could_not_be() -> None:
    shown = blocks(PAGE, "py")
    assert [block.rstrip() for block in shown] == [lab_page.source_of(entry) for entry in ENTRIES]
    for block in shown:
        (program,) = ast.parse(block).body
        assert isinstance(program, ast.FunctionDef)
        assert any(isinstance(node, ast.Yield) for node in ast.walk(program))


def test_every_link_of_the_page_leads_somewhere() -> None:
    headings = re.findall(r"^## (\d.*)$", PAGE, re.MULTILINE)
    letters = ("".join(each for each in heading.lower() if each.isalnum() or each in " -") for heading in headings)
    assert re.findall(r"\(#([^)]+)\)", PAGE) == [anchor.replace(" ", "-") for anchor in letters]
    pictures = re.findall(r"^!\[.+\]\((.+)\)$", PAGE, re.MULTILINE)
    assert len(pictures) == len(ENTRIES)
    assert all((DOCS / picture).is_file() for picture in pictures)


# Gripfast's own -------------------------------------------------------------------------------------------------------


def rows_of(own: Own) -> list[tuple[str, int, str, str]]:
    section = PAGE.partition(own_heading(OWN.index(own)))[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (\S+) \| ([\d,]+) (states|seeds) \| (.*) \|$", section, re.MULTILINE)
    return [(where, int(number.replace(",", "")), unit, wrong) for where, number, unit, wrong in rows]


@pytest.mark.parametrize("own", OWN, ids=[own.name for own in OWN])
def test_each_search_has_its_row_and_found_nothing(own: Own) -> None:
    rows = rows_of(own)
    assert len(rows) == len(own.searches)
    assert {wrong for *_, wrong in rows} == {"nothing found"}


@pytest.mark.parametrize("own", OWN, ids=[own.name for own in OWN])
def test_the_verdict_counts_all_of_its_rows(own: Own) -> None:
    (verdict,) = re.findall(rf"^\| \d+ \| \[{own.title}\]\(.+\) \| (.+) \|$", PAGE, re.MULTILINE)
    sums = {unit: sum(number for _, number, each, _ in rows_of(own) if each == unit) for unit in ("states", "seeds")}
    counts = " and ".join(f"{number:,} {unit}" for unit, number in sums.items() if number)
    assert verdict == f"nothing found in {counts}"


@pytest.mark.parametrize("where", QUICK)
def test_a_quick_search_finds_nothing_in_as_many_states(where: str) -> None:
    told = {row for own in OWN for row in rows_of(own)}
    report = EXPLORATIONS[where]()
    assert isinstance(report, Report)
    assert report.ended
    assert (where, report.states, "states", "nothing found") in told, OLD


def test_the_rules_of_the_relatives_are_told_as_they_are_searched_now() -> None:
    (own,) = (own for own in OWN if own.name == "gripfast-relatives")
    found = [(*each[:3], each.wrong or "nothing found") for each in own.searched()]
    assert [where for where, *_ in found] == list(RELATIVES)
    assert found == rows_of(own), OLD


# The shell ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [line for line in SHELL if line not in NOT_RUN])
def test_what_the_page_types_works(command: str, tmp_path: Path) -> None:
    printed, status = run_typed([command, "echo $?"], tmp_path)
    assert printed
    assert is_as_told(status, "0\n")


def test_the_page_types_nothing_else() -> None:
    assert [line for line in SHELL if not line.startswith("gripfast lab show ")] == NOT_RUN
