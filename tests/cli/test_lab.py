"""`gripfast lab`: the list with its verdicts, one history in the terminal or as a picture, a seed as a picture."""

import os
import re
import subprocess
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

import pytest

from cli.commandline import GRIPFAST, Call, run_gripfast
from cli.terminal import on_terminal
from gripfast_lab import entries as entries_module
from gripfast_lab import own as own_module
from gripfast_lab import seeds
from gripfast_lab.entries import ENTRIES
from gripfast_lab.entry import Entry
from gripfast_lab.own import OWN, Own, Searched
from gripfast_lab.page import source_of
from gripfast_lab.sim.checks import Violation
from gripfast_lab.story import Story

ESCAPE = "\x1b"
CHOSEN = ("setnx-del", "slow-holder", "for-update", "redlock-split", "semaphore-counter", "once-flag-after")
SOME = [entry for entry in ENTRIES if entry.name in CHOSEN]
SMALL = Own("gripfast-small", "Gripfast in a small world", "A text.", (lambda: Searched("line", 1234, "states"),))
BROKEN = Own("gripfast-bad", "Gripfast, broken", "A text.", (lambda: Searched("line", 5, "states", "two hold it"),))


@pytest.fixture
def smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few protocols and a search of our own that takes no time."""
    monkeypatch.setattr(entries_module, "ENTRIES", tuple(SOME))
    monkeypatch.setattr(own_module, "OWN", (SMALL,))


# The list -------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("smaller")
def test_each_has_a_row_with_its_name_its_title_and_its_verdict(call: Call) -> None:
    ended = call("lab")
    assert (ended.returncode, ended.stderr) == (0, "")
    rows = [re.split(r" {2,}", line) for line in ended.stdout.splitlines()]
    assert [row[:2] for row in rows] == [*([each.name, each.title] for each in SOME), [SMALL.name, SMALL.title]]
    assert [row[2] for row in rows[:-1]] == [
        "progress breaks after 3 events",
        "exclusion breaks after 4 events",
        "exclusion breaks after 3 events",
        "progress breaks after 2 events",
        "permit breaks after 5 events",
        "again breaks after 7 events",
    ]
    assert rows[-1][2] == "nothing found in 1,234 states"
    assert len({line.index(row[1]) for line, row in zip(ended.stdout.splitlines(), rows, strict=True)}) == 1


@pytest.mark.usefixtures("smaller")
def test_a_verdict_that_nobody_expected_is_a_failure_that_names_it(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_module, "OWN", (SMALL, BROKEN))
    ended = call("lab")
    assert ended.returncode == 70
    assert "line: two hold it" in ended.stdout
    assert ended.stderr.count("\n") == 1
    assert "gripfast-bad" in ended.stderr
    assert "gripfast-small" not in ended.stderr


@pytest.mark.usefixtures("smaller")
def test_all_histories_are_drawn_on_one_page(call: Call, tmp_path: Path) -> None:
    ended = call("lab", "--html", str(tmp_path / "lab.html"))
    assert ended.returncode == 0
    assert len(ended.stdout.splitlines()) == len(SOME) + 1
    text = (tmp_path / "lab.html").read_text(encoding="utf-8")
    assert text.count("<svg") == len(SOME)
    assert all(entry.title in text for entry in SOME)


@pytest.mark.usefixtures("smaller")
def test_a_page_on_the_standard_output_is_there_alone(call: Call) -> None:
    ended = call("lab", "--html", "-")
    assert ended.returncode == 0
    assert ended.stdout.startswith("<!")
    assert ended.stdout.count("<svg") == len(SOME)
    assert "progress breaks after 3 events" in ended.stderr


def test_the_real_list_has_every_protocol_and_ends_with_gripfast_s_own() -> None:
    assert len(ENTRIES) == 46
    ours = [
        "gripfast-redis",
        "gripfast-replicas",
        "gripfast-redlock",
        "gripfast-rules",
        "gripfast-etcd",
        "gripfast-permits",
        "gripfast-relatives",
    ]
    assert [own.name for own in OWN] == ours


# One of them ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("entry", SOME, ids=[entry.name for entry in SOME])
def test_a_history_is_told_with_what_can_be_learned_from_it(entry: Entry, call: Call) -> None:
    ended = call("lab", "show", entry.name)
    assert (ended.returncode, ended.stderr) == (0, "")
    told = " ".join(ended.stdout.split())
    for part in (entry.title, entry.idea, entry.happens, entry.notes or entry.seen, entry.answer, entry.breaks):
        assert part in told
    assert "yield" not in told


def test_the_program_is_shown_for_who_asks_for_it(call: Call) -> None:
    shown = call("lab", "show", "setnx-del", "--program").stdout
    assert "\ndef setnx_del(me: str) -> Attempt:\n    if not (yield ask(" in shown
    assert call("lab", "show", "setnx-del").stdout == shown.replace(f"{source_of(SOME[0])}\n\n", "")


def test_no_line_is_wider_than_a_terminal(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    for columns in (60, 80, 100):
        monkeypatch.setenv("COLUMNS", str(columns))
        shown = call("lab", "show", "set-nx-ex-del").stdout
        assert max(map(len, shown.splitlines())) <= columns


@pytest.mark.parametrize("name", ["gripfast-small", "gripfast-bad"])
def test_what_was_searched_of_gripfast_s_own_is_told(name: str, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_module, "OWN", (SMALL, BROKEN))
    ended = call("lab", "show", name)
    is_broken = name == "gripfast-bad"
    assert ended.returncode == (1 if is_broken else 0)
    assert re.search(r"^ +line +(1,234|5) states +(nothing found|two hold it)$", ended.stdout, re.MULTILINE)
    assert ended.stdout.splitlines()[-1] == ("line: two hold it" if is_broken else "nothing found in 1,234 states")


def test_a_real_search_of_gripfast_s_own_is_told(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    small = Own("gripfast-queue", "One queue", "A text.", (partial(own_module._states, "queue"),))
    monkeypatch.setattr(own_module, "OWN", (small,))
    ended = call("lab", "show", "gripfast-queue")
    assert ended.returncode == 0
    assert re.search(r"^nothing found in [\d,]+ states$", ended.stdout, re.MULTILINE)


def test_the_rules_of_gripfast_s_relatives_are_searched(call: Call) -> None:
    ended = call("lab", "show", "gripfast-relatives")
    assert ended.returncode == 0
    for world in ("semaphore", "once", "hand-over"):
        assert re.search(rf"^ +{world} +[\d,]+ states +nothing found$", ended.stdout, re.MULTILINE)


def test_where_nothing_was_found_there_is_nothing_to_draw(call: Call, tmp_path: Path) -> None:
    ended = call("lab", "show", "gripfast-rules", "--svg", str(tmp_path / "x.svg"))
    assert (ended.returncode, ended.stdout) == (64, "")
    assert ended.stderr.count("\n") == 1
    assert not (tmp_path / "x.svg").exists()


# Pictures -------------------------------------------------------------------------------------------------------------


def test_a_history_is_drawn_into_files(call: Call, tmp_path: Path) -> None:
    ended = call("lab", "show", "failover", "--svg", str(tmp_path / "x.svg"), "--html", str(tmp_path / "x.html"))
    assert (ended.returncode, ended.stdout) == (0, "")
    assert [line.split()[-1] for line in ended.stderr.splitlines()] == [f"{tmp_path}/x.svg", f"{tmp_path}/x.html"]
    assert ElementTree.parse(tmp_path / "x.svg").getroot().tag.endswith("svg")
    assert "<svg" in (tmp_path / "x.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [entry.name for entry in SOME])
def test_a_picture_on_the_standard_output_is_there_alone(name: str, call: Call) -> None:
    ended = call("lab", "show", name, "--svg", "-")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ElementTree.fromstring(ended.stdout).tag.endswith("svg")
    page = call("lab", "show", name, "--html", "-")
    assert (page.returncode, page.stderr) == (0, "")
    assert page.stdout.startswith("<!")
    assert page.stdout.count("<svg") == 1


def test_a_picture_is_the_same_every_time(call: Call) -> None:
    assert call("lab", "show", "failover", "--svg", "-") == call("lab", "show", "failover", "--svg", "-")


@pytest.mark.parametrize("option", ["--svg", "--html"])
def test_a_file_that_can_not_be_written_is_told_in_one_line(option: str, call: Call, tmp_path: Path) -> None:
    for file in (tmp_path / "nowhere" / "x", tmp_path):
        ended = call("lab", "show", "failover", option, str(file))
        assert (ended.returncode, ended.stdout) == (64, "")
        assert ended.stderr.count("\n") == 1
        assert str(file) in ended.stderr


@pytest.mark.usefixtures("smaller")
def test_a_list_that_can_not_be_drawn_is_told_too(call: Call, tmp_path: Path) -> None:
    ended = call("lab", "--html", str(tmp_path / "nowhere" / "x"))
    assert ended.returncode == 64
    assert ended.stderr.count("\n") == 1


# Usage ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["show", "nonesuch"], "gripfast lab"),
        (["show"], "--help"),
        (["frobnicate"], "--help"),
        (["--html", "x", "show", "failover"], "after show"),
        (["seed", "minus"], "--help"),
        (["seed", "1", "--scenario", "nonesuch"], "redlock3"),
    ],
    ids=" ".join,
)
def test_wrong_usage_is_64_and_says_what_to_do(args: list[str], says: str, call: Call) -> None:
    ended = call("lab", *args)
    assert (ended.returncode, ended.stdout) == (64, "")
    assert ended.stderr.count("\n") == 1
    assert says in ended.stderr


def test_the_help_tells_how_to_begin(call: Call) -> None:
    ended = call("lab", "--help")
    assert (ended.returncode, ended.stderr) == (0, "")
    for example in re.findall(r"^  gripfast lab (\S.*?)(?:  .*)?$", ended.stdout, re.MULTILINE):
        assert example.split()[0] in ("show", "seed")
        assert call("lab", example.split()[0], "--help").returncode == 0
    assert "gripfast lab show set-nx-ex-del" in ended.stdout


# Terminals ------------------------------------------------------------------------------------------------------------


def test_colours_are_for_terminals() -> None:
    with on_terminal(*GRIPFAST, "lab", "show", "failover") as terminal:
        assert terminal.status() == 0
        assert ESCAPE in terminal.screen()
        assert "\ufffd" not in terminal.screen()


def test_no_colours_where_they_are_not_wanted() -> None:
    with on_terminal("env", "NO_COLOR=1", *GRIPFAST, "lab", "show", "failover") as terminal:
        assert terminal.status() == 0
        assert ESCAPE not in terminal.screen()
        assert "Broken: exclusion" in terminal.screen()


def test_no_colours_in_a_pipe() -> None:
    ended = run_gripfast("lab", "show", "failover")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ESCAPE not in ended.stdout


@pytest.mark.parametrize("name", ["for-update", "redlock-split"])
def test_what_can_only_write_ascii_gets_ascii(name: str) -> None:
    ended = run_gripfast("lab", "show", name, "--program", env={"PYTHONIOENCODING": "ascii"})
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.isascii()


def test_the_c_locale_is_no_obstacle() -> None:
    ended = run_gripfast("lab", "show", "for-update", env={"LANG": "C", "LC_ALL": "C"})
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "Broken: exclusion" in ended.stdout


def test_a_reader_who_has_seen_enough_is_no_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    ended = subprocess.run(
        [*GRIPFAST, "lab", "show", "failover", "--svg", "-"], stdout=writer, stderr=subprocess.PIPE, timeout=30
    )
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (141, b"")


# Completion -----------------------------------------------------------------------------------------------------------


def completed(line: str) -> Sequence[str]:
    """What a shell would offer."""
    asked = {"_GRIPFAST_COMPLETE": "bash_complete", "COMP_LINE": line, "COMP_POINT": str(len(line))}
    ended = subprocess.run(GRIPFAST, env={**os.environ, **asked}, capture_output=True, text=True, timeout=30)
    assert ended.stderr == ""
    return [offer.removeprefix("plain,") for offer in ended.stdout.split()]


def test_names_are_completed() -> None:
    assert completed("gripfast lab show fail") == [
        "failover", "failover-wait", "failover-wait-connected", "failover-grace-run-id", "failover-grace"
    ]  # fmt: skip
    assert completed("gripfast lab show gripfast-ru") == ["gripfast-rules"]
    assert completed("gripfast lab show semaphore-c") == ["semaphore-counter", "semaphore-clocks"]
    assert completed("gripfast lab s") == ["seed", "show"]


# Seeds ----------------------------------------------------------------------------------------------------------------


def test_a_seed_is_told(call: Call) -> None:
    ended = call("lab", "seed", "1")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("Seed 1 of redis")
    assert "is granted" in ended.stdout
    assert call("lab", "seed", "1") == ended
    assert call("lab", "seed", "2").stdout != ended.stdout


@pytest.mark.parametrize("scenario", ["redlock3", "redlock5"])
def test_a_seed_of_another_scenario_is_drawn(scenario: str, call: Call) -> None:
    ended = call("lab", "seed", "3", "--scenario", scenario, "--svg", "-")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ElementTree.fromstring(ended.stdout).tag.endswith("svg")


def test_a_seed_that_breaks_a_rule_is_drawn_and_told_and_is_no_success(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = seeds.story_of_seed

    def failing(seed: int, scenario: str) -> tuple[Story, list[Violation]]:
        return really(seed, scenario)[0], [Violation("exclusion", "job", "p0/a and p1/a hold it")]

    monkeypatch.setattr(seeds, "story_of_seed", failing)
    ended = call("lab", "seed", "1")
    assert ended.returncode == 1
    assert ended.stdout.startswith("Seed 1 of redis")
    assert ended.stderr.count("\n") == 1
    assert "p0/a and p1/a hold it" in ended.stderr
