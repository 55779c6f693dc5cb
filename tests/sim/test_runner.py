"""`python -m gripfast_lab.sim`, with scenarios that do what a test needs."""

import gc
import io
import os
import signal
import subprocess
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from click.testing import CliRunner, Result

from gripfast_lab.sim import report
from gripfast_lab.sim.__main__ import main
from gripfast_lab.sim.checks import RULES, Violation
from gripfast_lab.sim.runner import COLLECT_EVERY, Chunk, Failure, Stop, Tally, Task, Worker, collector_off, run_seeds
from sim import fake_scenario
from sim.fake_scenario import FAILING, ITEMS, KINDS, Plan, Scenario

SCRIPT = Path(fake_scenario.__file__)

Call = Callable[..., Result]


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch) -> Call:
    for name, module in fake_scenario.modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    fake_scenario._runs.clear()
    return lambda *args: CliRunner().invoke(main, [str(arg) for arg in args])


def run_script(*args: object, **env: str) -> subprocess.CompletedProcess[str]:
    """In a process, and a group, of its own."""
    command = [sys.executable, "-W", "error", str(SCRIPT), *map(str, args)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=50, process_group=0, env={**os.environ, **env}
    )


def timeless(output: str) -> str:
    """Without the line that tells the speed."""
    return output.partition("\n")[2]


# Many seeds ---------------------------------------------------------------------------------------------------------


def test_seeds_without_a_violation_are_fine(call: Call) -> None:
    done = call("--seeds", 100)
    assert done.exit_code == 0
    assert done.stdout.startswith("redis: 100 seeds in ")
    assert done.stdout.endswith("\nviolations: none\n")


def test_the_default_is_a_thousand_seeds(call: Call) -> None:
    assert "redis: 1,000 seeds in " in call().stdout


def test_the_report_tells_what_was_exercised(call: Call) -> None:
    rows = [line.split() for line in call("--seeds", 100).stdout.splitlines()]
    assert ["grants", "1,000", "10.0"] in rows
    assert ["faults", "199", "2.0"] in rows
    assert ["events", "1,200", "12.0"] in rows
    assert ["cut", "100"] in rows
    assert ["delay", "99"] in rows


def test_a_fault_that_never_fired_is_named(call: Call) -> None:
    assert "\nnever fired: pause\n" in call("--seeds", 3).stdout
    assert "\nnever fired: delay, pause\n" in call("--seeds", 1).stdout


def test_a_fault_that_was_not_announced_is_shown() -> None:
    shown = report.exercised(
        cast(Any, Scenario("s", fake_scenario.calm, faults=("cut",))), Tally(1, 1, 1, {"cut": 1, "new": 2})
    )
    assert ["new", "2"] in [line.split() for line in shown.splitlines()]
    assert "never fired" not in shown


def test_a_failing_seed_ends_the_run_and_is_minimised(call: Call) -> None:
    done = call("--scenario", "bad", "--seeds", 2000)
    assert done.exit_code == 1
    assert done.stdout.startswith(f"bad: {FAILING + 1} seeds in ")
    assert f"\nseed {FAILING} breaks the rule 'overlap': {RULES['overlap']}\n" in done.stdout
    assert "\nviolation: token: 'a', needs 5\n\nminimised to 2 of 12 items, 2 of 12 events, in " in done.stdout
    end = done.stdout.partition("runs:\n")[2].splitlines()
    assert end[:3] == ["  3", "  7", ""]
    assert [line.split("(")[1] for line in end[3:5]] == [f"seed {FAILING} item 3)", f"seed {FAILING} item 7)"]
    assert end[5:] == [
        "violation: overlap: 'a', needs 3 and 7",
        "",
        f"replay: python -m gripfast_lab.sim --scenario bad --seed {FAILING}",
        f"draw:   gripfast lab seed {FAILING} --scenario bad",
    ]


def test_first_tells_where_to_begin(call: Call) -> None:
    assert f"\nfailing seeds: {FAILING + 50}\n" in call("--scenario", "bad", "--first", FAILING + 1).stdout


def test_keep_going_tells_of_every_failing_seed(call: Call) -> None:
    done = call("--scenario", "bad", "--seeds", 100, "--keep-going")
    assert done.exit_code == 1
    assert done.stdout.startswith("bad: 100 seeds in ")
    assert "\nviolations: overlap in 2, token in 2 of the seeds\nfailing seeds: 33, 83\n" in done.stdout


def test_a_long_list_of_failing_seeds_is_cut() -> None:
    shown = report.verdict([Failure(seed, ("late",)) for seed in range(report.FAILURES_SHOWN + 5)])
    assert shown.endswith(f", {report.FAILURES_SHOWN - 1} and 5 more")


def test_a_run_that_raises_is_a_failing_seed(call: Call) -> None:
    done = call("--scenario", "raises")
    assert done.exit_code == 1
    assert "\nviolation: crashed: 'raises', LookupError: no such node (fake_scenario.py:" in done.stdout
    assert "\nminimised to 1 of 12 items" in done.stdout
    assert "Traceback" in done.stderr
    assert "Traceback" not in done.stdout


def test_a_failure_that_does_not_come_again_is_told_as_such(call: Call) -> None:
    done = call("--scenario", "moody")
    assert done.exit_code == 1
    assert "seed 4 broke late, but not when it was run again: it depends on more than the seed." in done.stdout


@pytest.mark.parametrize("extra", [[], ["--keep-going"]], ids=["stops", "keeps going"])
def test_the_result_does_not_depend_on_the_number_of_processes_nor_on_the_hash_seed(extra: list[str]) -> None:
    runs = [
        run_script("--scenario", "bad", "--seeds", 400, "--jobs", jobs, *extra, PYTHONHASHSEED=str(jobs))
        for jobs in (1, 2, 3)
    ]
    assert [run.returncode for run in runs] == [1, 1, 1]
    assert len({timeless(run.stdout) for run in runs}) == 1
    assert "seed 33 breaks" in runs[0].stdout


# Ctrl-C -------------------------------------------------------------------------------------------------------------


def test_ctrl_c_ends_the_run_with_what_was_done_so_far(call: Call) -> None:
    before = signal.getsignal(signal.SIGINT)
    done = call("--scenario", "interrupted")
    assert done.exit_code == 130
    assert done.stdout.startswith("interrupted: 151 seeds in ")
    assert "\nstopped by Ctrl-C: " in done.stdout
    assert done.stdout.endswith("\nviolations: none\n")
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_ends_all_processes_quietly() -> None:
    done = run_script("--scenario", "interrupted", "--seeds", 100_000, "--jobs", 2)
    assert (done.returncode, done.stderr) == (130, "")
    assert "\nstopped by Ctrl-C: " in done.stdout


def test_what_was_done_so_far_is_without_gaps(call: Call) -> None:
    stop = Stop()
    task = Task("redis")
    tallies = run_seeds(task, range(1000), jobs=1, keep_going=False, stop=stop)
    done = next(tallies)
    stop.ask()
    assert list(tallies) == []
    assert done.seeds == 25


def test_a_second_ctrl_c_does_not_wait() -> None:
    stop = Stop()
    with stop.on_ctrl_c():
        signal.raise_signal(signal.SIGINT)
        assert stop.asked
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_a_second_ctrl_c_is_looked_at_and_a_third_raises() -> None:
    stop = Stop()
    stop.looked_at = True
    with stop.on_ctrl_c():
        given_up = []
        for _ in range(2):
            signal.raise_signal(signal.SIGINT)
            given_up.append(stop.given_up)
        assert given_up == [False, True]
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_a_second_ctrl_c_names_the_seed_that_does_not_end(call: Call) -> None:
    done = call("--scenario", "endless")
    assert (done.exit_code, done.stderr) == (130, "given up by a second Ctrl-C, in seed 60\n")


def test_a_second_ctrl_c_names_it_and_ends_it_in_another_process_too() -> None:
    done = run_script("--scenario", "endless", "--jobs", 2)
    assert done.returncode == 130
    # On a busy machine it has told before how far it is.
    assert done.stderr.splitlines()[-1] == "given up by a second Ctrl-C, in one of the seeds 50 to 74"


def test_processes_end_with_the_one_that_started_them() -> None:
    """They share its stdout: this returns when the last of them is gone."""
    assert run_script("--scenario", "orphaned", "--seeds", 100_000, "--jobs", 2).returncode == -signal.SIGKILL


# The collector ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("jobs", [1, 2])
def test_the_collector_is_off_while_a_seed_runs(jobs: int) -> None:
    assert run_script("--scenario", "collected", "--seeds", 100, "--jobs", jobs).returncode == 0


def test_the_collector_is_off_in_a_replay(call: Call) -> None:
    assert call("--scenario", "collected", "--seed", 1).exit_code == 0
    assert gc.isenabled()


def test_the_collector_is_on_again_after_a_run(call: Call) -> None:
    assert call("--scenario", "bad").exit_code == 1
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0


class Ring:
    """Only the cyclic collector frees it."""

    def __init__(self) -> None:
        self.itself = self


def test_what_has_gathered_is_collected_now_and_then(call: Call) -> None:
    rings: list[weakref.ref[Ring]] = []
    alive: list[int] = []

    def judge(plan: Plan) -> list[Violation]:
        rings.append(weakref.ref(Ring()))
        alive.append(sum(ring() is not None for ring in rings))
        return []

    sys.modules["gripfast_lab.sim.scenarios"].SCENARIOS["rings"] = Scenario("rings", judge)
    worker = Worker(Stop())
    with collector_off():
        for start in range(0, 2 * COLLECT_EVERY + 10, 10):
            worker.run(Chunk(Task("rings"), range(start, start + 10)))
    assert max(alive) == COLLECT_EVERY
    assert alive[COLLECT_EVERY] == alive[2 * COLLECT_EVERY] == 1


# One seed, lists ----------------------------------------------------------------------------------------------------


def test_a_replay_prints_the_history_and_its_violations_and_nothing_else(call: Call) -> None:
    done = call("--scenario", "bad", "--seed", FAILING)
    lines = done.stdout.splitlines()
    assert done.exit_code == 1
    assert len(lines) == len(ITEMS) + 2
    assert lines[0] == f"      0.000000  world        a        fault       (seed {FAILING} item 0)"
    assert lines[-2:] == ["violation: overlap: 'a', needs 3 and 7", "violation: token: 'a', needs 5"]
    assert done.stderr == ""


def test_a_replay_without_a_violation_is_fine(call: Call) -> None:
    done = call("--seed", 0)
    assert done.exit_code == 0
    assert done.stdout.endswith("\nviolations: none\n")


def test_a_replay_is_the_same_every_time(call: Call) -> None:
    first, second = (run_script("--scenario", "bad", "--seed", FAILING, PYTHONHASHSEED=seed) for seed in "12")
    assert first.stdout == second.stdout == call("--scenario", "bad", "--seed", FAILING).stdout


def test_the_list_has_scenarios_faults_and_rules(call: Call) -> None:
    listed = call("--list").stdout
    assert f"  redis: a fake\n    faults: {', '.join(KINDS)}\n" in listed
    assert all(rule in listed and sentence in listed for rule, sentence in RULES.items())


def test_an_exploration_tells_itself_and_whether_all_is_fine(call: Call) -> None:
    fine, wrong = call("--explore", "fine"), call("--explore", "wrong")
    assert (fine.exit_code, fine.stdout) == (0, "12 states, ended\n")
    assert wrong.exit_code == 1


# Mutants ------------------------------------------------------------------------------------------------------------


def test_the_table_of_mutants_tells_by_what_each_was_caught_and_when(call: Call) -> None:
    done = call("--scenario", "mutated", "--mutants", "--seeds", 8)
    rows = [line.split() for line in done.stdout.splitlines()]
    assert rows[0] == ["mutant", "area", "seeds", "caught", "by"]
    assert rows[1] == ["caught", "tokens", "7", "robbed"]
    assert rows[2] == ["harmless", "renewal", "8", "NOTHING:", "breaks", "nothing"]
    assert done.exit_code == 1


def test_a_seed_that_fails_without_the_mutant_has_caught_nothing(call: Call) -> None:
    done = call("--scenario", "mutated", "--mutants", "--seeds", 20)
    assert "NOTHING (seed 8 fails without it, too)" in done.stdout
    assert done.exit_code == 1


def test_mutants_that_are_all_caught_are_fine(call: Call) -> None:
    vars(sys.modules["gripfast_lab.sim.mutants"])["MUTANTS"] = fake_scenario.MUTANTS[:1]
    done = call("--scenario", "mutated", "--mutants")
    assert done.exit_code == 0
    assert done.stdout.endswith("\n1 mutants, 0 not caught\n")


def test_the_table_of_mutants_does_not_depend_on_the_number_of_processes() -> None:
    one, two = (run_script("--scenario", "mutated", "--mutants", "--jobs", jobs) for jobs in (1, 2))
    assert one.stdout == two.stdout
    assert one.returncode == two.returncode == 1


def test_one_mutant_can_be_planted(call: Call) -> None:
    done = call("--scenario", "mutated", "--mutant", "caught")
    assert done.exit_code == 1
    assert done.stdout.endswith("--scenario mutated --seed 6 --mutant caught\n")
    assert call("--scenario", "mutated", "--mutant", "caught", "--seed", 6).exit_code == 1
    assert call("--scenario", "mutated", "--seed", 6).exit_code == 0
    assert fake_scenario.planted == []


# Usage --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--scenario", "none"], "no scenario is called 'none'; there are: redis, bad, "),
        (["--scenario", "none", "--mutants"], "no scenario is called 'none'"),
        (["--mutant", "none"], "no mutant is called 'none'; there are: caught, harmless"),
        (["--explore", "none"], "no exploration is called 'none'; there are: fine, wrong"),
        (["--seed", "0", "--list"], "exclude each other"),
        (["--mutants", "--mutant", "caught"], "exclude each other"),
        (["--seeds", "0"], "x>=1"),
    ],
)
def test_wrong_usage_is_told(call: Call, args: list[str], message: str) -> None:
    done = call(*args)
    assert done.exit_code == 2
    assert message in done.stderr


def test_the_runner_itself_imports_no_engine_and_no_scenario() -> None:
    code = "import sys, gripfast_lab.sim.report; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {"lupa", "redis", "hiredis", "gripfast_lab.sim.scenarios", "gripfast_lab.sim.mutants"} & set(loaded) == set()


# Progress -----------------------------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def progress(stream: io.StringIO, seconds_a_step: float) -> str:
    """What is shown of 400 seeds, a hundred a step."""
    now = [0.0]
    shown = report.Progress(400, stream, lambda: now[0])
    for done in (100, 200, 300, 400):
        now[0] += seconds_a_step
        shown.at(done)
    shown.end()
    return stream.getvalue()


def test_a_terminal_sees_a_bar_that_is_gone_at_the_end() -> None:
    drawn = progress(Terminal(), 1.0)
    assert drawn.count("\r") == 5
    assert "\n" not in drawn
    assert "[######------------------] 100/400 seeds  100 seeds/s  0:03 left" in drawn
    assert drawn.endswith("\r\x1b[K")


def test_elsewhere_there_is_a_line_every_few_seconds() -> None:
    assert progress(io.StringIO(), 4.0).splitlines() == [
        "200/400 seeds  25 seeds/s  0:08 left",
        "400/400 seeds  25 seeds/s  0:00 left",
    ]


def test_a_quick_run_shows_nothing_elsewhere() -> None:
    assert progress(io.StringIO(), 0.1) == ""
