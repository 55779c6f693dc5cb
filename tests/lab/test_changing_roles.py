"""The lab's server with replicas whose roles change: whom clients find, what a server says of itself, what is lost."""

from __future__ import annotations

import re
from typing import Any

from gripfast_lab.engines.port import Answer
from gripfast_lab.engines.replicas import Changing, Roles
from gripfast_lab.moves import Ask, ask
from gripfast_lab.protocols import replicas

SET_A = ask("SET lock A NX EX 30")
INFO = Ask(("lock", ""), script="return redis.call('INFO')")


def happened(engine: Changing, state: Roles, text: str) -> Roles:
    after = next(each.state for each in engine.happenings(state) if each.text.startswith(text))
    assert isinstance(after, Roles)
    return after


def asked(engine: Changing, state: Roles, who: str, what: Ask) -> Answer:
    answer = engine.ask(state, who, what)
    assert answer is not None
    return answer


def ids(engine: Changing, state: Roles, who: str) -> tuple[Any, ...]:
    told = asked(engine, state, who, INFO).reply
    return tuple(re.findall(r"(?:run_id|master_replid|connected_slaves):(\w+)", told))


def test_a_client_stays_with_a_primary_that_goes_on_and_others_find_the_new_one() -> None:
    engine = Changing(1)
    held = asked(engine, engine.start(), "A", SET_A).state
    both = happened(engine, held, "replica 1 takes the place of primary, which does not know")
    assert [engine.asked(both, who, SET_A) for who in "AB"] == [("primary",), ("replica 1",)]
    assert asked(engine, both, "A", ask("GET lock")).reply == "A"
    assert asked(engine, both, "B", ask("GET lock")).reply is None


def test_a_switch_takes_the_data_of_the_old_primary_and_leaves_it_its_run_id() -> None:
    engine = Changing(1)
    held = asked(engine, engine.start(), "A", SET_A).state
    before = ids(engine, held, "A")
    switched = happened(engine, held, "replica 1 takes the place of primary, which becomes")
    back = happened(engine, switched, "primary takes the place of replica 1, which becomes")
    assert asked(engine, back, "A", ask("GET lock")).reply is None
    after = ids(engine, back, "A")
    assert (before[0], before[1]) == (after[0], after[1])  # run id, and followers
    assert before[2] != after[2]


def test_what_a_replica_has_got_survives_the_primary() -> None:
    engine = Changing(1)
    held = asked(engine, engine.start(), "A", SET_A).state
    copied = happened(engine, held, "replica 1 gets what primary has")
    down = happened(engine, copied, "primary goes down")
    assert engine.asked(down, "A", SET_A) == ("replica 1",)
    assert asked(engine, down, "B", ask("GET lock")).reply == "A"


def test_wait_counts_those_that_are_connected_and_have_it() -> None:
    engine = Changing(2)
    held = asked(engine, engine.start(), "A", SET_A).state
    assert engine.ask(held, "A", ask("WAIT 1 0")) is None
    copied = happened(engine, held, "replica 1 gets what primary has")
    assert asked(engine, copied, "A", ask("WAIT 1 0")).reply == 1
    cut = happened(engine, copied, "replica 2 is cut off")
    assert asked(engine, cut, "A", Ask(("lock", "A"), script=replicas.COUNT_CONNECTED)).reply == 1
    assert "replica 2 gets" not in " ".join(each.text for each in engine.happenings(cut))
    down = happened(engine, cut, "primary goes down, and replica 2")
    assert asked(engine, down, "A", ask("WAIT 1 0")).reply is None


def test_a_grace_is_over_after_a_ttl_and_not_begun_again() -> None:
    engine = Changing(1, begins=replicas.first(replicas.BOTH_IDS))
    claim = Ask(("lock", "A"), script=replicas.claim_after_grace(replicas.BOTH_IDS))
    assert asked(engine, engine.start(), "A", claim).reply == 1
    state = happened(engine, engine.start(), "primary goes down")
    replies = []
    for _ in range(4):
        answer = asked(engine, state, "A", claim)
        replies.append(answer.reply)
        state = engine.passes(answer.state, 10, frozenset())
    assert replies == [0, 0, 0, 1]
