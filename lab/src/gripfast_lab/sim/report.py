"""What a run of seeds says: how far it is, on stderr; what it did and what it found, on stdout.

Texts are made here and printed by the caller. Only `speed` and `Progress` know of time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TextIO

from gripfast_lab.sim.checks import RULES, Violation
from gripfast_lab.sim.history import line
from gripfast_lab.sim.runner import Failure, Mutant, Outcome, Scenario, Tally, Task
from gripfast_lab.sim.shrink import Shrunk

BAR = 24
REDRAW_EVERY = 0.1
TELL_EVERY = 5.0
FAILURES_SHOWN = 20

# A run of many seeds ------------------------------------------------------------------------------------------------


def speed(tally: Tally, seconds: float) -> str:
    return f"{tally.seeds:,} seeds in {seconds:.1f} s, {per(tally.seeds, seconds):,.0f} seeds/s"


def exercised(scenario: Scenario, tally: Tally) -> str:
    """What the seeds did, and each kind of fault with its count."""
    totals = {"grants": tally.grants, "faults": sum(tally.faults.values()), "events": tally.events}
    sums = [(what, f"{number:,}", f"{per(number, tally.seeds):.1f}") for what, number in totals.items()]
    # A kind that fires without being announced is shown, too.
    kinds = [*scenario.faults, *sorted(kind for kind in tally.faults if kind not in scenario.faults)]
    fired = [(kind, f"{tally.faults[kind]:,}") for kind in kinds if tally.faults.get(kind)]
    never = [kind for kind in kinds if not tally.faults.get(kind)]
    tables = [aligned([("", "total", "a seed"), *sums]), aligned([("fault", "fired"), *fired])]
    return "\n\n".join([*tables, *([f"never fired: {', '.join(never)}"] if never else []), *_expected(tally)])


def _expected(tally: Tally) -> list[str]:
    seeds = f"{tally.two_holders:,} of {tally.seeds:,} seeds"
    return [f"two holders, as is expected where nothing prevents it: in {seeds}"] if tally.two_holders else []


def verdict(failures: Sequence[Failure]) -> str:
    """How many seeds broke which rule, and which seeds those were."""
    if not failures:
        return "violations: none"
    seeds_of: dict[str, int] = {}
    for failure in failures:
        for rule in failure.rules:
            seeds_of[rule] = seeds_of.get(rule, 0) + 1
    rules = ", ".join(f"{rule} in {seeds:,}" for rule, seeds in sorted(seeds_of.items()))
    shown = ", ".join(str(failure.seed) for failure in failures[:FAILURES_SHOWN])
    more = f" and {len(failures) - FAILURES_SHOWN:,} more" if len(failures) > FAILURES_SHOWN else ""
    return f"violations: {rules} of the seeds\nfailing seeds: {shown}{more}"


# One seed -----------------------------------------------------------------------------------------------------------


def told(outcome: Outcome) -> str:
    """The history, a line an event, then what of it must not have happened."""
    return "\n".join([*map(line, outcome.history), *judged(outcome.violations)])


def judged(violations: Sequence[Violation]) -> list[str]:
    return [f"violation: {violation}" for violation in violations] or ["violations: none"]


def minimised(task: Task, seed: int, result: Shrunk) -> str:
    before, after = result.before, result.after
    sizes = f"{_size(after)} of {_size(before)} items, {len(after.history)} of {len(before.history)} events"
    return "\n".join(
        [
            f"seed {seed} breaks the rule {result.rule!r}: {RULES.get(result.rule, 'A run never raises.')}",
            *judged(before.violations),
            "",
            f"minimised to {sizes}, in {result.runs} runs:",
            *(f"  {item}" for item in (after.plan.items if after.plan else ())),
            "",
            told(after),
            "",
            f"replay: {replay(task, seed)}",
            *([f"draw:   gripfast lab seed {seed} --scenario {task.scenario}"] if task.mutant is None else []),
        ]
    )


def _size(outcome: Outcome) -> int:
    return len(outcome.plan.items) if outcome.plan else 0


def not_again(task: Task, failure: Failure) -> str:
    rules = ", ".join(failure.rules)
    return (
        f"seed {failure.seed} broke {rules}, but not when it was run again: it depends on more than the seed.\n"
        f"replay: {replay(task, failure.seed)}"
    )


def replay(task: Task, seed: int) -> str:
    mutant = f" --mutant {task.mutant}" if task.mutant else ""
    return f"python -m gripfast_lab.sim --scenario {task.scenario} --seed {seed}{mutant}"


# Lists --------------------------------------------------------------------------------------------------------------


def listing(scenarios: Iterable[Scenario], explorations: Iterable[str]) -> str:
    known = [f"  {each.name}: {each.text}\n    faults: {', '.join(each.faults) or 'none'}" for each in scenarios]
    rules = aligned([(f"  {rule}", sentence) for rule, sentence in RULES.items()], numbers=False)
    worlds = [f"  {each}" for each in explorations]
    return "\n".join(["scenarios", *known, "", "rules", rules, "", "small worlds, to explore", *worlds])


class MutantTable:
    """Line by line, as the mutants come: what is widest is known before."""

    def __init__(self, mutants: Iterable[Mutant]) -> None:
        rows = [("mutant", "area"), *((mutant.name, mutant.area) for mutant in mutants)]
        self._widths = [max(map(len, column)) for column in zip(*rows, strict=True)]

    def heading(self) -> str:
        return self._row("mutant", "area", "seeds", "caught by")

    def caught(self, mutant: Mutant, seeds: int, rules: Sequence[str]) -> str:
        return self._row(mutant.name, mutant.area, f"{seeds:,}", ", ".join(rules))

    def survived(self, mutant: Mutant, seeds: int, why: str = "") -> str:
        return self._row(mutant.name, mutant.area, f"{seeds:,}", f"NOTHING{why}: {mutant.text}")

    def _row(self, name: str, area: str, seeds: str, caught_by: str) -> str:
        return f"{name:<{self._widths[0]}}  {area:<{self._widths[1]}}  {seeds:>6}  {caught_by}"


# How far it is ------------------------------------------------------------------------------------------------------


class Progress:
    """A bar that is redrawn on a terminal; elsewhere a line every few seconds."""

    def __init__(self, total: int, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._total = total
        self._stream = stream
        self._clock = clock
        self._drawn = stream.isatty()
        self._started = self._told = clock()

    @property
    def seconds(self) -> float:
        """Since the start."""
        return self._clock() - self._started

    def at(self, done: int) -> None:
        now = self._clock()
        if now - self._told < (REDRAW_EVERY if self._drawn else TELL_EVERY):
            return
        self._told = now
        rate = per(done, now - self._started)
        text = f"{done:,}/{self._total:,} seeds  {rate:,.0f} seeds/s  {minutes(per(self._total - done, rate))} left"
        self._write(f"\r{bar(done, self._total)} {text}\x1b[K" if self._drawn else f"{text}\n")

    def end(self) -> None:
        if self._drawn:
            self._write("\r\x1b[K")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def bar(done: int, total: int) -> str:
    filled = BAR * done // total
    return f"[{'#' * filled}{'-' * (BAR - filled)}]"


def minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def per(number: float, of: float) -> float:
    return number / of if of else 0.0


def aligned(rows: Sequence[Sequence[str]], numbers: bool = True) -> str:
    """All columns but the first to the right, if they are numbers."""
    columns = list(zip(*rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    padded = [
        [cell.rjust(width) if numbers and place else cell.ljust(width) for cell in column]
        for place, (column, width) in enumerate(zip(columns, widths, strict=True))
    ]
    return "\n".join("  ".join(row).rstrip() for row in zip(*padded, strict=True))
