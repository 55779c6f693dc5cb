"""Whether a planted bug is caught by a rule, and nothing of it stays behind."""

from functools import cache

from gripfast_lab.sim.checks import RULES
from gripfast_lab.sim.history import line
from gripfast_lab.sim.mutants import MUTANTS, Mutant
from gripfast_lab.sim.redis.lua import ENGINE
from gripfast_lab.sim.runner import Chunk, Stop, Task, Worker, collector_off, ran_seed

SEEDS = 3000
"""Within which a bug must be caught."""
FIRST_SEED = {
    "done under an old lease": 173,
    "late claim is awaited for a moment": 1530,
    "a follower too many": 477,
    "acknowledgement of one of two": 108,
    "followers by number": 356,
    "followers counted before WAIT only": 1030,
    "renewals unconfirmed": 90,
    "smaller revision is ignored": 330,
    "pushes unconfirmed": 491,
    "accepted for one who has lost the node": 378,
    "claim is not idempotent": 1490,
    "answered request forgets an earlier one": 616,
    "clean-up is not repeated": 616,
    "clean-up of an attempt by owner": 247,
    "closing releases nothing": 948,
    "detached with a claim on its way": 1900,
    "drift of the ttl alone": 189,
    "earlier attempt takes the node back": 162,
    "existing lease dated by its answer": 630,
    "failed attempt left": 34,
    "failed extend is tried for ever": 871,
    "first try counts for all": 275,
    "force release of a slot frees all": 310,
    "force-released slots stay taken": 320,
    "kept without a compare": 180,
    "lease dated by its answer": 398,
    "new by majority": 28,
    "no birth marker": 28,
    "no grace": 349,
    "own attempt overtakes the release": 300,
    "queue in the order of names": 2,
    "renewed by a minority": 41,
    "late answer ends new leases": 41154,
    "late record moves the marker back": 46563,
    "refused try forgets an earlier one": 52186,
    "repeated release counts as broken": 275,
    "unknown detach is left": 4529,
    "votes dated after they came": 102,
    "waiter is not notified": 40,
    "waiter without a lease": 13,
    "waiters never leave": 270,
    "whoever has the key": 1138,
}
"""By which these were last caught: the search starts there, and goes on from there if the code has changed since."""


def mutants_in(*areas: str) -> list[Mutant]:
    return [mutant for mutant in MUTANTS if mutant.area in areas]


def check_that_it_is_caught(mutant: Mutant) -> None:
    before = unharmed(0, mutant.scenario)
    first = FIRST_SEED.get(mutant.name, 0)
    with collector_off():
        tally = Worker(Stop()).run(Chunk(Task(mutant.scenario, mutant.name), range(first, first + SEEDS)))
    assert tally.failures, f"not caught within {SEEDS} seeds"
    caught = tally.failures[0]
    assert set(caught.rules) <= set(RULES), "the world itself has failed: this proves nothing"
    assert told(caught.seed, mutant.scenario)[1] == [], "and only with the bug"
    assert told(0, mutant.scenario) == before, "something of it stays"
    assert ENGINE.rewrite is None


@cache
def unharmed(seed: int, scenario: str) -> tuple[list[str], list[str]]:
    return told(seed, scenario)


def told(seed: int, scenario: str = "redis") -> tuple[list[str], list[str]]:
    """The history and the violations."""
    with collector_off(), Task(scenario).staged() as staged:
        outcome = ran_seed(staged, seed)
    return [line(event) for event in outcome.history], [str(each) for each in outcome.violations]
