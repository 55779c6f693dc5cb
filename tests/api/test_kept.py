"""`min_hold` binds leases that somebody believed in, and no others."""

import asyncio
import gc
from collections.abc import Callable
from pathlib import Path

import pytest

import gripfast
from support.both_colours import staged
from support.waiting import auntil, until


def test_a_claim_that_is_cancelled_before_its_answer_is_read_keeps_nothing() -> None:
    """The engine has granted it, but nobody has begun to work."""

    async def main() -> None:
        async with gripfast.connect_async("memory://kept") as client:
            before = await client.lock("job").acquire()
            await before.release()
            attempt = asyncio.ensure_future(client.lock("job", min_hold=600).acquire())
            await asyncio.sleep(0)
            assert onlooker.inspect("job") is not None  # granted
            assert not attempt.done()
            attempt.cancel()
            with pytest.raises(asyncio.CancelledError):
                await attempt
            del attempt
            gc.collect()

            async def is_settled() -> bool:
                now = await client.inspect("job")
                return now is None or now.kept is not None

            await auntil(is_settled)
            assert await client.inspect("job") is None

    with gripfast.connect("memory://kept") as onlooker:
        asyncio.run(main())


def test_permits_can_not_be_handed_over() -> None:
    with gripfast.connect("memory://") as client:
        for lease in (client.semaphore("api", 1).acquire(), client.rwlock("index").write().acquire()):
            with pytest.raises(gripfast.ConfigurationError, match="only locks can be handed over"):
                lease.detach()
            assert lease.held


def test_a_client_that_is_closed_in_the_block_of_once_says_so() -> None:
    client = gripfast.connect("memory://")
    with pytest.raises(gripfast.ClientClosed, match="'digest' is not recorded as done"), client.once("digest", keep=60):
        client.close()


def test_a_task_does_not_write_because_its_thread_does() -> None:
    client = gripfast.connect("memory://")

    async def in_a_task() -> object:
        return client.rwlock("index").write().try_acquire()

    with client.rwlock("index").write():
        assert asyncio.run(in_a_task()) is None
    client.close()


def test_a_text_says_with_which_prefix_it_can_be_adopted(tmp_path: Path) -> None:
    with (
        gripfast.connect(f"sqlite:///{tmp_path}/locks.db?prefix=a:") as one,
        gripfast.connect(f"sqlite:///{tmp_path}/locks.db?prefix=b:") as other,
    ):
        text = one.lock("deploy").acquire().detach()
        with pytest.raises(gripfast.ConfigurationError, match="prefix='a:', and this client has prefix='b:'"):
            other.adopt(text)
        assert one.adopt(text).held


def test_an_adopted_term_keeps_its_value() -> None:
    with gripfast.connect("memory://") as client:
        election = client.election("beat", value="host:8000")
        term = client.adopt(election.lead().detach())
        leader = election.leader()
        assert leader is not None
        assert (leader.value, leader.token) == ("host:8000", term.token)
        term = client.adopt(term.detach(), label="host:9000")
        leader = election.leader()
        assert leader is not None
        assert leader.value == "host:9000"
        term.release()


@staged
async def test_a_task_adopts_for_a_block_as_it_acquires_for_one() -> None:
    async with gripfast.connect_async("memory://") as client:
        text = await (await client.lock("job").acquire()).detach()
        async with client.adopt(text) as lease:
            assert lease.held
            with pytest.raises(gripfast.LeaseLost):
                async with client.adopt(text):
                    raise AssertionError("adopted twice")
        assert await client.inspect("job") is None


@staged
async def test_the_block_of_an_adopted_lease_is_cancelled_at_its_loss() -> None:
    async with gripfast.connect_async("memory://") as client:
        text = await (await client.lock("job", 5).acquire()).detach()
        with pytest.raises(gripfast.LeaseLost, match="max_hold"):
            async with client.adopt(text, max_hold=0.1):
                await asyncio.Event().wait()


@staged
async def test_an_adoption_is_awaited_as_before_and_says_so() -> None:
    async with gripfast.connect_async("memory://") as client:
        text = await (await client.lock("job").acquire()).detach()
        with pytest.warns(RuntimeWarning, match=r"adopt\(\) of the lock 'job' was never awaited, .*await client.adopt"):
            client.adopt(text)
        attempt = client.adopt(text)
        with pytest.raises(AttributeError, match=r"has no 'held' until it is awaited: .*`async with client\.adopt"):
            attempt.held  # type: ignore[attr-defined] # noqa: B018
        lease = await asyncio.create_task(attempt)
        await lease.release()


@pytest.mark.parametrize(
    ("take", "released"),
    [
        (lambda client: client.semaphore("api", 3).acquire(), "its permit is released"),
        (lambda client: client.semaphore("api", 3).acquire(2), "its 2 permits are released"),
        (lambda client: client.rwlock("api").read().acquire(), "the read/write lock is released"),
    ],
)
def test_permits_that_are_dropped_are_called_so(
    take: Callable[[gripfast.Client], object], released: str, caplog: pytest.LogCaptureFixture
) -> None:
    with gripfast.connect("memory://") as client:
        take(client)
        (told,) = until(lambda: [each.getMessage() for each in caplog.records if "was dropped" in each.getMessage()])
        assert released in told
        assert "with lock" not in told
