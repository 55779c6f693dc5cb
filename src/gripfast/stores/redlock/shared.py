"""The nodes of a client whose requests share one connection to each: what asyncio and the simulation have in common."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from gripfast.core.ports import Inbox
from gripfast.core.redlock.ballot import majority
from gripfast.core.redlock.nodes import Ballot, Decided, Request
from gripfast.errors import ClientClosed
from gripfast.stores.inboxes import Inboxes
from gripfast.stores.redlock.polls import Poll, too_few
from gripfast.stores.redlock.protocol import Wording
from gripfast.stores.redlock.talk import Health, Node, NodeTalk, Talk


class SharedNodes:
    def __init__(
        self,
        nodes: Sequence[Node],
        talks: Sequence[NodeTalk],
        wording: Wording,
        inboxes: Inboxes,
        down: set[Health],
        new_future: Callable[[], Any],
    ) -> None:
        self.nodes = nodes
        self.names: Sequence[str] = [node.where for node in nodes]
        self.talk = Talk(talks, wording, down)
        self._inboxes = inboxes
        self.new_future = new_future
        self._listens = False
        self._is_closed = False

    async def poll(self, requests: Sequence[Request | None], ballot: Ballot, within: float = math.inf) -> None:
        if self._is_closed:
            raise ClientClosed
        await poll_on(self.talk, requests, ballot, within, self.new_future())

    def begin(self, requests: Sequence[Request | None], ballot: Ballot, decided: Decided) -> bool:
        """Requests of one owner share a connection, so whatever comes behind arrives behind."""
        asked = len(requests) - requests.count(None)
        up = [talk for talk, each in zip(self.talk.talks, requests, strict=True) if each is not None and talk.is_up]
        if self._is_closed or not asked or too_few(len(up), asked):
            return False
        self.talk.poll(requests, Poll(ballot, asked, decided), math.inf, asked)
        for talk in up:
            talk.flush()
        return True

    async def read_late(self, within: float = 0.0) -> bool:
        """Whatever is asked now is answered behind them; otherwise they are read as they come."""
        answers = [talk.barrier(self.new_future(), within) for talk in self.talk.talks if within and talk.owes]
        for answer in answers:
            await answer
        return False

    def send(self, request: Request, nodes: Iterable[int]) -> None:
        if not self._is_closed:
            self.talk.send(request, nodes)

    def hears(self, owner: str, inbox: Inbox) -> bool:
        self._inboxes.add(owner, inbox)
        if not self._listens:
            return False
        deaf = self._start_listening()
        return len(self.nodes) - deaf >= majority(len(self.nodes))

    def _start_listening(self) -> int:
        """Wherever nobody listens; to how many nodes that is."""
        deaf = [node for node in self.nodes if node.channel is None]
        for node in deaf:
            if node.trouble is None and not self._is_closed:
                node.notifications.start()
        return len(deaf)

    def _begin_to_listen(self) -> list[Any]:
        """What is being made."""
        self._listens = True
        self._start_listening()
        return [dialing for node in self.nodes if (dialing := node.notifications.dialing) is not None]

    def shut(self) -> None:
        self._inboxes.ask_again()

    async def close(self) -> None:
        self.close_now()

    def close_now(self) -> None:
        self._is_closed = True
        self.talk.close()
        for node in self.nodes:
            node.close()


async def poll_on(talk: Talk, requests: Sequence[Request | None], ballot: Ballot, within: float, decided: Any) -> None:
    """`decided`: a future."""
    asked = len(requests) - requests.count(None)
    if not asked:
        return
    poll = Poll(ballot, asked, decided)
    try:
        waiting = talk.poll(requests, poll, within, asked)
        error: Exception | None = await decided
        if error is not None:
            raise error
        if waiting and ballot.is_lost:
            poll.withdraw([question.talk for question in waiting if not question.was_sent])
    except BaseException:
        poll.is_dropped = True
        raise
    finally:
        poll.is_over = True
