"""Gripfast's own locks: the production code in the simulation, and how much was searched without finding anything.

Not all of them are simulated: `NOT_HERE` tells readers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from gripfast_lab.sim.explore import EXPLORATIONS
from gripfast_lab.sim.runner import collector_off, ran_seed, rules_of, scenarios


class Searched(NamedTuple):
    where: str
    number: int
    unit: str
    """States, of all there are in a small world; or seeds, of a large one."""
    wrong: str = ""


Search = Callable[[], Searched]


@dataclass(frozen=True)
class Own:
    name: str
    title: str
    text: str
    searches: tuple[Search, ...]

    def searched(self) -> Iterator[Searched]:
        for search in self.searches:
            yield search()


def _states(name: str) -> Searched:
    report = EXPLORATIONS[name]()
    return Searched(name, report.states, "states", "; ".join(str(found) for found in report.violations))


def _seeds(scenario: str, count: int) -> Searched:
    staged = scenarios()[scenario]
    with collector_off():
        for seed in range(count):
            if rules := rules_of(ran_seed(staged, seed)):
                return Searched(scenario, seed + 1, "seeds", f"seed {seed} breaks: {', '.join(rules)}")
    return Searched(scenario, count, "seeds")


def _explored(*names: str) -> tuple[Search, ...]:
    return tuple(partial(_states, name) for name in names)


NOT_HERE = (
    "Gripfast's stores for SQL, ZooKeeper and one machine are not simulated. Their tests pause, kill and cut off"
    " real servers and processes (`make chaos`), and check the histories by the same rules."
)

OWN = (
    Own(
        "gripfast-redis",
        "Gripfast on one Redis server",
        "The production code. There are two clients (in `line` three), every order of their messages within"
        " bounds, and one fault: of any kind in `faults`, of the named kind in the others. Seeds are large random"
        " worlds with many faults. Gripfast says that it can't survive a clock that jumps or a server that forgets."
        " Such a fault excuses the overlap that it causes, and nothing else.",
        (
            *_explored("claims", "faults", "hand-off", "cancelled", "expiry", "paused", "line"),
            partial(_seeds, "redis", 400),
        ),
    ),
    Own(
        "gripfast-redlock",
        "Gripfast's Redlock",
        "The production code, on three and five nodes. Some nodes are down, silent, restarted empty or cut off,"
        " and clients pause and die. A clock that jumps excuses an overlap; a node that comes back empty does not.",
        (partial(_seeds, "redlock3", 100), partial(_seeds, "redlock5", 100)),
    ),
    Own(
        "gripfast-rules",
        "The rules of Gripfast's Redlock",
        "Not the code, but its two rules as small models, in every state. Tokens (`fence`, `fence-order`): three"
        " nodes and two attempts at once. No clock is trusted, so any lock may expire at any moment. Messages come"
        " late, twice or never. Exclusion (`fence-time`): clocks are as accurate as assumed, and a node forgets"
        " everything.",
        _explored("fence", "fence-order", "fence-time"),
    ),
)
