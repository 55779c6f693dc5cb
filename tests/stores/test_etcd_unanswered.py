"""Requests that got no answer: what became of them, and what the store does about it."""

from collections.abc import Callable
from typing import Any

import pytest

import gripfast
from gripfast.core.kept import MIN_HOLD, Keep
from gripfast.core.ports import Hold
from gripfast.machine import boottime
from gripfast.runtime.blocking import drive
from gripfast.stores.etcd import protocol
from gripfast.stores.etcd.blocking import BlockingLink
from gripfast.stores.etcd.dial import Dialer
from gripfast.stores.etcd.keys import Keys
from gripfast.stores.etcd.meeting import Cluster
from gripfast.stores.etcd.messages import DeleteRangeRequest, PutRequest
from gripfast.stores.etcd.record import LATE
from gripfast.stores.etcd.requests import Requests
from stores import etcd_stage
from stores.etcd_stage import SOON, Detour, address, keys_below, stage
from support.etcd_servers import etcd_server, url_of
from support.proxy import Proxy
from support.waiting import until

client, root = etcd_stage.client, etcd_stage.root
colour, detour, proxy = etcd_stage.colour, etcd_stage.detour, etcd_stage.proxy


def store_of(client: gripfast.Client) -> Any:
    return client._store()


def test_whoever_has_to_know_is_told_that_an_earlier_try_may_have_been_carried_out(
    colour: str, detour: Detour, root: str
) -> None:
    """Also if the first try was not sent."""
    key = f"{root}key".encode()
    with stage(colour, *detour.endpoints) as actor:
        requests = Requests(actor.link, Cluster("test"), Keys(root))
        actor.run(requests.ask(PutRequest(key, b"1"), requests.until()))
        detour.lose_an_answer()
        deleted = actor.run(requests.ask_once(DeleteRangeRequest(key), requests.until(), 0.5))
        assert (deleted.answer.deleted, deleted.was_repeated) == (0, True)


def test_a_release_that_an_earlier_try_of_it_has_carried_out_is_no_loss(detour: Detour, root: str) -> None:
    with gripfast.connect(url_of(detour.endpoints, root=root)) as client:
        lease = client.lock("job", ttl=4, renew=False).acquire()
        detour.lose_an_answer()
        lease.release()
        assert not keys_below(f"{root}job/")


def test_a_release_that_is_repeated_tells_that_the_lock_was_released_by_force(detour: Detour, root: str) -> None:
    with gripfast.connect(url_of(detour.endpoints, root=root)) as client:
        lease = client.lock("job", ttl=4, renew=False).acquire()
        client.force_release("job", "because")
        detour.lose_an_answer()
        with pytest.raises(gripfast.LeaseLost, match="because"):
            lease.release()


@pytest.mark.parametrize("ttl", [0.5, 4.0, 600.0])
def test_however_short_a_request_is_one_member_takes_half_of_it_at_most(ttl: float) -> None:
    requests = Requests(BlockingLink(Dialer(("h1:2379", "h2:2379"), 0.05)), Cluster("test"), Keys(""))
    assert requests.each(ttl) == 0.025


ASKED: dict[str, Callable[[gripfast.Client], object]] = {
    "a lock with a long ttl": lambda client: client.lock("job", ttl=600).try_acquire(),
    "a semaphore": lambda client: client.semaphore("api", limit=2).try_acquire(),
    "a reader": lambda client: client.rwlock("index").read().try_acquire(),
    "a resize": lambda client: client.semaphore("api", limit=2).resize(3),
    "inspect": lambda client: client.inspect("held"),
    "list": lambda client: list(client.list()),
    "a force release": lambda client: client.force_release("held"),
}


@pytest.mark.parametrize("asked", ASKED)
def test_a_silent_member_leaves_time_for_the_next(proxy: Proxy, root: str, asked: str) -> None:
    url = url_of([address(proxy), etcd_server().address], root=root, request_timeout=2)
    with gripfast.connect(etcd_server().url_with(root=root)) as other, gripfast.connect(url, ttl=4) as client:
        held = other.lock("held").acquire()
        client.semaphore("api", limit=2).acquire().release()  # so leases of etcd's are there
        proxy.hold("replies")
        assert ASKED[asked](client) is not False
        assert held.owner


def lose_the_answer_to_a_keep(client: gripfast.Client, detour: Detour, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the request for its lease, the answer arrives."""
    leases = store_of(client).requests.leases
    for_renewal = leases.for_renewal

    async def then_lose(*asked: Any) -> Any:
        lease = await for_renewal(*asked)
        monkeypatch.undo()
        detour.lose_an_answer()
        return lease

    monkeypatch.setattr(leases, "for_renewal", then_lose)


def test_a_kept_release_that_an_earlier_try_has_carried_out_is_no_loss_when_its_time_is_over(
    detour: Detour, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with gripfast.connect(url_of(detour.endpoints, root=root), request_timeout=20) as client:
        lease = client.lock("job", ttl=32, renew=False, min_hold=1).acquire()
        lose_the_answer_to_a_keep(client, detour, monkeypatch)
        lease.release()  # its second try lasts 4 s, an eighth of the ttl
        until(lambda: client.lock("job").try_acquire() is not None, within=SOON)


def test_a_done_that_an_earlier_try_has_recorded_is_recorded(
    detour: Detour, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with gripfast.connect(url_of(detour.endpoints, root=root)) as client:
        with client.once("job", keep=600, ttl=4) as run:
            assert run
            lose_the_answer_to_a_keep(client, detour, monkeypatch)
        info = client.inspect("job")
        assert info is not None
        assert info.kept == "done"


@pytest.mark.parametrize("direction", ["requests", "replies"])
def test_a_detach_without_an_answer_leaves_nothing(
    proxy: Proxy, root: str, direction: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody has the text, so nobody could adopt it: the name is free at once, not when the lease is over. Held-up
    requests arrive together with the clean-up."""
    url = url_of([address(proxy)], root=root, request_timeout=1, ttl=600)
    with gripfast.connect(url) as client:
        lease = client.lock("job", renew=False).acquire()
        keeping = store_of(client)._keeping
        detach = keeping.detach

        async def detach_in_vain(hold: Hold) -> Any:  # the lease was extended before
            proxy.hold(direction)
            return await detach(hold)

        monkeypatch.setattr(keeping, "detach", detach_in_vain)
        with pytest.raises(gripfast.OutcomeUnknown):
            lease.detach()
        proxy.let_go()
        until(lambda: not keys_below(f"{root}job/"), within=SOON)
        assert client.lock("job").try_acquire() is not None


def test_a_detach_that_arrives_behind_its_clean_up_has_no_effect(client: gripfast.Client, root: str) -> None:
    store = store_of(client)
    lease = client.lock("job", renew=False).acquire()
    record, hold = store.records[lease.owner], Hold("job", lease.owner, 30.0)
    late = protocol.move(record.place, record.value(detached=True), record.lease.id)
    record.is_detaching = True
    assert drive(store.abandon([hold])) == [None]
    assert not drive(store.requests.ask(late, store.requests.until())).succeeded
    assert not keys_below(f"{root}job/")


def test_a_detach_that_was_confirmed_is_not_cleaned_up(client: gripfast.Client) -> None:
    lease = client.lock("job").acquire()
    text = lease.detach()
    assert drive(store_of(client).abandon([Hold("job", lease.owner, 30.0)])) == [None]
    assert client.adopt(text).held


def test_what_somebody_has_adopted_is_not_cleaned_up(client: gripfast.Client) -> None:
    """Not even if the former owner did not get the answer to its detach."""
    store = store_of(client)
    lease = client.lock("job").acquire()
    record = store.records[lease.owner]
    adopted = client.adopt(lease.detach())
    store.records[lease.owner] = record
    assert record.is_detaching
    assert drive(store.abandon([Hold("job", lease.owner, 30.0)])) == [None]
    adopted.extend()
    assert adopted.held


@pytest.mark.parametrize("min_hold", [None, 600.0])
def test_a_detach_that_a_closing_client_takes_back_is_not_confirmed(
    client: gripfast.Client, monkeypatch: pytest.MonkeyPatch, min_hold: float | None
) -> None:
    """The text would be worth nothing."""
    store = store_of(client)
    lease = client.lock("job", renew=False).acquire()
    keep = None if min_hold is None else Keep(MIN_HOLD + lease.owner, min_hold)
    ask = store.requests.ask

    async def ask_slowly(request: Any, *more: Any) -> Any:
        answer = await ask(request, *more)
        monkeypatch.undo()
        assert await store.abandon([Hold("job", lease.owner, 30.0, keep=keep)]) == [None]
        return answer

    monkeypatch.setattr(store.requests, "ask", ask_slowly)
    assert drive(store.detach(Hold("job", lease.owner, 30.0), lease.token)) is not None


def test_a_detach_behind_the_clean_up_of_a_closing_client_was_not_released_by_force(
    client: gripfast.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_of(client)
    lease = client.lock("job", renew=False).acquire()
    ask, hold = store.requests.ask, Hold("job", lease.owner, 30.0)

    async def ask_later(request: Any, *more: Any) -> Any:
        monkeypatch.undo()
        assert await store.abandon([hold]) == [None]
        return await ask(request, *more)

    monkeypatch.setattr(store.requests, "ask", ask_later)
    assert drive(store.detach(hold, lease.token)) == "released"


def test_a_try_that_is_refused_cleans_up_after_an_earlier_one_that_takes_effect_later(
    detour: Detour, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for it any more. Its key would keep others out for as long as its lease lasts."""
    with (
        gripfast.connect(etcd_server().url_with(root=root)) as other,
        gripfast.connect(url_of(detour.endpoints, root=root)) as client,
    ):
        with client.lock("warm", ttl=16):
            lease = other.lock("job").acquire()
        requests, sent = store_of(client).requests, list[Any]()
        ask_once = requests.ask_once

        async def ask_and_note(request: Any, *more: Any) -> Any:
            sent.append(request)
            detour.lose_an_answer()
            return await ask_once(request, *more)

        with monkeypatch.context() as patched:
            patched.setattr(requests, "ask_once", ask_and_note)
            assert client.lock("job", ttl=16).try_acquire() is None
        lease.release()
        assert drive(store_of(other).requests.ask(sent[-1], requests.until())).succeeded
        until(lambda: not keys_below(f"{root}job/"), within=SOON)


def test_a_claim_that_is_given_up_at_a_silent_member_is_cleaned_up_when_it_takes_effect(
    client: gripfast.Client, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By an interrupt, long before its time is over. Its member may pass it on to the others later."""
    client.lock("job", ttl=16).acquire().release()
    store, sent = store_of(client), list[Any]()

    async def give_up(request: Any, *more: Any) -> Any:
        sent.append(request)
        given_up = boottime() + 1.5 * LATE
        until(lambda: boottime() > given_up, within=SOON)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(store.requests, "ask_once", give_up)
        with pytest.raises(KeyboardInterrupt):
            client.lock("job", ttl=16).acquire()
    lands = boottime() + 3 * LATE
    until(lambda: boottime() > lands, within=SOON)
    with gripfast.connect(etcd_server().url_with(root=root)) as other:
        assert drive(store_of(other).requests.ask(sent[-1], boottime() + SOON)).succeeded
    until(lambda: not keys_below(f"{root}job/"), within=SOON)


def test_a_detach_that_meets_a_restored_backup_gives_out_no_text(client: gripfast.Client) -> None:
    """What is there may be granted to others. The cluster of this test is behind what was seen."""
    store = store_of(client)
    lease = client.lock("job", renew=False).acquire()
    store.requests.cluster.revision += 1_000_000
    assert drive(store.detach(Hold("job", lease.owner, 30.0), lease.token)) == "session"


def test_an_adoption_that_meets_a_restored_backup_is_tried_again(
    client: gripfast.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first answer may be of the time before."""
    store = store_of(client)
    text = client.lock("job", renew=False).acquire().detach()
    sent = store.sent

    async def send_across(*asked: Any) -> Any:
        monkeypatch.undo()
        answer = await sent(*asked)
        store.requests.cluster.epoch += 1
        return answer

    monkeypatch.setattr(store, "sent", send_across)
    adopted = client.adopt(text)
    adopted.extend()
    assert adopted.held


def test_a_try_for_a_permit_that_is_refused_cleans_up_after_an_earlier_one_that_takes_effect_later(
    detour: Detour, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was free when it was looked at, and somebody else was faster."""
    with (
        gripfast.connect(etcd_server().url_with(root=root)) as other,
        gripfast.connect(url_of(detour.endpoints, root=root)) as client,
    ):
        with client.rwlock("warm", ttl=16).write():
            requests, sent, leases = store_of(client).requests, list[Any](), list[gripfast.Lease]()
        ask_once = requests.ask_once

        async def ask_and_note(request: Any, *more: Any) -> Any:
            sent.append(request)
            leases.append(other.rwlock("job").write().acquire())
            detour.lose_an_answer()
            return await ask_once(request, *more)

        with monkeypatch.context() as patched:
            patched.setattr(requests, "ask_once", ask_and_note)
            assert client.rwlock("job", ttl=16).write().try_acquire() is None
        leases[0].release()
        assert drive(store_of(other).requests.ask(sent[0], requests.until())).succeeded
        until(lambda: not keys_below(f"{root}job%rwlock/"), within=SOON)
