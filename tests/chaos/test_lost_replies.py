"""Replies that never come, or come late: what was done is done once, and what was asked for is given back."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

import gripfast
from chaos.cutting import Asyncio, Blocking, World
from chaos.losing import lose_every_reply
from chaos.stage import Stage
from gripfast_lab.sim.checks import violations
from gripfast_lab.sim.history import WORLD, Event
from gripfast_lab.verify.journal import now
from gripfast_lab.verify.notes import Notes
from support.proxy import Proxy
from support.redis_server import RedisServer
from support.waiting import until

pytestmark = pytest.mark.filterwarnings("ignore")  # leases are dropped on purpose

TTL = 1.0


@pytest.mark.parametrize("is_new", [False, True], ids=["connected", "new"])
def test_every_reply_in_turn_is_lost(world: World, is_new: bool) -> None:
    """A caller need not notice: each is asked for once more."""
    lost = lose_every_reply(world, is_new)
    assert lost.replies > 8
    assert not lost.problems


def test_a_release_whose_reply_was_lost_has_released(world: World) -> None:
    """And not "lost": nobody else has had the lock."""
    world.warm_up()
    world.new_run()
    lease = world.first.acquire(world.name, 5.0)
    world.proxy.drop_reply()
    world.first.release(lease)
    assert not world.proxy.armed()
    assert world.problem() is None


def test_a_force_release_whose_reply_was_lost_breaks_nobody_else(server: RedisServer, proxy: Proxy) -> None:
    history: list[Event] = []
    holder, waiter = (Blocking(server.url, Notes(who, history.append), 5.0) for who in ("holder", "waiter"))
    with gripfast.connect(f"redis://127.0.0.1:{proxy.port}") as operator:
        operator.force_release("warm-up")
        lease = holder.acquire("job", 5.0)
        waiting: list[gripfast.Lease] = []
        thread = threading.Thread(target=lambda: waiting.append(waiter.acquire("job", 10.0)))
        thread.start()
        until(lambda: waiters(operator) == 1)
        proxy.drop_reply()
        since = now()
        try:
            operator.force_release("job")
        except gripfast.OutcomeUnknown:
            pass  # the truth, and enough
        history.append(Event(since, WORLD, "job", "forgot", until=now()))
        thread.join()
        with pytest.raises(gripfast.LeaseLost):
            holder.release(lease)
        waiter.extend(waiting[0])  # asks the server
        waiter.release(waiting[0])
    holder.close()
    waiter.close()
    assert violations(history) == []


def waiters(client: gripfast.Client) -> int:
    info = client.inspect("job")
    return info.waiters if info else 0


def test_a_client_that_is_closed_while_it_asks_says_so_and_keeps_nothing(world: World) -> None:
    world.warm_up()
    world.new_run()
    answers: list[Any] = []

    def ask() -> None:
        try:
            answers.append(world.first.acquire(world.name, 10.0))
        except Exception as error:
            answers.append(error)

    world.proxy.hold("replies")
    asking = threading.Thread(target=ask)
    asking.start()
    until(lambda: world.proxy.held("replies"))
    closing = threading.Thread(target=world.first.close)
    closing.start()
    until(lambda: world.first.is_closed)
    until(lambda: world.proxy.held("replies") > 20 or not closing.is_alive())
    world.proxy.let_go()
    asking.join()
    closing.join()
    assert [type(answer) for answer in answers] == [gripfast.ClientClosed]
    world.start_afresh()
    assert world.problem() is None


def time_out(world: World) -> None:
    with pytest.raises(gripfast.OutcomeUnknown):
        world.first.try_acquire(world.name)


def cancel(world: World) -> None:
    assert isinstance(world.first, Asyncio)
    world.first.cancel(world.name)


@pytest.mark.parametrize("request_timeout", [0.1])
@pytest.mark.parametrize(
    ("world", "give_up"),
    [("blocking", time_out), ("asyncio", time_out), ("asyncio", cancel)],
    indirect=["world"],
    ids=["blocking, by a time-out", "asyncio, by a time-out", "asyncio, by a cancel"],
)
def test_a_claim_that_comes_after_the_caller_gave_up_is_given_back(
    world: World, give_up: Callable[[World], None]
) -> None:
    """Its clean-up follows it on the same connection; on another one it would be faster than the claim."""
    world.warm_up()
    world.new_run()
    world.proxy.delay(requests=0.7)
    give_up(world)
    world.proxy.delay()
    until(lambda: not world.proxy.held("requests"))
    assert world.problem() is None


@pytest.mark.parametrize("request_timeout", [0.1])
def test_a_grant_that_nobody_hears_is_given_back(world: World) -> None:
    world.warm_up()
    world.new_run()
    world.proxy.hold("replies")
    with pytest.raises(gripfast.StoreUnavailable):
        world.first.try_acquire(world.name)
    world.proxy.let_go()
    assert world.problem() is None


def wait_for_renewal(world: World, lease: Any) -> None:
    """The watchdog sends it at a third of the ttl."""
    until(lambda: world.proxy.held("requests"))


def release(world: World, lease: Any) -> None:
    world.first.release(lease)
    assert world.proxy.held("requests")


@pytest.mark.parametrize("request_timeout", [0.1])
@pytest.mark.parametrize("ask", [wait_for_renewal, release])
def test_what_comes_after_the_lease_has_expired_does_nothing_to_the_next_one(
    world: World, ask: Callable[[World, Any], None]
) -> None:
    world.warm_up()
    world.new_run()
    lease = world.first.acquire(world.name, 5.0, ttl=0.5)
    world.proxy.hold("requests")
    ask(world, lease)
    with world.second.lock(world.name).acquire(wait=5.0) as other:
        assert not lease.held
        assert other.token > lease.token
        world.proxy.let_go()
        until(lambda: not world.proxy.held("requests"))
        until(lambda: world.first.owners() == 0)
        assert world.untrue(other) is None
        other.extend()
    lease = None
    assert world.problem() is None


def test_replies_and_requests_come_late(stage: Stage, proxy: Proxy) -> None:
    """Also later than anyone waits for them, and than their ttl."""
    crew = stage.crew(url=f"redis://127.0.0.1:{proxy.port}/0", request_timeout=0.1)
    stage.go_on(grants=20)
    for _ in stage.rounds(6):
        late = stage.chance.choice([0.01, 0.05, 0.3, 0.7])
        proxy.delay(**stage.chance.choice([{"requests": late}, {"replies": late}, {"requests": late, "replies": late}]))
        stage.wait_out(late)
        proxy.delay()
        stage.go_on(grants=5)
    stage.healed()
    stage.go_on(grants=20)
    stage.judge(crew, may_be_unreachable=True, recover_within=TTL + 1.5)


def test_connections_are_cut_and_replies_lost_under_load(stage: Stage, proxy: Proxy) -> None:
    crew = stage.crew(url=f"redis://127.0.0.1:{proxy.port}/0")
    stage.go_on(grants=20)
    for _ in stage.rounds(30):
        stage.chance.choice(
            [
                proxy.cut,
                lambda: proxy.drop_reply(stage.chance.randrange(1, 20)),
                lambda: proxy.cut_after(stage.chance.randrange(2000), "requests"),
                lambda: proxy.cut_after(stage.chance.randrange(500), "replies"),
            ]
        )()
        stage.go_on(grants=3)
    stage.healed()
    stage.go_on(grants=20)
    stage.judge(crew, may_be_unreachable=True, recover_within=TTL + 1.5)
