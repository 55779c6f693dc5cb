"""The benchmarks' own arithmetic: a wrong ruler measures nothing. And every scenario runs."""

import functools
import json
import os
import re
import socket
import xml.etree.ElementTree as xml
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bench import charts, page, report
from bench.__main__ import main
from bench.catalogue import CATALOGUE
from bench.crew import Shift, Turn, crew
from bench.hand_off import figures, hand_offs
from bench.locks import gripfast_locks
from bench.promise import Promise, Verdict, at_least, at_least_best, at_most, faster, judged
from bench.redis.server import connections, counters, redis_server
from bench.redis.wire import Wire, address, pair_on
from bench.runner import Outcome, Standing, run, slug
from bench.scenario import OURS, Contestant, Place, Sample, Scenario, Spread
from bench.sql.engines import Server
from bench.sql.servers import counting_postgres, maria_server, postgres_server
from quality.tree import ROOT


def contestant(name: str, values: list[float], turns: list[str], *needs: str) -> Contestant:
    """One that takes these values in its rounds, the first of which is the warm-up, and writes down its turns."""
    left = iter(values)

    @contextmanager
    def opened(place: Place) -> Iterator[Callable[[], Sample]]:
        def measure() -> Sample:
            turns.append(name)
            return {"µs": next(left)}

        yield measure

    return Contestant(name, opened, needs)


def scenario(*contestants: Contestant, promises: tuple[Promise, ...] = ()) -> Scenario:
    return Scenario("planted", "a test", contestants, "µs", contestants[-1].name, promises, rounds=3)


def test_contestants_take_turns_after_a_warm_up(tmp_path: Path) -> None:
    turns: list[str] = []
    run(scenario(contestant("a", [1.0] * 4, turns), contestant("b", [1.0] * 4, turns)), tmp_path)
    assert "".join(turns) == "ab" + "ab" + "ba" + "ab"


def test_a_scenario_can_do_without_a_warm_up(tmp_path: Path) -> None:
    turns: list[str] = []
    run(replace(scenario(contestant("a", [1.0] * 3, turns)), warm_up=False), tmp_path)
    assert turns == ["a"] * 3


def test_the_ratio_is_the_median_of_the_rounds_without_the_warm_up(tmp_path: Path) -> None:
    mine, other = contestant("a", [900, 2, 30, 4], []), contestant("b", [1, 1, 10, 1], [])
    first, second = run(scenario(mine, other), tmp_path).standings
    assert first.ratio is not None
    assert second.ratio is not None
    assert (first.ratio.median, second.ratio.median) == (3, 1)
    assert first.figures["µs"].median == 4


ROUNDS = [{"a": {"µs": a}, "b": {"µs": 10.0}, "c": {"µs": 20.0}} for a in (20.0, 30.0, 50.0)]


@pytest.mark.parametrize(
    ("promise", "kept"),
    [
        (at_most("a", 30, "µs"), True),
        (at_most("a", 29, "µs"), False),
        (at_most("a", 3, "µs", against="b"), True),
        (at_most("a", 2.9, "µs", against="b"), False),
        (at_least("a", 3, "µs", against="b"), True),
        (at_least("a", 3.1, "µs", against="b"), False),
        (at_least_best("a", 1.5, "µs", of=["b", "c"]), True),
        (at_least_best("a", 1.6, "µs", of=["b", "c"]), False),
        (at_least_best("a", 3, "µs", of=["b", "not there"]), True),
        (faster("b", 3, "µs", than="a"), True),
        (faster("b", 3.1, "µs", than="a"), False),
        (at_most("a", 50, "µs", always=True), True),
        (at_most("a", 49, "µs", always=True), False),
        (at_least("a", 20, "µs", always=True), True),
        (at_least("a", 21, "µs", always=True), False),
    ],
    ids=lambda value: value.text if isinstance(value, Promise) else str(value),
)
def test_a_promise_is_judged_by_the_median_and_where_it_says_so_by_every_round(promise: Promise, kept: bool) -> None:
    verdict = judged(promise, ROUNDS)
    assert verdict.value is not None
    assert verdict.kept is kept


@pytest.mark.parametrize("promise", [at_most("d", 1, "µs"), at_least_best("a", 1, "µs", of=["d", "e"])])
def test_a_promise_about_somebody_who_is_missing_is_neither_measured_nor_kept(promise: Promise) -> None:
    assert judged(promise, ROUNDS) == Verdict(promise.text, None, False)


@pytest.mark.parametrize(("kept", "word"), [(True, "goal reached"), (False, "goal not reached yet")])
def test_the_table_tells_whether_a_promise_was_kept(kept: bool, word: str) -> None:
    one = Spread.of([1.0])
    outcome = Outcome([Standing("a", {"µs": one}, one)], [Verdict("it is quick", one, kept)], {})
    assert f"  {word}: it is quick (measured 1)" in report.table(scenario(contestant("a", [], [])), outcome)
    assert outcome.kept is kept


def test_who_is_not_installed_is_named_and_the_others_run(tmp_path: Path) -> None:
    missing = contestant("a", [], [], "no-such-package")
    planted = scenario(missing, contestant("b", [1.0] * 4, []), promises=(at_most("a", 1, "µs", against="b"),))
    outcome = run(planted, tmp_path)
    assert [each.contestant for each in outcome.standings] == ["b"]
    assert outcome.absent == {"a": "not installed: pip install no-such-package"}
    assert "not measured: a (not installed: pip install no-such-package)" in report.table(planted, outcome)
    assert not outcome.kept


def test_who_fails_in_one_round_is_named_and_left_out_of_all(tmp_path: Path) -> None:
    planted = scenario(contestant("a", [1.0, 1.0], []), contestant("b", [1.0] * 4, []))
    outcome = run(planted, tmp_path)
    assert [each.contestant for each in outcome.standings] == ["b"]
    assert outcome.absent == {"a": "failed: StopIteration: "}


def test_a_spread_leaves_out_the_outer_tenths() -> None:
    values = [float(value) for value in range(21, 0, -1)]
    assert Spread.of(values) == Spread(median=11, low=3, high=19, least=1, most=21)


# A round of ten seconds, of which the first does not count.
SHIFT = Shift(0.0, 10.0, 0.0)


def test_rates_and_waits_are_those_after_the_beginning() -> None:
    early = [Turn(0, 0.2, 0.2)], [Turn(0, 0.4, 0.4)]
    told = figures(SHIFT, [early[0] + [Turn(1, 2, 2), Turn(2, 2.5, 2.5)], early[1] + [Turn(0.4, 3.4, 3.4)]])
    assert told["acquired/s"] == pytest.approx(3 / 9)
    assert told["hand-offs/s"] == pytest.approx(2 / 9)
    assert (told["wait p50 ms"], told["wait max ms"]) == (2000, 3000)


def test_who_was_let_in_only_after_the_end_counts_as_one_that_waited() -> None:
    told = figures(SHIFT, [[Turn(1, 2, 2), Turn(2, 3, 3), Turn(9, 12, 12)], [Turn(0, 11, 11)]])
    assert (told["acquired/s"], told["hand-offs/s"]) == (pytest.approx(2 / 9), 0)
    assert told["wait max ms"] == 11000
    assert told["workers apart %"] == 200


def test_a_section_is_told_as_it_was_measured() -> None:
    turns = [[Turn(1, 2, 2.002), Turn(3, 4, 4.004)], [Turn(1, 3, 3.003)]]
    assert figures(SHIFT._replace(section=0.001), turns)["section ms"] == pytest.approx(3)


def test_only_a_change_of_process_is_a_hand_off() -> None:
    turns = [[Turn(0, entered, entered) for entered in (1, 2, 5)], [Turn(0, 3, 3)]]
    assert [turn.entered for turn in hand_offs(turns)] == [3, 5]


def test_a_crew_works_until_its_time_is_up_and_can_work_again(tmp_path: Path) -> None:
    with crew(2, gripfast_locks, f"sqlite:///{tmp_path}/locks.db", "bench") as workers:
        for _ in range(2):
            shift, turns = workers.work(0.1, 0.0)
            assert all(own and own[0].asked >= shift.begin for own in turns)
            assert all(turn.asked < shift.end for own in turns for turn in own[1:])


def test_a_process_of_a_crew_that_fails_says_why() -> None:
    with pytest.raises(RuntimeError, match="ConfigurationError"), crew(1, gripfast_locks, "nonsense://", "bench"):
        pass


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system does not pin processes")
def test_the_server_runs_on_the_cores_of_who_starts_it_and_is_gone_afterwards(tmp_path: Path) -> None:
    seen: list[tuple[str, set[int]]] = []

    @contextmanager
    def opened(place: Place) -> Iterator[Callable[[], Sample]]:
        with closing(Wire(place.url)) as wire:
            found = re.search(r"process_id:(\d+)", wire.text("INFO", "server"))
        assert found is not None
        seen.append((place.url, os.sched_getaffinity(int(found[1]))))
        yield lambda: {"µs": 1.0}

    cores = os.sched_getaffinity(0)
    outcome = run(replace(scenario(Contestant("a", opened)), server=redis_server), tmp_path)
    assert outcome.absent == {}
    ((url, pinned),) = seen
    assert pinned == {max(cores)}
    assert os.sched_getaffinity(0) == cores
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address(url)).close()


def test_the_server_is_stopped_when_something_fails(tmp_path: Path) -> None:
    urls = []
    with pytest.raises(LookupError), redis_server(tmp_path) as url:
        urls.append(url)
        raise LookupError
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address(urls[0])).close()


def test_the_bare_lock_excludes_and_leaves_nothing_behind(tmp_path: Path) -> None:
    with redis_server(tmp_path) as url, closing(Wire(url)) as wire:
        pair = pair_on(wire)
        pair()
        assert wire.ask(b"DBSIZE") == 0
        wire.ask(b"SET", b"bare", b"someone")
        with pytest.raises(RuntimeError, match="not free"):
            pair()
        assert wire.ask(b"GET", b"bare") == b"someone"


def test_commands_and_connections_are_counted_by_the_server(tmp_path: Path) -> None:
    with redis_server(tmp_path) as url, closing(Wire(url)) as wire, counters(url) as counted:
        before = counted()
        for _ in range(10):
            wire.ask(b"PING")
        after = counted()
        # The counting itself asks too.
        assert 10 <= after["commands"] - before["commands"] <= 12
        assert 10 <= after["reads"] - before["reads"] <= 12
        assert connections(wire) == 2


SLOW_TO_START = (postgres_server, counting_postgres, maria_server)
"""Servers of which one will do for all scenarios that want such a one: their contestants are not disturbed by tables
that are there already. All others are started for each scenario.
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Server], Server]]:
    """For a server of a scenario, one that is started once."""
    with ExitStack() as stack:

        @functools.cache
        def url(server: Server) -> str:
            return stack.enter_context(server(tmp_path_factory.mktemp("server")))

        yield lambda server: lambda _: nullcontext(url(server))


@pytest.mark.in_turn(7)
@pytest.mark.parametrize("each", CATALOGUE, ids=lambda each: each.name)
def test_every_scenario_runs_and_its_promises_are_about_figures_it_has(
    each: Scenario, served: Callable[[Server], Server], tmp_path: Path
) -> None:
    ours = tuple(contestant for contestant in each.contestants if contestant.name.startswith(OURS))
    server = served(each.server) if each.server in SLOW_TO_START else each.server
    smaller = replace(each, contestants=ours, promises=(), warm_up=False, server=server)
    outcome = run(smaller, tmp_path, rounds=1, quick=True)
    assert outcome.absent == {}
    has = {figure: 1.0 for standing in outcome.standings for figure in standing.figures}
    assert {each.figure, *each.charted} <= set(has)
    everybody = {contestant.name: has for contestant in each.contestants}
    assert each.against is None or each.against in everybody
    assert all(judged(promise, [everybody]).value is not None for promise in each.promises)


def test_names_are_unique_also_as_files() -> None:
    assert len({slug(each.name) for each in CATALOGUE}) == len(CATALOGUE)
    for each in CATALOGUE:
        assert len({slug(contestant.name) for contestant in each.contestants}) == len(each.contestants)


def test_a_run_prints_a_table_and_writes_figures_and_charts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told, drawn = tmp_path / "run.json", tmp_path / "charts"
    assert main(["memory pair", "--quick", "--json", str(told), "--charts", str(drawn)]) == 0
    assert "gripfast with lock" in capsys.readouterr().out
    assert json.loads(told.read_text(encoding="utf-8"))["scenarios"][0]["name"] == "memory pair"
    (chart,) = drawn.iterdir()
    before = chart.read_text(encoding="utf-8")
    chart.unlink()
    assert main(["--draw", str(told), "--charts", str(drawn)]) == 0
    assert chart.read_text(encoding="utf-8") == before


def test_a_chart_has_a_bar_for_everybody_and_says_what_was_promised_and_who_is_missing() -> None:
    spread = Spread.of([1.0, 2.0])
    standings = [Standing(name, {"µs": spread, "x/s": spread}, spread) for name in ("gripfast", "<other>")]
    outcome = Outcome(standings, [Verdict("quick", spread, False)], {"third": "not installed"})
    planted = replace(scenario(contestant("a", [], [])), charted=("x/s",))
    told = json.loads(json.dumps(report.as_json({planted: outcome}, datetime.now(UTC))))
    root = xml.fromstring(charts.chart(told["scenarios"][0], "made today"))
    svg = "{http://www.w3.org/2000/svg}"
    assert [bar.get("class") for bar in root.iter(f"{svg}rect")] == ["gripfast", "other"] * 2
    texts = [text.text for text in root.iter(f"{svg}text")]
    assert {"<other>", "µs (less is better)", "x/s (more is better)", "made today"} <= set(texts)
    assert {"goal not reached yet: quick (measured 1.5)", "not measured: third (not installed)"} <= set(texts)
    assert "prefers-color-scheme: dark" in (root.findtext(f"{svg}style") or "")


def test_the_page_shows_the_chart_of_every_scenario() -> None:
    text = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    shown = re.findall(r"!\[(.+?)]\((charts/.+?)\)", text)
    assert dict(shown) == {each.name: f"charts/{slug(each.name)}.svg" for each in CATALOGUE}
    for _, chart in shown:
        xml.parse(ROOT / "docs" / chart)


def test_the_tables_of_the_page_are_written_from_its_charts() -> None:
    text = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    assert page.written(text, list(page.figures(ROOT / "docs" / "charts"))) == text
    assert "| redis pair: µs (less is better) | **" in text


def test_the_page_begins_with_figures_then_charts_then_goals_not_reached() -> None:
    text = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    headings = re.findall("^## (.+)$", text, re.MULTILINE)
    assert headings[:3] == ["Figures", "Charts", "Goals not reached yet"]
    assert not re.search("not (?:kept|reached)", text.partition("## Goals")[0], re.IGNORECASE)


def test_a_table_tells_gripfast_libraries_and_limits_apart() -> None:
    spread = {"median": 2.0, "low": 1.0, "high": 3.0}
    names = ("gripfast", "gripfast, asyncio", "other", "5 bare sockets")
    planted = {
        "name": "redlock pair",
        "charted": ["µs"],
        "standings": [{"contestant": name, "figures": {"µs": spread}} for name in names],
        "verdicts": [{"promise": "quick", "value": spread, "kept": kept} for kept in (True, False)],
    }
    row = "| redlock pair: µs (less is better) | **2**<br>**2** asyncio | **2** other | **2** 5 bare sockets |"
    assert row in page.tables([planted])
    assert page.goals([planted]).splitlines()[2:] == ["| redlock pair | quick | 2 |"]


@pytest.mark.parametrize("chart", sorted((ROOT / "docs" / "charts").glob("*.svg")), ids=lambda path: path.stem)
def test_a_chart_can_be_read_on_a_phone(chart: Path) -> None:
    """It is no wider than a phone, so that its letters are not made smaller, and nothing is beyond its edge."""
    root = xml.parse(chart).getroot()
    assert float(root.get("width") or "inf") <= 400
    for text in root.iter("{http://www.w3.org/2000/svg}text"):
        assert float(text.get("x") or 0) + 6.3 * len(text.text or "") <= 400, text.text


def test_the_list_tells_what_each_scenario_measures(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    assert capsys.readouterr().out.splitlines() == [f"{each.name}: {each.about}" for each in CATALOGUE]


def test_an_unknown_scenario_is_refused_with_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nothing of that name"]) == 2
    assert "embedded pair" in capsys.readouterr().err
