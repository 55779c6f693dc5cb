"""Holdfast's own locks: the production code in the simulation, and how much was searched without finding anything.

Its stores for SQL and ZooKeeper are not simulated; they are held by the chaos tests on real servers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from holdfast.sim.explore import EXPLORATIONS
from holdfast.sim.runner import collector_off, ran_seed, rules_of, scenarios


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


OWN = (
    Own(
        "holdfast-redis",
        "Holdfast on one Redis server",
        "Two or three clients, every order of their messages, and a fault of any kind at any moment; and large"
        " worlds by chance. A holder that is paused is told at its deadline, and its token is too small afterwards.",
        (
            *_explored("claims", "faults", "hand-off", "cancelled", "expiry", "paused", "line"),
            partial(_seeds, "redis", 500),
        ),
    ),
    Own(
        "holdfast-redlock",
        "Holdfast's Redlock",
        "Three and five nodes, of which some are down, silent, restarted empty or cut off, with clients that pause"
        " and die.",
        (partial(_seeds, "redlock3", 100), partial(_seeds, "redlock5", 100)),
    ),
    Own(
        "holdfast-tokens",
        "The tokens of Holdfast's Redlock",
        "Three nodes, two clients. No clock is trusted, any lock may expire at any moment, messages come late,"
        " twice or never.",
        _explored("fence", "fence-order", "fence-time"),
    ),
)
