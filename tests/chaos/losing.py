"""A lease's whole life, again and again, and each time another reply is lost on the way."""

from collections.abc import Callable
from typing import NamedTuple

import gripfast
from chaos.cutting import World

MOST_REPLIES = 40


class Lost(NamedTuple):
    replies: int
    problems: list[str]


def lose_every_reply(world: World, is_new: bool) -> Lost:
    """The first, the second and so on, until there are no more. `is_new`: those to a new client, which connects."""
    problems = []
    world.warm_up()
    for nth in range(1, MOST_REPLIES):
        if is_new:
            world.start_afresh()
        world.new_run()
        world.proxy.drop_reply(nth)
        problem = problem_of(lambda: whole_life(world))
        was_lost = not world.proxy.armed()
        world.proxy.spare()
        world.end_run()
        if problem := problem or world.problem():
            problems.append(f"reply {nth}: {problem}")
            world.start_afresh()
        if not was_lost:
            return Lost(nth - 1, problems)
    raise AssertionError(f"there is no end of replies; {problems}")


def whole_life(world: World) -> str | None:
    """Everything that can be asked for a lease; what was wrong with an answer."""
    first, name = world.first, world.name
    lease = first.try_acquire(name)
    if lease is None or (problem := world.untrue(lease)):
        return "the lock was free, but could not be had" if lease is None else problem
    first.extend(lease)
    first.release(lease)
    world.taken_until_awaited()
    lease = first.acquire(name, 10.0)
    if problem := world.untrue(lease):
        return problem
    first.release(lease)
    world.taken()
    if first.try_acquire(name) is not None:
        return "the lock was taken twice"
    try:
        first.acquire(name, 0.03)
    except gripfast.LockTimeout:
        return None
    return "the lock was taken twice"


def problem_of(act: Callable[[], str | None]) -> str | None:
    try:
        return act()
    except Exception as error:
        return repr(error)
