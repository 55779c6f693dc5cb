"""The connection that all requests of a client share: deadlines, and the end of the client."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable, Generator
from types import FrameType
from typing import Any

import pytest

from gripfast.stores.faults import Fault
from gripfast.stores.inboxes import Inboxes
from gripfast.stores.redis.aio import _Listener
from gripfast.stores.redis.conversation import Server
from gripfast.stores.redis.shared import Opening, SharedLink
from gripfast.stores.redis.wire import Wire
from stores.conversation_stage import TIMEOUT, Begun, Clock, Once, Talk, Told, fault_of


def test_no_claim_leaves_while_its_client_is_being_closed_though_its_connection_is_open() -> None:
    """It would get the lock behind the clean-up of its client."""
    server, clock = Server("redis://a", 1.0), Clock()
    talk, opening = Talk(server, clock), Opening("redis://a", Told)
    opening.latest = talk
    link = SharedLink(server, opening, Opening("redis://a", Told), Inboxes(), lambda: clock.now, Told)
    link.stop_waiting()
    told = link.ask(b"claim", "me")
    assert isinstance(told, Told)
    assert (fault_of(told).was_sent, talk.sent) == (False, [])


class Future(Once):
    def __await__(self) -> Generator[None, None, Any]:
        while not self.replies:
            yield
        return self.replies[0]


ways_to_ask: list[Callable[[SharedLink], Any]] = [
    lambda link: link.ask(b"claim", "me"),
    lambda link: link.ask_many([b"renew", b"renew"]),
    lambda link: link.ask_behind(b"asking", b"claim", "me"),
]


def test_nor_does_one_that_replicas_would_acknowledge_and_it_is_not_repeated() -> None:
    server, clock = Server("redis://a", TIMEOUT), Clock()
    talk, opening = Talk(server, clock), Opening("redis://a", Future)
    opening.latest = talk
    link = SharedLink(server, opening, Opening("redis://a", Future), Inboxes(), lambda: clock.now, Future)
    link.stop_waiting()
    with pytest.raises(StopIteration) as ended:
        link.ask_acked([b"claim"], [b"wait"], owner="me").__await__().send(None)
    fault = ended.value.value
    assert (fault.was_sent, fault.was_idle, talk.sent) == (False, False, [])


@pytest.mark.parametrize("ask", ways_to_ask, ids=["one", "many", "behind"])
def test_a_request_and_the_connection_that_is_made_for_it_have_one_deadline(ask: Callable[[SharedLink], Any]) -> None:
    server, clock = Server("redis://a", TIMEOUT), Clock()
    opening = Begun(server.where, Future)
    link = SharedLink(server, opening, Begun(server.where, Future), Inboxes(), lambda: clock.now, Future)
    asked = ask(link)
    asked.send(None)
    clock.pass_by(TIMEOUT * 0.8)
    opening.made(opening.begun, Talk(server, clock), lambda made: made)
    asked.send(None)
    clock.pass_by(TIMEOUT * 0.2)
    with pytest.raises(StopIteration) as ended:
        asked.send(None)
    assert isinstance(ended.value.value, Fault)
    assert not ended.value.value.was_idle


def test_who_can_wait_for_less_does_not_give_up_a_connection_because_making_it_took_that_time() -> None:
    """Each try to renew would make another one, and give it up before the reply can be there."""
    server, clock = Server("redis://a", TIMEOUT), Clock()
    opening = Begun(server.where, Future)
    link = SharedLink(server, opening, Begun(server.where, Future), Inboxes(), lambda: clock.now, Future)
    asked = link.ask_many([b"renew"], within=TIMEOUT / 4).__await__()
    asked.send(None)
    clock.pass_by(TIMEOUT * 0.3)
    talk = Talk(server, clock)
    opening.made(opening.begun, talk, lambda made: made)
    asked.send(None)
    clock.pass_by(TIMEOUT * 0.2)
    assert talk.is_open
    talk.take(b"renewed")
    with pytest.raises(StopIteration) as ended:
        asked.send(None)
    assert ended.value.value == [b"renewed"]


def test_an_interrupt_while_a_listener_is_made_leaves_none_that_can_not_end() -> None:
    """The loop would call it for ever."""

    async def make(at: int) -> int:
        loop, troubles, seen = asyncio.get_running_loop(), list[Any](), list[int]()
        loop.set_exception_handler(lambda _, context: troubles.append(context))

        def on_line(frame: FrameType, event: str, _: object) -> Callable[..., Any]:
            if event == "line" and frame.f_code.co_name == "__init__":
                seen.append(frame.f_lineno)
                if len(seen) == at:
                    raise KeyboardInterrupt
            return on_line

        ours, theirs = socket.socketpair()
        wire, fd = Wire(ours, TIMEOUT), ours.fileno()
        with ours:
            sys.settrace(on_line)
            try:
                _Listener(loop, wire, Server("redis://a", TIMEOUT), b"there", Inboxes())
            except KeyboardInterrupt:
                pass
            finally:
                sys.settrace(None)
            theirs.close()
            for _ in range(3):
                await asyncio.sleep(0)
            assert (loop.remove_reader(fd), troubles) == (False, []), at
            wire.close()
        return len(seen)

    lines = asyncio.run(make(0))
    assert lines > 10
    for at in range(1, lines + 1):
        asyncio.run(make(at))
