"""What docs/apscheduler.md shows works as printed: its scheduler in two processes, one of them killed."""

from __future__ import annotations

import inspect
from pathlib import Path

from contrib.programs import Program, program
from gripfast.contrib.apscheduler import FireTimes
from support.pages import blocks, is_as_told, page, programs, run_program
from support.waiting import until

PAGE = page("apscheduler")
DIGESTS, FLASK = programs(PAGE)
LONG = 60
MOST = 3


def sent(*programs: Program) -> list[str]:
    return [line for each in programs for line in each.said.splitlines() if line.startswith("sent the digest of")]


def test_the_page_has_these_programs() -> None:
    assert len(blocks(PAGE, "python")) == 2


def test_each_second_is_sent_by_one_process_and_if_one_is_killed_the_other_goes_on(tmp_path: Path) -> None:
    (tmp_path / "digests.py").write_text(DIGESTS.code, encoding="utf-8")
    with (
        program("digests.py", log=tmp_path / "one.log", folder=tmp_path) as one,
        program("digests.py", log=tmp_path / "two.log", folder=tmp_path) as two,
    ):
        until(lambda: len(sent(one, two)) >= MOST, within=LONG)
        one.kill()
        before = len(sent(two))
        until(lambda: len(sent(two)) >= before + MOST, within=LONG)
        lines = sent(one, two)
    assert len(set(lines)) == len(lines)


def test_flask_takes_it_from_its_settings(tmp_path: Path) -> None:
    printed = run_program(FLASK.code, tmp_path)
    assert is_as_told(printed, FLASK.prints or ""), printed


def test_the_defaults_are_those_of_the_code() -> None:
    defaults = {name: each.default for name, each in inspect.signature(FireTimes).parameters.items()}
    assert "| `keep` | 3600 |" in PAGE
    assert "| `prefix` | `apscheduler:` |" in PAGE
    assert (defaults["keep"], defaults["wait"], defaults["alone"]) == (3600, 0, False)
    assert defaults["prefix"] == "apscheduler:"
