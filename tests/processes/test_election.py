"""Candidates that are killed and stopped: another one leads in time, and never two at once, by the true clock.

GRIPFAST_CHAOS=long does so ten times on each engine; `-s` shows the figures.
"""

import itertools
import time
from pathlib import Path
from typing import NamedTuple

import pytest

import gripfast
from support.family import LONG, PERMITS, store_url
from support.processes import Worker, workers
from support.waiting import until

SLACK = 4.0
"""Seconds for processes to run and requests to travel, on a busy machine: less than the 10 s after which a waiter that
is dead is left out."""
CANDIDATES = 5
TTL = {"zookeeper": 2.0}
"""Others take a second."""

ROUNDS = 10 if LONG else 1


class Look(NamedTuple):
    """A candidate found its term held, at a moment between these two."""

    number: int
    token: int
    before: float
    after: float


class Term(NamedTuple):
    number: int
    began: float
    """Believed from here at the latest,"""
    ended: float
    """and until here at least."""


class Journal:
    def __init__(self, path: Path) -> None:
        self._path = path
        path.touch()

    def looks(self) -> list[Look]:
        whole = [line for line in self._path.read_text().splitlines(keepends=True) if line.endswith("\n")]
        return [
            Look(int(n), int(token), float(before), float(after)) for n, token, before, after in map(str.split, whole)
        ]

    def terms(self) -> dict[int, Term]:
        """By token."""
        terms: dict[int, Term] = {}
        for look in self.looks():
            number, began, ended = terms.get(look.token, (look.number, look.after, look.before))
            assert number == look.number
            terms[look.token] = Term(number, min(began, look.after), max(ended, look.before))
        return terms

    def leader_after(self, token: int, within: float) -> int:
        """The token of the first term after this one."""
        return until(lambda: min((each for each in self.terms() if each > token), default=0), within=within)


def check(terms: dict[int, Term]) -> None:
    """Terms follow each other in the order of their tokens, and none begins before the last one has ended."""
    in_order = [terms[token] for token in sorted(terms)]
    for earlier, later in itertools.pairwise(in_order):
        assert earlier.ended < later.began, (earlier, later)


@pytest.mark.in_turn(5)
@pytest.mark.parametrize("store", PERMITS)
@pytest.mark.parametrize("number", range(ROUNDS))
def test_a_leader_that_dies_is_replaced_in_time_and_no_two_lead_at_once(
    store: str, number: int, tmp_path: Path
) -> None:
    journal, ttl = Journal(tmp_path / "journal"), TTL.get(store, 1.0)
    with (
        store_url(store, tmp_path) as url,
        gripfast.connect(url) as client,
        workers(CANDIDATES, "lead.py", url, "beat", ttl, tmp_path / "journal") as crew,
    ):
        for worker in crew:
            worker.expect("ready")
        scene = Scene(journal, crew, ttl)
        scene.all_are_candidates(client)
        scene.kill_leader()
        scene.kill_leader(and_candidates=1)
        scene.stop_leader_until_another_leads()
        until(lambda: scene.has_led(client.election("beat").leader()), within=20)
        scene.kill_leader()  # the one that was stopped leads again
    check(journal.terms())
    assert len(journal.terms()) >= 5
    print(f"\n{store}: {len(journal.terms())} terms, replaced {max(scene.late):.2f} s after the bound at the latest")


class Scene:
    def __init__(self, journal: Journal, crew: list[Worker], ttl: float) -> None:
        self._journal = journal
        self._crew = crew
        self._ttl = ttl
        self._token = journal.leader_after(0, within=20)
        self._alive = set(range(len(crew)))
        self.late: list[float] = []
        """How much longer than the ttl it took, each time."""

    def leader(self) -> int:
        """On a busy machine a term may have ended by itself."""
        self._token = max(self._journal.terms())
        return self._journal.terms()[self._token].number

    def has_led(self, shown: gripfast.Leader | None) -> bool:
        """Whether whom the store shows has noted a term of that token itself."""
        term = self._journal.terms().get(shown.token) if shown else None
        return term is not None and shown is not None and term.number == int(shown.value)

    def all_are_candidates(self, client: gripfast.Client) -> None:
        def so_many_wait() -> bool:
            info = client.inspect("beat")
            return info is not None and info.waiters == CANDIDATES - 1

        if client.capabilities.waiters_seen:
            until(so_many_wait, within=20)

    def kill_leader(self, and_candidates: int = 0) -> None:
        leader = self.leader()
        for number in [*sorted(self._alive - {leader})[:and_candidates], leader]:
            self._crew[number].kill()
            self._alive.discard(number)
        self._replaced_within(self._ttl + and_candidates * min(self._ttl, 10.0))

    def stop_leader_until_another_leads(self) -> None:
        """It finds its term lost, and campaigns again."""
        stopped = self._crew[self.leader()]
        stopped.stop()
        self._replaced_within(self._ttl)
        stopped.go_on()

    def _replaced_within(self, seconds: float) -> None:
        ended = time.monotonic()
        self._token = self._journal.leader_after(self._token, within=seconds + 20)
        self.late.append(self._journal.terms()[self._token].began - ended - seconds)
        assert self.late[-1] < SLACK
