"""`once()`: what is recorded when, and what its caller is told."""

import asyncio
import gc
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import gripfast
from gripfast.api.once import Run
from support.redis_server import RedisServer
from support.waiting import until

LONG = 600.0


@pytest.fixture
def client(tmp_path: Path) -> Iterator[gripfast.Client]:
    with gripfast.connect(f"sqlite:///{tmp_path / 'locks.db'}") as client:
        yield client


def expire(run: Run) -> None:
    """As if no renewal had come through."""
    run.lease._state.renew_at = float("inf")
    run.lease._state.renews = False
    assert run.lease.lost.wait(10)


def kept(client: gripfast.Client, name: str = "digest") -> str | None:
    info = client.inspect(name)
    return None if info is None else info.kept


def test_done_is_sent_past_the_deadline_and_the_engine_judges(client: gripfast.Client) -> None:
    """Nobody else has begun, so it is done; that the lease is over by our clock does not free the name before."""
    with client.once("digest", keep=LONG, ttl=0.2) as run:
        expire(run)
        assert not run.lease.held
    assert kept(client) == "done"


def test_a_lease_that_expired_is_given_back_if_the_work_fails(client: gripfast.Client) -> None:
    with pytest.raises(LookupError), client.once("digest", keep=LONG, ttl=0.2) as run:
        expire(run)
        raise LookupError
    del run
    gc.collect()
    until(lambda: client.inspect("digest") is None)
    with client.once("digest", keep=LONG) as run:
        assert run


def test_who_has_begun_meanwhile_is_not_overwritten(client: gripfast.Client) -> None:
    with pytest.raises(gripfast.LeaseLost), client.once("digest", keep=LONG, ttl=0.2) as run:
        expire(run)
        other = client.lock("digest").acquire(wait=5)
    assert other.held
    assert kept(client) is None


def test_an_interrupt_is_not_done_even_if_errors_are(client: gripfast.Client) -> None:
    with pytest.raises(KeyboardInterrupt), client.once("digest", keep=LONG, done_on_error=True):
        raise KeyboardInterrupt
    assert client.inspect("digest") is None


def test_a_run_that_is_dropped_is_not_done(client: gripfast.Client) -> None:
    run = client.once("digest", keep=LONG)._begin(False)
    assert run
    del run
    gc.collect()
    until(lambda: client.inspect("digest") is None)


def test_what_was_not_confirmed_is_told() -> None:
    with RedisServer() as server, gripfast.connect(server.url, request_timeout=1) as client:
        with pytest.raises(gripfast.OutcomeUnknown, match="'digest' is done, but the store did not confirm"):
            with client.once("digest", keep=LONG, ttl=3) as run:
                assert run
                server.pause()
        server.resume()


def test_what_was_not_confirmed_is_told_to_tasks() -> None:
    async def main(server: RedisServer) -> None:
        async with gripfast.connect_async(server.url, request_timeout=1) as client:
            with pytest.raises(gripfast.OutcomeUnknown, match="'digest' is done, but the store did not confirm"):
                async with client.once("digest", keep=LONG, ttl=3) as run:
                    assert run
                    server.pause()
            server.resume()

    with RedisServer() as server:
        asyncio.run(main(server))


def test_done_is_recorded_in_the_background_when_the_engine_answers_again() -> None:
    """How it is given back stands in the ledger: the clean-up does not free what is done."""
    with RedisServer() as server, gripfast.connect(server.url, request_timeout=1) as client:
        once = client.once("digest", keep=LONG, ttl=20)
        run = once._begin(False)
        server.pause()
        run.lease._state.deadline = 0.0  # no patience
        with pytest.raises(gripfast.OutcomeUnknown):
            run._end(None)
        server.resume()
        until(lambda: kept(client) == "done")


def test_the_block_of_a_task_is_cancelled_when_the_lease_is_lost(tmp_path: Path) -> None:
    async def main() -> None:
        async with gripfast.connect_async(f"sqlite:///{tmp_path / 'locks.db'}") as client:
            with pytest.raises(gripfast.LeaseLost):
                async with client.once("digest", keep=LONG, ttl=1) as run:
                    assert run
                    await client.force_release("digest")
                    await asyncio.Event().wait()
            assert await client.inspect("digest") is None

    asyncio.run(main())


def test_it_says_what_it_is(client: gripfast.Client) -> None:
    once = client.once("digest", keep=LONG)
    assert repr(once).startswith("<Once 'digest' on /")
    with once as run:
        assert repr(run) == "<Run 'digest' to be done here>"
    with once as run:
        assert (run.done, repr(run)) == (True, "<Run 'digest' done>")
    with pytest.raises(gripfast.ConfigurationError, match="no such argument"):
        client.once("digest:{day}", keep=LONG)(lambda month: None)


@pytest.mark.parametrize("prefix", ["", "shop:"])
def test_who_has_done_it_is_told_with_the_caller_s_name(prefix: str) -> None:
    """Not with the key at the engine."""
    with gripfast.connect("memory://", prefix=prefix) as client:
        with client.once("digest", keep=LONG) as run:
            assert run
        with client.once("digest", keep=LONG) as run:
            assert run.done
            assert run.holder is not None
            assert run.holder.name == "digest"


# -- a block that does not ask -----------------------------------------------------------------------------------------

UNASKED = r"'digest' was done before, but the block .* tested neither `run` nor `run.done`: .* `if run:`"


def do(client: gripfast.Client) -> None:
    with client.once("digest", keep=LONG) as run:
        assert run


async def ado(client: gripfast.AsyncClient) -> None:
    async with client.once("digest", keep=LONG) as run:
        assert run


def test_a_block_that_works_without_asking_is_an_error(client: gripfast.Client) -> None:
    sent = []
    with client.once("digest", keep=LONG):
        sent.append("first")  # it is right by chance, and nobody can tell
    with pytest.raises(gripfast.ConfigurationError, match=UNASKED), client.once("digest", keep=LONG):
        sent.append("second")
    assert (sent, kept(client)) == (["first", "second"], "done")


def test_a_task_that_works_without_asking_is_an_error(tmp_path: Path) -> None:
    async def twice() -> None:
        async with gripfast.connect_async(f"sqlite:///{tmp_path / 'locks.db'}") as client:
            await ado(client)
            with pytest.raises(gripfast.ConfigurationError, match=UNASKED.replace("with", "async with")):
                async with client.once("digest", keep=LONG):
                    pass

    asyncio.run(twice())


def test_a_block_that_does_not_ask_while_somebody_else_works_is_an_error(client: gripfast.Client) -> None:
    with client.once("digest", keep=LONG) as first:
        assert first
        with pytest.raises(gripfast.ConfigurationError, match="somebody else does 'digest' now, but the block"):
            with client.once("digest", keep=LONG):
                pass


ASKS = {
    "if run": lambda run: bool(run),
    "if not run": lambda run: not run,
    "run.done": lambda run: run.done,
    "run.busy": lambda run: run.busy,
    "run.holder": lambda run: run.holder,
    "both": lambda run: run.done or run.busy,
}
RIGHT = {"done": {"if run", "if not run", "run.done", "both"}, "busy": {"if run", "if not run", "run.busy", "both"}}


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("state", ["done", "busy"])
@pytest.mark.parametrize("asked", list(ASKS))
def test_only_a_block_that_asked_what_is_true_here_may_end(
    client: gripfast.Client, tmp_path: Path, kind: str, state: str, asked: str
) -> None:
    """`if run.done: return` and then the work: two processes at the same time would both do it."""
    first = client.once("digest", keep=LONG)
    with ExitStack() as stack:
        stack.enter_context(first)
        if state == "done":
            stack.close()
        if asked not in RIGHT[state]:
            stack.enter_context(pytest.raises(gripfast.ConfigurationError, match=f"neither `run` nor `run.{state}`"))
        if kind == "sync":
            with client.once("digest", keep=LONG) as run:
                ASKS[asked](run)
        else:
            asyncio.run(enter(f"sqlite:///{tmp_path / 'locks.db'}", ASKS[asked]))


async def enter(url: str, ask: Callable[[Any], object]) -> None:
    async with gripfast.connect_async(url) as client, client.once("digest", keep=LONG) as run:
        ask(run)


def test_a_lease_that_is_not_there_says_so(client: gripfast.Client) -> None:
    do(client)
    with pytest.raises(gripfast.ConfigurationError, match="there is no lease"), client.once("digest", keep=LONG) as run:
        print(run.lease)


def test_to_print_a_run_is_not_to_ask(client: gripfast.Client) -> None:
    do(client)
    with pytest.raises(gripfast.ConfigurationError, match=UNASKED), client.once("digest", keep=LONG) as run:
        assert repr(run) == "<Run 'digest' done>"


def test_a_block_that_raises_keeps_its_own_exception(client: gripfast.Client, tmp_path: Path) -> None:
    """It may have ended before it could ask."""
    do(client)
    for error in (LookupError, KeyboardInterrupt):
        with pytest.raises(error) as raised, client.once("digest", keep=LONG):
            raise error
        assert raised.value.__context__ is None

    async def fail() -> None:
        async with gripfast.connect_async(f"sqlite:///{tmp_path / 'locks.db'}") as other:
            async with other.once("digest", keep=LONG):
                raise LookupError

    with pytest.raises(LookupError):
        asyncio.run(fail())
