"""No faults yet: the load alone, and whether its checks notice what they are for."""

import threading
from contextlib import closing
from pathlib import Path

import pytest

from chaos.stage import Stage
from gripfast_lab.sim.checks import violations
from gripfast_lab.verify.journal import Fenced, Plain
from support.waiting import until


def test_without_faults_everyone_is_served_and_nothing_is_lost(stage: Stage) -> None:
    crew = stage.crew()
    stage.go_on(grants=20)
    stage.healed()
    for _ in stage.rounds(1):
        stage.go_on(grants=200)
    stage.judge(crew, recover_within=2.5)
    assert {event.kind for event in stage.events()} >= {"granted", "held", "refused", "cancelled", "released"}


def test_a_lock_that_someone_takes_away_is_noticed(stage: Stage) -> None:
    crew = stage.crew()
    with stage.server.client() as client:
        for _ in range(50):
            client.delete("lock:a", "lock:b", "lock:kept")
            stage.go_on(grants=2)
    with pytest.raises(AssertionError, match=r"(?s)GRIPFAST_SEED=.*(overlap|robbed)"):
        stage.judge(crew)


def test_a_key_that_someone_leaves_behind_is_noticed(stage: Stage) -> None:
    crew = stage.crew(processes=1)
    stage.go_on(grants=20)
    with stage.server.client() as client:
        client.set("lock:for good", "someone")
    with pytest.raises(AssertionError, match=r"(?s)GRIPFAST_SEED=.*left behind.*lock:for good.*1 in all"):
        stage.judge(crew, ttl=0.0)


def write_until(folder: Path, over: threading.Event, token: int) -> None:
    """As those do who hold the lock, but without it."""
    plain, fenced = Plain.of(folder, "a"), Fenced.of(folder, "a")
    while not over.is_set():
        value, guarded = plain.read(), fenced.read("writer", token)
        over.wait(0.001)
        plain.write(value + 1)
        plain.wrote(in_time=True)
        if guarded is not None:
            fenced.write("writer", token, guarded, guarded + 1)
    plain.close()
    fenced.close()


@pytest.mark.parametrize("tokens", [(1, 1), (1, 2)], ids=["the same token", "tokens that differ"])
def test_without_the_lock_updates_are_lost_but_not_behind_a_fence(tmp_path: Path, tokens: tuple[int, int]) -> None:
    """The fence keeps them if the tokens differ, and only then."""
    over = threading.Event()
    writers = [threading.Thread(target=write_until, args=(tmp_path, over, token)) for token in tokens]
    with closing(Plain.of(tmp_path, "a")) as plain, closing(Fenced.of(tmp_path, "a")) as fenced:
        for writer in writers:
            writer.start()
        try:
            until(lambda: plain.tally().lost > 10)
            if tokens == (1, 1):
                until(lambda: violations(fenced.writes()) != [])
        finally:
            over.set()
            for writer in writers:
                writer.join()
        writes = fenced.writes()
    assert writes
    assert {found.rule for found in violations(writes)} == ({"lost update"} if tokens == (1, 1) else set())
