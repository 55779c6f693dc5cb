"""No faults yet: the load alone, and whether its checks notice what they are for."""

import threading
from pathlib import Path

import pytest

from chaos.journal import Register
from chaos.stage import Stage
from support.waiting import until


def test_without_faults_everyone_is_served_and_nothing_is_lost(stage: Stage) -> None:
    crew = stage.crew()
    stage.go_on(grants=20)
    stage.healed()
    for _ in stage.rounds(1):
        stage.go_on(grants=200)
    stage.judge(crew, recover_within=1.0)
    assert {event.kind for event in stage.events()} >= {"granted", "held", "refused", "cancelled", "released"}


def test_a_lock_that_someone_takes_away_is_noticed(stage: Stage) -> None:
    crew = stage.crew()
    with stage.server.client() as client:
        for _ in range(50):
            client.delete("lock:a", "lock:b", "lock:kept")
            stage.go_on(grants=2)
    with pytest.raises(AssertionError, match=r"(?s)HOLDFAST_SEED=.*(overlap|robbed)"):
        stage.judge(crew)


def write_until(path: Path, over: threading.Event, token: int | None) -> None:
    """As those do who hold the lock, but without it."""
    register = Register(path)
    while not over.is_set():
        plain = register.read_plain()
        fenced = None if token is None else register.read_fenced(token)
        over.wait(0.001)
        register.write_plain(plain + 1)
        register.wrote_plain(in_time=True)
        if token is not None and fenced is not None:
            register.write_fenced(token, fenced + 1)
    register.close()


@pytest.mark.parametrize("tokens", [(1, 1), (1, 2)], ids=["the same token", "tokens that differ"])
def test_without_the_lock_updates_are_lost_but_not_behind_a_fence(tmp_path: Path, tokens: tuple[int, int]) -> None:
    """The fence keeps them if the tokens differ, and only then."""
    register, over = Register(tmp_path / "register"), threading.Event()
    writers = [threading.Thread(target=write_until, args=(tmp_path / "register", over, token)) for token in tokens]
    for writer in writers:
        writer.start()
    try:
        until(lambda: register.tally().lost > 10)
        if tokens == (1, 1):
            until(lambda: register.tally().lost_behind_the_fence > 0)
    finally:
        over.set()
        for writer in writers:
            writer.join()
    assert register.tally().fenced_writes > 0
    assert (register.tally().lost_behind_the_fence > 0) == (tokens == (1, 1))
    register.close()
