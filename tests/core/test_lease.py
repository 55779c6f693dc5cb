"""The truth about one lease, second by second."""

from __future__ import annotations

import math
import pickle
import threading

from gripfast.core import rules
from gripfast.core.lease import Broken, LeaseState, Want
from gripfast.errors import LeaseLost


def lease(ttl: float = 10.0, max_hold: float | None = None, sent: float = 100.0) -> LeaseState:
    state = LeaseState(Want("job", "job", ttl, True, max_hold, None), "me")
    state.grant(7, ttl, sent, sent, max_hold)
    return state


def test_it_is_held_until_the_deadline_and_not_a_moment_longer() -> None:
    state = lease()
    deadline = rules.deadline(100.0, 10.0)
    assert state.remaining(deadline - 0.001) > 0.0
    assert state.remaining(deadline) == 0.0
    assert state.lost(deadline) == "expired"


def test_a_renewal_answered_after_the_deadline_does_not_bring_it_back() -> None:
    state = lease()
    state.renewed(sent=109.0, ttl=10.0, now=110.5)
    assert state.remaining(110.5) == 0.0
    assert state.lost(110.5) == "expired"


def test_a_loss_that_was_seen_stays_a_loss() -> None:
    state = lease()
    assert state.lost(200.0) == "expired"
    state.renewed(sent=105.0, ttl=1000.0, now=106.0)
    assert state.remaining(106.0) == 0.0


def test_a_renewal_is_dated_by_its_sending_and_keeps_the_token() -> None:
    state = lease()
    state.renewed(sent=103.0, ttl=10.0, now=104.0)
    assert state.deadline == rules.deadline(103.0, 10.0)
    assert state.token == 7


def test_a_shorter_ttl_counts_from_before_it_is_sent() -> None:
    state = lease()
    state.lower(sent=101.0, ttl=2.0)
    assert state.lost(103.5) == "expired"


def test_no_renewal_moves_it_past_max_hold_and_the_reason_says_so() -> None:
    state = lease(max_hold=15.0)
    state.renewed(sent=108.0, ttl=10.0, now=108.1)
    assert state.remaining(114.9) > 0.0
    assert state.lost(115.0) == "max_hold"


def test_the_first_ending_counts() -> None:
    state = lease()
    assert state.finish("released")
    assert not state.finish("taken")
    assert state.ending == "released"
    assert state.lost(1000.0) is None


def test_what_the_operator_wrote_is_part_of_the_ending() -> None:
    state = lease()
    assert state.finish(Broken("deploy of v2"))
    assert not state.finish("released")
    assert (state.ending, state.lost(1000.0)) == ("broken", "broken")
    for error in (state.error(), pickle.loads(pickle.dumps(state.error()))):
        assert (error.reason, error.note) == ("broken", "deploy of v2")
        assert "it was released by force: 'deploy of v2'. Someone else may hold the lock" in str(error)


def test_a_note_comes_too_late_for_a_lease_that_ended_otherwise() -> None:
    state = lease()
    assert state.lost(200.0) == "expired"
    assert not state.finish(Broken("deploy of v2"))
    assert (state.error().reason, state.error().note) == ("expired", None)


def test_no_note_steers_a_terminal_forges_a_line_or_fills_the_log() -> None:
    wild = LeaseLost("job", "broken", note="a\x1b[31m\r\n2026 ERROR \u202e\0" + "x" * 10_000)
    assert str(wild).isprintable()
    assert len(str(wild)) < 500
    assert wild.note is not None
    assert len(wild.note) > 10_000


def test_of_many_threads_that_end_it_one_wins() -> None:
    for _ in range(50):
        state = lease()
        start = threading.Barrier(4)
        wins: list[bool] = []

        def end(state: LeaseState = state, start: threading.Barrier = start, wins: list[bool] = wins) -> None:
            start.wait()
            wins.append(state.finish("taken"))

        threads = [threading.Thread(target=end) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wins.count(True) == 1


def test_what_is_not_renewed_is_not_tried_again_either() -> None:
    state = LeaseState(Want("job", "job", 10.0, False, None, None), "me")
    state.grant(7, 10.0, 100.0, 100.0)
    state.renew_later(101.0)
    assert state.renew_at == math.inf
