"""Scenarios and mutants that do what a test needs, in the place of the real ones.

Run as a script it is `python -m gripfast_lab.sim` with these. Processes that it spawns import it again and so have
them, too.
"""

import gc
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any, NamedTuple

from gripfast_lab.sim import runner
from gripfast_lab.sim.checks import Violation
from gripfast_lab.sim.history import WORLD, Event

ITEMS = tuple(range(12))
NEEDED = {3, 7}
KINDS = ("cut", "delay", "pause")
FAILING = 33
planted: list[str] = []


@dataclass(frozen=True)
class Plan:
    seed: int
    items: tuple[int, ...]
    setting: str = "kept"


class Outcome(NamedTuple):
    plan: Plan
    history: list[Event]
    violations: list[Violation]
    faults: dict[str, int]
    grants: int
    two_holders: int = 0


def calm(plan: Plan) -> list[Violation]:
    return []


def needs_two(plan: Plan) -> list[Violation]:
    """A bug that some seeds have, while items 3 and 7 are there, and another that needs item 5."""
    if plan.seed % 50 != FAILING:
        return []
    found = [Violation("overlap", "a", "needs 3 and 7")] if set(plan.items) >= NEEDED else []
    return found + ([Violation("token", "a", "needs 5")] if 5 in plan.items else [])


def raises(plan: Plan) -> list[Violation]:
    if plan.seed == 4 and 5 in plan.items:
        raise LookupError("no such node")
    return []


_runs: list[int] = []


def moody(plan: Plan) -> list[Violation]:
    """What it does depends on what was run before."""
    _runs.append(plan.seed)
    return [Violation("late", "a", "only once")] if len(_runs) == 5 else []


def collected(plan: Plan) -> list[Violation]:
    return [Violation("failed", "a", "the collector is on")] if gc.isenabled() else []


def interrupted(plan: Plan) -> list[Violation]:
    """Ctrl-C on a terminal reaches all processes of the group."""
    if plan.seed == 150:
        os.killpg(0, signal.SIGINT) if "--jobs" in sys.argv else signal.raise_signal(signal.SIGINT)
    return []


def endless(plan: Plan) -> list[Violation]:
    """Ctrl-C does not end the seed; it takes a second one."""
    if plan.seed == 60 and multiprocessing.parent_process() is None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
    elif plan.seed == 60:
        os.kill(os.getppid(), signal.SIGINT)
        while not runner._worker_of_child._stop.asked:
            pass
        os.kill(os.getppid(), signal.SIGINT)
        while True:
            signal.pause()
    return []


def orphaned(plan: Plan) -> list[Violation]:
    if plan.seed == 60 and multiprocessing.parent_process() is not None:
        os.kill(os.getppid(), signal.SIGKILL)
    return []


def mutated(plan: Plan) -> list[Violation]:
    """Breaks by what is planted; seed 8 is bad without, too."""
    caught = "caught" in planted and plan.seed == 6
    return [Violation("robbed", "a", "planted")] * caught + [Violation("late", "a", "anyway")] * (plan.seed == 8)


@dataclass(frozen=True)
class Scenario:
    name: str
    judge: Callable[[Plan], list[Violation]]
    faults: tuple[str, ...] = KINDS
    text: str = "a fake"

    def plan(self, seed: int) -> Plan:
        return Plan(seed, ITEMS)

    def run(self, plan: Plan) -> Outcome:
        assert plan.setting == "kept"
        history = [Event(float(item), WORLD, "a", "fault", note=f"seed {plan.seed} item {item}") for item in plan.items]
        faults = {"delay": plan.seed % 3, "cut": 1}
        return Outcome(plan, history, self.judge(plan), {kind: faults[kind] for kind in faults if faults[kind]}, 10)


@dataclass(frozen=True)
class Mutant:
    name: str
    area: str = "tokens"
    text: str = "breaks nothing"
    scenario: str = "mutated"

    @contextmanager
    def planted(self) -> Iterator[None]:
        planted.append(self.name)
        try:
            yield
        finally:
            planted.remove(self.name)


JUDGES = {
    "redis": calm,
    "bad": needs_two,
    "raises": raises,
    "moody": moody,
    "collected": collected,
    "interrupted": interrupted,
    "endless": endless,
    "orphaned": orphaned,
    "mutated": mutated,
}
MUTANTS = (Mutant("caught"), Mutant("harmless", "renewal"))


class Explored(NamedTuple):
    violations: list[Violation]

    def __str__(self) -> str:
        return "12 states, ended"


def modules() -> dict[str, ModuleType]:
    """The modules that these take the place of."""
    contents: dict[str, dict[str, Any]] = {
        "scenarios": {"SCENARIOS": {name: Scenario(name, judge) for name, judge in JUDGES.items()}},
        "mutants": {"MUTANTS": MUTANTS},
        "explore": {
            "EXPLORATIONS": {
                "fine": lambda: Explored([]),
                "wrong": lambda: Explored([Violation("overlap", "a", "found")]),
            }
        },
    }
    made = {}
    for name, attributes in contents.items():
        made[f"gripfast_lab.sim.{name}"] = module = ModuleType(f"gripfast_lab.sim.{name}")
        vars(module).update(attributes)
    return made


if __name__ in ("__main__", "__mp_main__"):
    sys.modules.update(modules())

if __name__ == "__main__":
    from gripfast_lab.sim.__main__ import main

    main()
