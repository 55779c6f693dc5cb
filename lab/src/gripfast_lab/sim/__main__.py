"""`python -m gripfast_lab.sim`: runs seeds and tells what came of them, replays one, runs the mutants, explores.

stdout has the result, and for --seed nothing that depends on time or machine; stderr has how far it is. Exit codes:
0 = nothing is wrong, 1 = something is (a rule broken, a mutant survived), 2 = wrong usage, 130 = stopped by Ctrl-C.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import closing
from typing import TypeVar

import click

from gripfast_lab.sim import report
from gripfast_lab.sim.runner import (
    Chunk,
    Crash,
    Failure,
    Mutant,
    Outcome,
    Scenario,
    Stop,
    Tally,
    Task,
    collector_off,
    explorations,
    mutants,
    ran_seed,
    run_chunks,
    run_seeds,
    scenarios,
)
from gripfast_lab.sim.shrink import shrunk

SCENARIO = "redis"
SEEDS = 1000
SEEDS_PER_MUTANT = 3000
FINE = 0
WRONG = 1
INTERRUPTED = 130

T = TypeVar("T")


@click.command()
@click.option(
    "--scenario", metavar="NAME", help=f"What to simulate; see --list.  [default: {SCENARIO}, or the mutant's own]"
)
@click.option(
    "--seeds",
    type=click.IntRange(1),
    help=f"How many seeds to run.  [default: {SEEDS}, or {SEEDS_PER_MUTANT} for each mutant]",
)
@click.option("--first", type=click.IntRange(0), default=0, show_default=True, help="The first seed.")
@click.option(
    "--jobs",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="How many processes to use; the result is the same.",
)
@click.option("--keep-going", is_flag=True, help="Do not stop at the first failing seed.")
@click.option("--mutant", metavar="NAME", help="Put this bug into the code first.")
@click.option("--seed", type=click.IntRange(0), help="Run this seed alone, and print its history.")
@click.option(
    "--list", "lists", is_flag=True, help="List the scenarios with their faults, the rules and the small worlds."
)
@click.option("--mutants", "all_mutants", is_flag=True, help="Put in every known bug in turn: each must be found.")
@click.option("--explore", metavar="NAME", help="Try every order of events in a small world of --list.")
def main(
    scenario: str | None,
    seeds: int | None,
    first: int,
    jobs: int,
    keep_going: bool,
    mutant: str | None,
    seed: int | None,
    lists: bool,
    all_mutants: bool,
    explore: str | None,
) -> None:
    """Run the production code in simulated worlds, one for each seed, and check the rules that --list shows."""
    if (seed is not None) + lists + all_mutants + (explore is not None) > 1 or (all_mutants and mutant):
        raise click.UsageError(
            "--seed, --list, --mutants and --explore exclude each other, and --mutants excludes --mutant"
        )
    try:
        if lists:
            code = _list()
        elif explore is not None:
            code = _explore(explore)
        elif all_mutants:
            code = _run_mutants(scenario, range(first, first + (seeds or SEEDS_PER_MUTANT)), jobs)
        elif seed is not None:
            code = _replay(_task(scenario, mutant), seed)
        else:
            code = _run(_task(scenario, mutant), range(first, first + (seeds or SEEDS)), jobs, keep_going)
    except KeyboardInterrupt as endless:
        click.echo(f"given up by a second Ctrl-C, in {endless}" if endless.args else "given up", err=True)
        code = INTERRUPTED
    sys.exit(code)


def _task(scenario: str | None, mutant: str | None) -> Task:
    own = SCENARIO if mutant is None else _known("mutant", mutant, mutants()).scenario
    _known("scenario", scenario or own, scenarios())
    return Task(scenario or own, mutant)


def _known(what: str, name: str, among: Mapping[str, T]) -> T:
    if name not in among:
        raise click.UsageError(f"no {what} is called {name!r}; there are: {', '.join(among)}")
    return among[name]


def _list() -> int:
    click.echo(report.listing(scenarios().values(), explorations()))
    return FINE


def _replay(task: Task, seed: int) -> int:
    with collector_off(), task.staged() as scenario:
        outcome = ran_seed(scenario, seed)
    click.echo(report.told(outcome))
    _show_trace(outcome)
    return WRONG if outcome.violations else FINE


def _show_trace(outcome: Outcome) -> None:
    if isinstance(outcome, Crash):
        click.echo(outcome.trace, err=True, nl=False)


# Many seeds ---------------------------------------------------------------------------------------------------------


def _run(task: Task, seeds: range, jobs: int, keep_going: bool) -> int:
    stop = Stop()
    with stop.on_ctrl_c():
        tally = _tally(task, seeds, jobs, keep_going, stop)
        _report(scenarios()[task.scenario], tally, stop.interrupted)
        if tally.failures:
            _minimise(task, tally.failures[0])
    if tally.failures:
        return WRONG
    return INTERRUPTED if stop.interrupted else FINE


def _tally(task: Task, seeds: range, jobs: int, keep_going: bool, stop: Stop) -> Tally:
    sum_of_all = Tally()
    progress = report.Progress(len(seeds), sys.stderr)
    with closing(run_seeds(task, seeds, jobs=jobs, keep_going=keep_going, stop=stop)) as tallies:
        for tally in tallies:
            sum_of_all.add(tally)
            progress.at(sum_of_all.seeds)
    progress.end()
    click.echo(f"{task.scenario}: {report.speed(sum_of_all, progress.seconds)}")
    return sum_of_all


def _report(scenario: Scenario, tally: Tally, interrupted: bool) -> None:
    if interrupted:
        click.echo("stopped by Ctrl-C: this is what was done so far")
    click.echo(f"\n{report.exercised(scenario, tally)}\n\n{report.verdict(tally.failures)}")


def _minimise(task: Task, failure: Failure) -> None:
    """A Ctrl-C from here on means: small enough."""
    click.echo(f"minimising seed {failure.seed}", err=True)
    stop = Stop()
    with stop.on_ctrl_c(), collector_off(), task.staged() as scenario:
        outcome = ran_seed(scenario, failure.seed)
        if not outcome.violations:
            click.echo(f"\n{report.not_again(task, failure)}")
            return
        result = shrunk(scenario, outcome, stop)
    click.echo(f"\n{report.minimised(task, failure.seed, result)}")
    _show_trace(result.after)


# Mutants ------------------------------------------------------------------------------------------------------------


def _run_mutants(scenario: str | None, seeds: range, jobs: int) -> int:
    """Those of this scenario, or each in its own."""
    if scenario is not None:
        _known("scenario", scenario, scenarios())
    planted = [mutant for mutant in mutants().values() if scenario in (None, mutant.scenario)]
    table = report.MutantTable(planted)
    click.echo(table.heading())
    stop, survivors = Stop(), 0
    chunks = [Chunk(Task(mutant.scenario, mutant.name), seeds) for mutant in planted]
    with stop.on_ctrl_c(), closing(run_chunks(chunks, jobs, stop)) as tallies:
        for mutant, tally in zip(planted, tallies, strict=False):
            if stop.interrupted and not tally.failures:
                break
            survivors += _judge(mutant, Task(mutant.scenario), tally, table)
    if stop.interrupted:
        click.echo("stopped by Ctrl-C: this is what was done so far")
        return INTERRUPTED
    click.echo(f"\n{len(planted)} mutants, {survivors} not caught")
    return WRONG if survivors else FINE


def _judge(mutant: Mutant, unharmed: Task, tally: Tally, table: report.MutantTable) -> int:
    """Prints its line; 1 if it was not caught. A seed that fails without the mutant as well has caught nothing."""
    if not tally.failures:
        click.echo(table.survived(mutant, tally.seeds))
        return 1
    failure = tally.failures[0]
    with collector_off(), unharmed.staged() as scenario:
        fails_anyway = bool(ran_seed(scenario, failure.seed).violations)
    if fails_anyway:
        click.echo(table.survived(mutant, tally.seeds, f" (seed {failure.seed} fails without it, too)"))
        return 1
    click.echo(table.caught(mutant, tally.seeds, failure.rules))
    return 0


# Small worlds -------------------------------------------------------------------------------------------------------


def _explore(name: str) -> int:
    """A report tells itself as text, and has the `violations` that were found."""
    explored = _known("exploration", name, explorations())()
    click.echo(str(explored))
    return WRONG if explored.violations else FINE


if __name__ == "__main__":
    main(prog_name="python -m gripfast_lab.sim")
