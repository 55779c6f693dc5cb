"""Elections beyond what every store has to show: engines in trouble, the order of watchers, misuse."""

import asyncio
import gc
import logging
import pickle
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

import gripfast
from gripfast.core import rules
from gripfast.core.election import Watch
from gripfast.core.ports import LockInfo
from gripfast.testing.observing import Recorder
from support.both_colours import staged
from support.redis_server import RedisServer
from support.waiting import auntil, until


@pytest.fixture
def client() -> Iterator[gripfast.Client]:
    with gripfast.connect("memory://") as client:
        yield client


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


# -- an engine in trouble ----------------------------------------------------------------------------------------------


def test_an_engine_that_is_down_neither_leads_nor_ends_run(server: RedisServer) -> None:
    tokens: list[int] = []

    def work(term: gripfast.Lease) -> str:
        tokens.append(term.token)
        if len(tokens) > 1:
            return "done"
        server.kill()
        term.lost.wait(20)
        return "lost"

    with gripfast.connect(server.url, connect_patience=0.1, request_timeout=1) as client:
        election = client.election("beat", ttl=0.5)
        results: list[str] = []
        thread = threading.Thread(target=lambda: results.append(election.run(work)))
        thread.start()
        until(lambda: not server.running and "beat" not in held(client), within=20)
        server.restart()
        thread.join(30)
    assert results == ["done"]
    assert len(tokens) == 2


def held(client: gripfast.Client) -> set[str]:
    assert client._runtime is not None
    return {state.name for state in client._runtime.env.ledger.leases() if state.endings == []}


@staged
async def test_an_engine_that_is_down_neither_leads_nor_ends_run_of_tasks(
    server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    tokens: list[int] = []

    async def work(term: gripfast.AsyncLease) -> str:
        tokens.append(term.token)
        if len(tokens) == 1:
            server.kill()
            await asyncio.get_running_loop().create_future()
        return "done"

    async with gripfast.connect_async(server.url, connect_patience=0.1, request_timeout=1) as client:
        running = asyncio.create_task(client.election("beat", ttl=0.5).run(work))
        await auntil(lambda: "can't campaign for 'beat'" in caplog.text, 20)
        assert not running.done()
        server.restart()
        assert await asyncio.wait_for(running, 30) == "done"
    told = [each for each in caplog.records if each.name == "gripfast.election" and each.levelno == logging.WARNING]
    assert len({each.getMessage() for each in told}) == len(told)
    assert len(tokens) == 2


def test_a_wrong_password_ends_run() -> None:
    with (
        RedisServer("--requirepass", "right") as server,
        gripfast.connect(server.url.replace("redis://", "redis://:wrong@")) as client,
        pytest.raises(gripfast.StoreUnavailable),
    ):
        client.election("beat").run(lambda term: None)


def test_a_watcher_raises_after_a_while_and_can_go_on(server: RedisServer) -> None:
    with gripfast.connect(server.url, connect_patience=0.1, request_timeout=1) as client:
        leaders = client.election("beat", ttl=0.3).watch()
        assert next(leaders) is None
        server.kill()
        with pytest.raises(gripfast.StoreUnavailable):
            next(leaders)
        server.restart()
        with client.election("beat", "me").lead(wait=20):
            leader = next(leaders)
            assert leader is not None
            assert leader.value == "me"


# -- watchers ----------------------------------------------------------------------------------------------------------


MORNING = datetime(2026, 11, 16, 8, tzinfo=UTC)


def info(token: int, owner: str = "o", since: datetime | None = MORNING) -> LockInfo:
    return LockInfo("beat", owner, token, "v", "h", 1, since, 5.0, 0)


def test_a_watcher_never_goes_back() -> None:
    watch = Watch("beat", 30.0)
    seen = [None, info(5), info(5), info(4), info(7), None, info(5), None, info(7), info(0, "foreign", None), info(8)]
    news = [watch._is_news(each) for each in seen]
    assert news == [True, True, False, False, True, True, False, False, True, True, True]


def test_a_watcher_looks_at_a_pace_and_sooner_when_the_term_should_be_over() -> None:
    assert rules.look_again_at(100.0, 30.0, None) == 103.0
    assert rules.look_again_at(100.0, 30.0, 20.0) == 103.0
    assert rules.look_again_at(100.0, 30.0, 1.0) == pytest.approx(101.001)
    assert rules.look_again_at(100.0, 30.0, 0.0) == pytest.approx(100.15)  # and not all the time
    assert rules.look_again_at(100.0, 30.0, float("inf")) == 103.0


def test_a_watcher_that_is_dropped_leaves_nothing(client: gripfast.Client) -> None:
    assert next(client.election("beat").watch()) is None
    assert client._current().env.sleepers == []


# -- what a term has ---------------------------------------------------------------------------------------------------


def test_observers_are_told_of_terms_and_their_group() -> None:
    recorder = Recorder()
    with gripfast.connect("memory://", observers=[recorder]) as client:
        client.election("beat:1", group="beats").run(lambda term: None)

        @client.elected("shard:{number}")
        def work(number: int) -> int:
            return gripfast.current_lease().token

        assert work(7) > 0
    groups = {(event.name, event.group) for event in recorder.events}
    assert groups == {("beat:1", "beats"), ("shard:7", "shard:{number}")}


@staged
async def test_a_decorated_coroutine_function_of_a_plain_client(client: gripfast.Client) -> None:
    @client.elected("shard:{number}", "me")
    async def work(number: int) -> str:
        lease = gripfast.current_lease(gripfast.AsyncLease)
        return f"{lease.name} {number}"

    assert await work(7) == "shard:7 7"


def test_a_function_may_end_its_term_itself(client: gripfast.Client) -> None:
    election = client.election("beat")

    def work(term: gripfast.Lease) -> bool:
        term.release()
        return election.leader() is None

    assert election.run(work)


def test_a_term_that_lasts_too_long_is_over(client: gripfast.Client) -> None:
    reasons: list[str] = []
    election = client.election("beat", max_hold=0.1, on_lost=lambda term, reason: reasons.append(reason))
    tokens: list[int] = []

    def work(term: gripfast.Lease) -> None:
        tokens.append(term.token)
        if len(tokens) == 1:
            term.lost.wait(10)  # and returns: it has seen that it does not lead any more

    election.run(work)
    assert tokens[0] < tokens[1]
    until(lambda: reasons == ["max_hold"])


def test_a_function_that_goes_on_after_the_client_is_closed_ends_with_that() -> None:
    client = gripfast.connect("memory://")

    def work(term: gripfast.Lease) -> None:
        client.close()
        term.ensure_held()

    with pytest.raises(gripfast.ClientClosed):
        client.election("beat").run(work)


@staged
async def test_a_cancelled_run_is_cancelled_and_leads_no_more() -> None:
    async with gripfast.connect_async("memory://") as client:
        election = client.election("beat")
        leads = asyncio.Event()

        async def work(term: gripfast.AsyncLease) -> None:
            leads.set()
            await asyncio.get_running_loop().create_future()

        running = asyncio.create_task(election.run(work))
        await leads.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert await election.leader() is None


# -- misuse ------------------------------------------------------------------------------------------------------------

Call = Callable[[gripfast.Election], object]

WRONG: list[tuple[Callable[[Any], object], str]] = [
    (lambda e: e.is_leader, "read term.held"),
    (lambda e: e.elect(), "with election.lead() as term"),
    (lambda e: e.campaign(), "with election.lead() as term"),
    (lambda e: e.resign(), "term.release()"),
    (lambda e: e.contenders(), "info.waiters"),
    (lambda e: e.observe(), "for leader in election.watch()"),
    (lambda e: e.proclaim("x"), "counts for a whole term"),
    (lambda e: e.__enter__(), "with election.lead() as term"),
    (lambda e: e(len), "@client.elected(name)"),
    (lambda e: bool(e), "election.leader()"),
    (lambda e: e.lead(timeout=5), "write lead(wait=5)"),
    (lambda e: e.lead(True, 5), "write lead(wait=5)"),
    (lambda e: e.lead(False, 5), "election.try_lead()"),
    (lambda e: e.lead(blocking=False), "election.try_lead()"),
    (lambda e: e.try_lead(wait=5), "write lead(wait=5)"),
    (lambda e: e.try_lead(5), "try_lead() takes nothing"),
    (lambda e: e.run(print, 1, sep="x"), "write run(lambda term: print(term, 1, sep='x'))"),
    (lambda e: pickle.dumps(e), "gripfast.connect(url).election('beat')"),
    (lambda e: gripfast.Election("beat"), "write gripfast.connect(url).election(name)"),  # type: ignore[arg-type]
    (lambda e: gripfast.LeaderElection, "gripfast.connect(url).election(name)"),  # type: ignore[attr-defined]
    (lambda e: e._client.elect("beat"), "client.election(name, value)"),
    (lambda e: e._client.election("beat", identifier="me"), "write value='me'"),
    (lambda e: e._client.election("beat", wait=5), "election.lead(wait=5)"),
    (lambda e: e._client.election("beat", renew=True), "leave it out"),
    (lambda e: e._client.election("beat", valeu="me"), "did you mean 'value'?"),
]


@pytest.mark.parametrize(("call", "told"), WRONG)
def test_other_words_are_told_what_to_write(client: gripfast.Client, call: Call, told: str) -> None:
    with pytest.raises((TypeError, AttributeError, ImportError)) as wrong:
        call(client.election("beat"))
    assert told in str(wrong.value)


def test_what_is_no_function_to_run_is_refused(client: gripfast.Client) -> None:
    election: Any = client.election("beat")

    async def coroutine_function(term: object) -> None: ...

    def generator(term: object) -> Iterator[int]:
        yield 1

    for wrong in (coroutine_function, generator, None, election, lambda term: coroutine_function(term)):
        with pytest.raises(gripfast.ConfigurationError):
            election.run(wrong)
    assert election.leader() is None


@staged
async def test_tasks_are_told_what_to_await() -> None:
    async with gripfast.connect_async("memory://") as client:
        election: Any = client.election("beat")
        with pytest.raises(TypeError, match=r"async with election\.lead"):
            election.campaign()
        with pytest.raises(TypeError, match=r"lead\(\) of the election 'beat' must be awaited first"):
            bool(election.lead())
        with pytest.warns(RuntimeWarning, match=r"try_lead\(\) of the election 'beat' was never awaited"):
            election.try_lead()
            gc.collect()
        attempt = election.lead()
        term = await attempt
        with pytest.raises(RuntimeError, match=r"lead\(\) of the election 'beat' was used before"):
            await attempt
        await term.release()
        for wrong in (lambda term: None, None, election):
            with pytest.raises(gripfast.ConfigurationError):
                await election.run(wrong)
        with pytest.raises(gripfast.ConfigurationError, match="not async"):
            client.elected("beat")(lambda: None)  # type: ignore[type-var]
