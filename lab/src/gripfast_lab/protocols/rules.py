"""The rules of Gripfast's lease, semaphore, run-once and hand-over, as protocols. The production code is elsewhere."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from gripfast_lab.moves import DONE, REFUSED, TTL, WORK, Move, Outcome, ask, enter, leave, record, rest, run
from gripfast_lab.protocols.permits import LIMIT
from gripfast_lab.protocols.redis import DELETE_IF_MINE, delete_if_mine

Attempt = Generator[Move, Any, Outcome]

TAKE_SLOT = f"""
for slot = 1, {LIMIT} do
  if redis.call('GET', KEYS[1] .. slot) == ARGV[1] then
    redis.call('EXPIRE', KEYS[1] .. slot, {TTL})
    return slot
  end
end
for slot = 1, {LIMIT} do
  if redis.call('SET', KEYS[1] .. slot, ARGV[1], 'NX', 'EX', {TTL}) then return slot end
end
return 0
"""
TAKE_OR_TELL = f"""
local owner = redis.call('GET', KEYS[1])
if owner and owner ~= ARGV[1] then return owner end
redis.call('SET', KEYS[1], ARGV[1], 'EX', {TTL})
return ARGV[1]
"""
RECORD = """
local owner, done = redis.call('GET', KEYS[1]), 'done:' .. ARGV[1]
if owner ~= ARGV[1] and owner ~= done then return 0 end
redis.call('SET', KEYS[1], done)
return 1
"""
ADOPT = f"""
local owner = redis.call('GET', KEYS[1])
if owner ~= 'web' and owner ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'EX', {TTL})
return 1
"""


def leased(me: str) -> Attempt:
    """The holder knows when its lease ends, and is no holder from then on."""
    if not (yield ask(f"SET lock {me} NX PX {TTL * 1000}")):
        return REFUSED
    yield enter(lasts=TTL)
    yield rest(WORK)
    yield leave()
    yield delete_if_mine(me)
    return DONE


def leased_permit(me: str) -> Attempt:
    """Each holder has its own expiry, and a repeated request finds what it has got."""
    slot = yield run(TAKE_SLOT, "permit:", me, f"take a permit for {me}")
    if not slot:
        return REFUSED
    yield enter(lasts=TTL)
    yield rest(WORK)
    yield leave()
    yield run(DELETE_IF_MINE, f"permit:{slot}", me, f"delete permit:{slot} if it is {me}'s")
    return DONE


def recorded(me: str) -> Attempt:
    """That it is done is recorded where the lock was, in one step. It counts as done from then on."""
    owner = yield run(TAKE_OR_TELL, "lock", me, f"take lock for {me}, or tell whose it is")
    if owner is not None and owner.startswith("done:"):
        return DONE
    if owner != me:
        return REFUSED
    yield enter(lasts=TTL)
    yield rest(WORK)
    yield leave()
    while (is_mine := (yield record(run(RECORD, "lock", me, f"lock is done by {me}, if it is {me}'s")))) is None:
        pass  # no answer: ask again
    return DONE if is_mine else REFUSED


def adopted(me: str) -> Attempt:
    """The adopter replaces the owner by itself, so there is one."""
    if me == "web":
        if (yield run(TAKE_OR_TELL, "lock", me, f"take lock for {me}, or tell whose it is")) != me:
            return REFUSED
        yield enter(lasts=TTL)
        yield rest(WORK)
        yield leave()  # it is detached before anybody else can know of it
        yield ask(f"SET job {me}")
        return DONE
    if (yield ask("GET job")) is None:
        return DONE  # there is no job
    if not (yield run(ADOPT, "lock", me, f"lock is {me}'s, if it is web's")):
        return DONE  # somebody else has it
    yield enter(lasts=TTL)
    yield rest(WORK)
    yield leave()
    yield run(DELETE_IF_MINE, "lock", me, f"delete lock if it is {me}'s")
    return DONE
