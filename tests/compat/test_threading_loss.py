"""A lost lease: told to whoever lost it, and nobody else's lock is released for it."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

import gripfast
from gripfast.compat.threading import Lock, RLock
from support.waiting import until

kinds = pytest.mark.parametrize("kind", [Lock, RLock])


class Actor:
    """A thread that does what it is told."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1)

    def starts(self, work: Callable[..., Any], *args: Any) -> Future[Any]:
        return self._pool.submit(work, *args)

    def does(self, work: Callable[..., Any], *args: Any) -> Any:
        return self.starts(work, *args).result(timeout=10)

    def leaves(self) -> None:
        self._pool.shutdown()


@pytest.fixture
def actors() -> Iterator[tuple[Actor, Actor, Actor]]:
    all_three = Actor(), Actor(), Actor()
    yield all_three
    for actor in all_three:
        actor.leaves()


@kinds
def test_release_tells_of_the_loss_and_the_lock_can_be_used_again(
    client: gripfast.Client, other: gripfast.Client, kind: type[Lock]
) -> None:
    ours = kind(client, "job")
    ours.acquire()
    other.force_release("job")
    with pytest.raises(gripfast.LeaseLost):
        ours.release()
    with pytest.raises(RuntimeError):
        ours.release()
    with ours:
        assert other.inspect("job")


@kinds
def test_leaving_the_block_tells_of_the_loss(client: gripfast.Client, other: gripfast.Client, kind: type[Lock]) -> None:
    with pytest.raises(gripfast.LeaseLost):
        with kind(client, "job"):
            other.force_release("job")


@kinds
def test_what_the_body_raised_comes_first(client: gripfast.Client, other: gripfast.Client, kind: type[Lock]) -> None:
    with pytest.raises(ZeroDivisionError):
        with kind(client, "job"):
            other.force_release("job")
            _ = 1 / 0


@kinds
def test_a_lease_that_ran_out_is_lost(client: gripfast.Client, kind: type[Lock]) -> None:
    ours = kind(client, "job", ttl=0.05, renew=False)
    ours.acquire()
    until(lambda: not ours.locked())
    with pytest.raises(gripfast.LeaseLost):
        ours.release()


@kinds
def test_the_thread_that_lost_it_does_not_release_the_one_that_has_it_now(
    client: gripfast.Client, other: gripfast.Client, actors: tuple[Actor, Actor, Actor], kind: type[Lock]
) -> None:
    loser, winner, _ = actors
    ours = kind(client, "job")
    loser.does(ours.acquire)
    other.force_release("job")
    winner.does(ours.acquire)
    token = other.inspect("job").token
    with pytest.raises(gripfast.LeaseLost):
        loser.does(ours.release)
    assert other.inspect("job").token == token
    winner.does(ours.release)
    assert other.inspect("job") is None


@kinds
def test_a_block_that_lost_it_does_not_release_the_one_that_has_it_now(
    client: gripfast.Client, other: gripfast.Client, actors: tuple[Actor, Actor, Actor], kind: type[Lock]
) -> None:
    winner, _, _ = actors
    ours = kind(client, "job")
    with pytest.raises(gripfast.LeaseLost):
        with ours:
            other.force_release("job")
            winner.does(ours.acquire)
    assert other.inspect("job")
    winner.does(ours.release)


def test_whoever_releases_for_others_releases_the_oldest_first(
    client: gripfast.Client, other: gripfast.Client, actors: tuple[Actor, Actor, Actor]
) -> None:
    loser, winner, helper = actors
    ours = Lock(client, "job")
    loser.does(ours.acquire)
    other.force_release("job")
    winner.does(ours.acquire)
    with pytest.raises(gripfast.LeaseLost):
        helper.does(ours.release)
    assert other.inspect("job")
    helper.does(ours.release)
    assert other.inspect("job") is None
    with pytest.raises(RuntimeError):
        winner.does(ours.release)


def test_of_many_releases_at_once_exactly_one_counts(client: gripfast.Client) -> None:
    ours = Lock(client, "job")
    with ThreadPoolExecutor(8) as pool:
        for _ in range(20):
            ours.acquire()
            errors = [answer.exception(timeout=10) for answer in [pool.submit(ours.release) for _ in range(8)]]
            assert [type(error) for error in errors if error] == [RuntimeError] * 7
            assert not ours.locked()


@kinds
def test_a_second_acquire_after_a_loss_is_the_one_that_is_released_first(
    client: gripfast.Client, other: gripfast.Client, kind: type[Lock]
) -> None:
    ours = kind(client, "job", ttl=0.3, renew=False)
    with pytest.raises(gripfast.LeaseLost), ours:
        until(lambda: not ours.locked())
        ours.acquire()
        assert other.inspect("job")
        ours.release()
        assert other.inspect("job") is None
