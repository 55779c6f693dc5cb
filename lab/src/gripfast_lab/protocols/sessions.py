"""Locks in a database, and in ZooKeeper."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from gripfast_lab.engines.database import COMMIT, DELETE, DUPLICATE, ENDED, INSERT, SELECT
from gripfast_lab.engines.ensemble import CHILDREN, CREATE, GONE
from gripfast_lab.engines.ensemble import DELETE as DELETE_NODE
from gripfast_lab.moves import DONE, REFUSED, WORK, Move, Outcome, ask, enter, leave, rest

Attempt = Generator[Move, Any, Outcome]


def table(me: str) -> Attempt:
    if (yield ask(INSERT)) == DUPLICATE:  # the name is the primary key
        return REFUSED
    yield enter()
    yield rest(WORK)
    yield leave()
    yield ask(DELETE)
    return DONE


def for_update(me: str) -> Attempt:
    if (yield ask(SELECT)) == ENDED:
        return REFUSED
    yield enter()
    yield rest(WORK)
    yield leave()
    yield ask(COMMIT)
    return DONE


def ephemeral_node(me: str) -> Attempt:
    mine = yield ask(CREATE)
    while True:
        there = yield ask(CHILDREN)
        if mine not in there:
            return REFUSED
        before_me = [number for number in there if number < mine]
        if not before_me:
            break
        yield ask(GONE.format(max(before_me)))
    yield enter()
    yield rest(WORK)
    yield leave()
    yield ask(DELETE_NODE.format(mine))
    return DONE


def created_again(me: str) -> Attempt:
    while (mine := (yield ask(CREATE))) is None:
        pass  # no answer: ask again
    while True:
        there = yield ask(CHILDREN)
        before_me = [number for number in there or () if number < mine]
        if there and not before_me:
            break
        if before_me:
            yield ask(GONE.format(max(before_me)))
    yield enter()
    yield rest(WORK)
    yield leave()
    yield ask(DELETE_NODE.format(mine))
    return DONE
