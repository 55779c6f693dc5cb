"""Requests at real members, sync and async."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from gripfast.errors import ClientClosed
from gripfast.machine import boottime
from gripfast.runtime.blocking import drive
from gripfast.stores import etcd
from gripfast.stores.etcd.aio import AioLink
from gripfast.stores.etcd.blocking import BlockingLink
from gripfast.stores.etcd.dial import Dialer
from gripfast.stores.etcd.faults import LEASE_EXISTS
from gripfast.stores.etcd.link import Refusal
from gripfast.stores.etcd.maintenance import StatusRequest
from gripfast.stores.etcd.messages import (
    CREATE,
    EQUAL,
    Compare,
    DeleteRangeRequest,
    LeaseGrantRequest,
    PutRequest,
    RangeRequest,
    TxnRequest,
)
from gripfast.stores.faults import Fault
from stores import etcd_stage
from stores.etcd_stage import EACH, SOON, Stage, address, new_key, stage
from support.etcd_servers import EtcdServer, Trio, etcd_server
from support.ports import closed_port
from support.proxy import Proxy
from support.server_process import HOST
from support.sweeping import sweep_interrupts
from support.waiting import auntil, until

actor, colour, proxy, trio = etcd_stage.actor, etcd_stage.colour, etcd_stage.proxy, etcd_stage.trio


def value(answer: Any) -> bytes:
    assert not isinstance(answer, Fault | Refusal), answer
    found: bytes = answer.kvs[0].value
    return found


# -- requests ----------------------------------------------------------------------------------------------------------


def test_a_transaction_and_what_it_answers(actor: Stage) -> None:
    key = new_key()
    create = TxnRequest((Compare(CREATE, key, EQUAL, 0),), (PutRequest(key, b"mine"),), (RangeRequest(key),))
    first, second = actor.call(create), actor.call(create)
    assert first.succeeded
    assert not second.succeeded
    (found,) = second.responses
    assert (found.kvs[0].value, found.kvs[0].create_revision) == (b"mine", first.header.revision)
    assert first.header.cluster_id == second.header.cluster_id != 0


def test_a_refusal_names_its_reason_and_its_member(actor: Stage) -> None:
    number = int.from_bytes(os.urandom(7))
    assert actor.call(LeaseGrantRequest(60, number)).id == number
    assert actor.call(LeaseGrantRequest(60, number)) == Refusal(9, LEASE_EXISTS, f"etcd://{etcd_server().address}")


def test_many_leave_together_and_one_that_fails_costs_no_other(actor: Stage, proxy: Proxy) -> None:
    key = new_key()
    answers = actor.call_many([PutRequest(key, b"1"), PutRequest(b""), PutRequest(key, b"2"), RangeRequest(key)])
    assert [isinstance(each, Refusal) for each in answers] == [False, True, False, False]


def test_many_share_one_connection(colour: str, proxy: Proxy) -> None:
    with stage(colour, address(proxy)) as actor:
        keys = [new_key() for _ in range(20)]
        actor.call_many([PutRequest(key, key) for key in keys])
        answers = actor.call_many([RangeRequest(key) for key in keys])
        assert [value(each) for each in answers] == keys
        assert proxy.connections == 1


class CountingSocket:
    """A socket, and how often something was sent on it."""

    def __init__(self, sock: Any) -> None:
        self._sock = sock
        self.sent = 0

    def send(self, data: bytes) -> int:
        self.sent += 1
        return int(self._sock.send(data))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)


def test_what_a_member_wants_to_know_leaves_with_the_next_request() -> None:
    """A member sends PING with its answers; a packet for each reply would cost as much as a request."""
    wire = Dialer([etcd_server().address], SOON).dial(etcd_server().address, SOON)
    counting = CountingSocket(wire.sock)
    wire.sock = counting  # type: ignore[assignment]
    with contextlib.closing(wire):
        pinged = 0
        wire.exchange([RangeRequest(b"nobody")], boottime() + SOON, "", True)  # and the settings
        counting.sent = 0
        for _ in range(20):
            (answer,) = wire.exchange([RangeRequest(b"nobody")], boottime() + SOON, "", True)
            assert value_count(answer) == 0
            pinged += wire.conversation.has_output
        assert counting.sent == 20
        assert pinged >= 5
        assert wire.refresh()


def value_count(answer: Any) -> int:
    assert not isinstance(answer, Fault | Refusal), answer
    return len(answer.kvs)


def test_a_large_transaction_and_a_large_answer(actor: Stage) -> None:
    """Larger than all windows that there are at first."""
    prefix, large = new_key(), b"x" * 10_000
    puts = tuple(PutRequest(prefix + b"/%03d" % each, large) for each in range(100))
    assert actor.call(TxnRequest((), puts)).succeeded
    found = actor.call(RangeRequest(prefix, prefix + b"0"))
    assert [kv.value for kv in found.kvs] == [large] * 100


def test_a_thousand_tasks_share_one_connection(proxy: Proxy) -> None:
    async def one(link: AioLink, number: int) -> bool:
        key = prefix + b"/%d" % number
        put = await link.call(PutRequest(key, b"%d" % number), boottime() + 60)
        got = await link.call(RangeRequest(key), boottime() + 60)
        return not isinstance(put, Fault) and value(got) == b"%d" % number

    async def all_of_them() -> list[bool]:
        link = AioLink(Dialer([address(proxy)], 60))
        try:
            return await asyncio.gather(*[one(link, number) for number in range(1000)])
        finally:
            await link.close()

    prefix = new_key()
    assert all(asyncio.run(all_of_them()))
    assert proxy.connections == 1


def test_threads_each_get_their_own_answers() -> None:
    link, prefix = BlockingLink(Dialer([etcd_server().address], SOON)), new_key()

    def one(number: int) -> bool:
        key = prefix + b"/%d" % number
        drive(link.call(PutRequest(key, b"%d" % number), boottime() + 30))
        return value(drive(link.call(RangeRequest(key), boottime() + 30))) == b"%d" % number

    with ThreadPoolExecutor(16) as threads:
        assert all(threads.map(one, range(200)))
    drive(link.close())


# -- members that can't serve ------------------------------------------------------------------------------------------


def test_nobody_listens(colour: str) -> None:
    with stage(colour, f"{HOST}:{closed_port()}") as actor:
        fault = actor.call(PutRequest(b"a"))
        assert isinstance(fault, Fault)
        assert not fault.was_sent
        assert fault.was_refused
        assert "check that the server runs" in str(fault.error)


def test_a_name_that_is_not_known(colour: str) -> None:
    with stage(colour, "nowhere.invalid:2379") as actor:
        fault = actor.call(PutRequest(b"a"))
        assert "nowhere.invalid" in str(fault.error)
        assert not fault.was_sent


@contextlib.contextmanager
def listener() -> Iterator[socket.socket]:
    with socket.create_server((HOST, 0)) as listening:
        yield listening


def test_a_member_that_answers_nothing_is_left_in_time(colour: str) -> None:
    """The system accepts the connection for it."""
    with listener() as silent, stage(colour, f"{HOST}:{silent.getsockname()[1]}", etcd_server().address) as actor:
        began, key = boottime(), new_key()
        assert not isinstance(actor.call(PutRequest(key, b"1"), each=EACH), Fault)
        assert EACH <= boottime() - began < EACH + 2.0
        began = boottime()
        assert value(actor.call(RangeRequest(key), each=EACH)) == b"1"
        assert boottime() - began < EACH, "it is not asked again"


def test_a_silent_member_that_was_tried_last_is_not_tried_first(colour: str) -> None:
    """Its second try ended a little early, with the call. Whoever renews has not the time to wait for it once more."""
    with listener() as silent:
        endpoints = f"{HOST}:{silent.getsockname()[1]}", f"{HOST}:{closed_port()}"
        with stage(colour, *endpoints) as actor:
            assert isinstance(actor.call(PutRequest(b"a"), seconds=1.9, each=1.0), Fault)
            assert actor.link.members.current == endpoints[1]


def test_what_a_silent_member_was_sent_may_have_had_an_effect(colour: str) -> None:
    with listener() as silent, stage(colour, f"{HOST}:{silent.getsockname()[1]}") as actor:
        fault = actor.call(PutRequest(b"a"), seconds=EACH)
        assert fault.was_sent
        assert "did not answer" in str(fault.error)


def test_a_server_of_another_kind(colour: str) -> None:
    def answer(connection: socket.socket) -> None:
        with connection:
            connection.recv(1000)
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                answer(server.accept()[0])

    with listener() as server:
        serving = threading.Thread(target=serve, daemon=True)
        serving.start()
        with stage(colour, f"{HOST}:{server.getsockname()[1]}") as actor:
            assert "check that an etcd member is at this address" in str(actor.call(PutRequest(b"a")).error)
        server.shutdown(socket.SHUT_RDWR)
        serving.join()


def test_a_restarted_member_is_found_again(colour: str) -> None:
    with EtcdServer() as server, stage(colour, server.address) as actor:
        key = new_key()
        actor.call(PutRequest(key, b"1"))
        server.stop()
        assert isinstance(actor.call(RangeRequest(key)), Fault)
        server.restart()
        assert value(actor.call(RangeRequest(key))) == b"1"


def test_a_stopped_member_is_left_within_a_try(colour: str, trio: Trio) -> None:
    stopped, *others = trio.followers()
    with stage(colour, stopped.address, *(server.address for server in others)) as actor:
        key = new_key()
        actor.call(PutRequest(key, b"1"))
        try:
            stopped.pause()
            began = boottime()
            assert value(actor.call(RangeRequest(key), each=EACH)) == b"1"
            assert EACH <= boottime() - began < EACH + 2.0
        finally:
            stopped.resume()


def test_whoever_has_to_know_is_told_that_a_request_was_repeated(colour: str, trio: Trio) -> None:
    stopped, *others = trio.followers()
    with stage(colour, stopped.address, *(server.address for server in others)) as actor:
        key = new_key()
        assert not actor.call_told(RangeRequest(key)).was_repeated
        try:
            stopped.pause()
            told = actor.call_told(PutRequest(key, b"late"), each=EACH)
            assert told.was_repeated
            assert value(actor.call(RangeRequest(key))) == b"late"
        finally:
            stopped.resume()


def test_a_member_without_a_leader_says_so_and_has_done_nothing(colour: str) -> None:
    with Trio() as own:
        last, *others = own.servers
        with stage(colour, last.address) as actor:
            actor.call(RangeRequest(b"a"))
            for server in others:
                server.kill()
            faults: list[Fault] = []

            def has_no_leader() -> bool:
                faults.append(actor.call(PutRequest(b"a"), seconds=1.0))
                return "has no leader" in str(faults[-1].error)

            until(has_no_leader, within=20)
            assert not faults[-1].was_sent
            status = actor.run(actor.link.call_at(last.address, StatusRequest(), boottime() + SOON))
            assert status.leader == 0


def test_a_learner_is_left(colour: str) -> None:
    with Trio() as own:
        learner = own.add_learner()
        with stage(colour, learner.address) as actor:
            assert "is a learner" in str(actor.call(RangeRequest(b"a")).error)
        with stage(colour, learner.address, own.servers[0].address) as actor:
            assert not isinstance(actor.call(RangeRequest(b"a")), Fault)


@pytest.mark.parametrize("direction", ["requests", "replies"])
def test_a_connection_cut_at_any_byte_costs_one_try(colour: str, proxy: Proxy, direction: Any) -> None:
    with stage(colour, address(proxy)) as actor:
        key = new_key()
        for count in range(0, 260, 7):
            proxy.cut_after(count, direction)
            for number in range(8):
                if not proxy.armed():
                    break
                assert not isinstance(actor.call(PutRequest(key, b"%d" % number)), Fault)
                assert value(actor.call(RangeRequest(key))) == b"%d" % number
            assert not proxy.armed()
            assert actor.call(RangeRequest(key)).kvs, "what was cut behind an answer is noticed by the next"


# -- nobody gets another's answer --------------------------------------------------------------------------------------


def test_the_answer_to_a_request_that_was_given_up_reaches_nobody(colour: str, proxy: Proxy) -> None:
    with stage(colour, address(proxy)) as actor:
        one, two = new_key(), new_key()
        actor.call_many([PutRequest(one, b"1"), PutRequest(two, b"2")])
        proxy.hold()
        assert isinstance(actor.call(RangeRequest(one), seconds=0.1), Fault)
        until(lambda: proxy.held() > 0)
        proxy.let_go()
        assert value(actor.call(RangeRequest(two))) == b"2"
        assert proxy.connections == 1, "so short a time blames nobody"


def test_a_connection_that_was_silent_is_left_though_its_member_is_not(colour: str, proxy: Proxy) -> None:
    """A firewall may have forgotten it. A renewal of a short lease has no time to blame its member."""
    with stage(colour, address(proxy)) as actor:
        actor.call(RangeRequest(b"a"))
        proxy.hold()
        assert isinstance(actor.call(RangeRequest(b"a"), seconds=0.5), Fault)
        proxy.let_go()
        actor.call(RangeRequest(b"a"))
        assert proxy.connections == 2


def test_a_cancelled_task_leaves_no_answer_for_the_next(proxy: Proxy) -> None:
    async def scenario() -> None:
        link = AioLink(Dialer([address(proxy)], SOON))
        keys = [new_key() for _ in range(50)]
        await link.call_many([PutRequest(key, key) for key in keys], boottime() + SOON)
        for turns in range(6):
            tasks = [asyncio.create_task(link.call(RangeRequest(key), boottime() + SOON)) for key in keys]
            for _ in range(turns):
                await asyncio.sleep(0)
            for task in tasks[::2]:
                task.cancel()
            answers = await asyncio.gather(*tasks, return_exceptions=True)
            cancelled = [isinstance(each, asyncio.CancelledError) for each in answers]
            assert all(cancelled[::2]) or turns > 2, "later, some have their answers already"
            assert not any(cancelled[1::2])
            for key, answer, was_cancelled in zip(keys, answers, cancelled, strict=True):
                assert was_cancelled or value(answer) == key
        assert link._wires[address(proxy)].conversation.calls_open == 0
        await link.close()

    asyncio.run(scenario())
    assert proxy.connections == 1


def test_a_cancelled_request_is_not_kept_until_its_answer_comes(proxy: Proxy) -> None:
    async def scenario() -> None:
        link = AioLink(Dialer([address(proxy)], SOON))
        await link.call(RangeRequest(b"a"), boottime() + SOON)
        conversation = link._wires[address(proxy)].conversation
        proxy.hold()
        task = asyncio.create_task(link.call(RangeRequest(b"a"), boottime() + SOON))
        await auntil(lambda: proxy.held() > 0)
        assert conversation.calls_open == 1
        task.cancel()
        await asyncio.wait([task])
        assert conversation.calls_open == 0
        assert not conversation.frames.streams
        await link.close()

    asyncio.run(scenario())


class Interrupted:
    """One request, interrupted; then the next, whose answer must be its own."""

    def __init__(self) -> None:
        self.link = BlockingLink(Dialer([etcd_server().address], SOON))
        self.one, self.two = new_key(), new_key()
        for key in (self.one, self.two):
            self.read(PutRequest(key, key))

    def read(self, request: Any) -> Any:
        return drive(self.link.call(request, boottime() + SOON))

    def begin(self) -> Any:
        return lambda: self.read(RangeRequest(self.one))

    def problem(self) -> str | None:
        gc.collect()
        answer = self.read(RangeRequest(self.two))
        return None if value(answer) == self.two else f"got {answer}"


def test_an_interrupt_anywhere_leaves_no_answer_for_the_next() -> None:
    trial = Interrupted()
    swept = sweep_interrupts(trial, os.path.dirname(etcd.__file__), budget=150)
    assert swept.broken > 100
    assert not swept.findings, swept.explain()
    assert len(trial.link._idle) <= 1
    drive(trial.link.close())


# -- the end -----------------------------------------------------------------------------------------------------------


def test_a_forked_child_has_connections_of_its_own_and_says_nothing_on_those_of_its_parent(proxy: Proxy) -> None:
    with stage("sync", address(proxy)) as actor:
        key = new_key()
        put = actor.call(PutRequest(key, b"1"))
        heard = actor.watch(key, put.header.revision + 1)
        actor.call(RangeRequest(key))
        before = proxy.connections
        if (child := os.fork()) == 0:
            os._exit(0 if value(actor.call(RangeRequest(key))) == b"1" else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert proxy.connections == before + 1
        actor.call(DeleteRangeRequest(key))
        assert heard.hear().kind == "changed"
        assert proxy.connections == before + 1


def test_a_closed_link_of_a_loop_that_is_gone_is_closed_all_the_same(proxy: Proxy) -> None:
    links: list[AioLink] = []

    async def use() -> None:
        links.append(link := AioLink(Dialer([address(proxy)], SOON)))
        await link.call(RangeRequest(b"a"), boottime() + SOON)

    asyncio.run(use())
    links[0].close_soon()
    until(lambda: proxy.open_connections == 0)


def test_a_closed_link_takes_no_requests() -> None:
    async def use() -> None:
        link = AioLink(Dialer([etcd_server().address], SOON))
        await link.call(RangeRequest(b"a"), boottime() + SOON)
        await link.close()
        with pytest.raises(ClientClosed):
            await link.call(RangeRequest(b"a"), boottime() + SOON)

    asyncio.run(use())
