"""How a request is tried: at which member, for how long, and with which token. The same for both drivers.

- All requests go to one member, the current one, until that is found wanting: it can't be reached, gave no answer in
  time, has no leader, is a learner, or does not know what became of a request. Then the next one of the URL is current.
- A caller whose own deadline was near learns nothing about a member (`ENOUGH`).
- A try that was answered with a refusal is not repeated elsewhere: the members are one cluster.
- If the token has expired, the request is repeated with a new one, within the same try. One login serves all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeVar

from gripfast.machine import boottime
from gripfast.stores.etcd import faults
from gripfast.stores.etcd.conversation import Conversation
from gripfast.stores.etcd.dial import Dialer
from gripfast.stores.etcd.link import Refusal, Told
from gripfast.stores.etcd.maintenance import AuthenticateRequest, AuthenticateResponse
from gripfast.stores.etcd.messages import Request
from gripfast.stores.faults import Fault

R = TypeVar("R")

ENOUGH = 0.5
"""Of a time-out: a member that gave no answer within that is left."""
LOGIN_EVERY = 10.0
"""Seconds between two logins because watches were refused: a login costs a member as much as 50 requests."""


class Members:
    def __init__(self, endpoints: Sequence[str]) -> None:
        self.endpoints = tuple(endpoints)
        self.current = self.endpoints[0]

    def leave(self, endpoint: str) -> None:
        """Unless another one is current by now."""
        if self.current == endpoint:
            place = self.endpoints.index(endpoint)
            self.current = self.endpoints[(place + 1) % len(self.endpoints)]


class Tries:
    """What has become of some requests."""

    def __init__(self, requests: Sequence[Request[Any]]) -> None:
        self.answers: list[Any] = [None] * len(requests)
        self._requests = requests
        self._open = range(len(requests))
        self._doubtful: set[int] = set()
        """Those that a try without an answer may have carried out."""

    @property
    def open(self) -> list[Request[Any]]:
        return [self._requests[place] for place in self._open]

    @property
    def has_doubt(self) -> bool:
        return bool(self._doubtful)

    def take(self, answers: Sequence[Any]) -> Fault | None:
        """Of those that were open. A Fault for which another member should be tried."""
        failed: list[int] = []
        found: Fault | None = None
        for place, answer in zip(self._open, answers, strict=True):
            self.answers[place] = faults.was_sent(answer) if place in self._doubtful else answer
            if isinstance(answer, Fault) and answer.kind == "down":
                failed.append(place)
                found = answer
                if answer.was_sent:
                    self._doubtful.add(place)
        self._open = failed  # type: ignore[assignment]
        return found


class Calling:
    """What both drivers have. A driver has the last three methods."""

    def __init__(self, dialer: Dialer) -> None:
        self.where = dialer.where
        self.timeout = dialer.timeout
        self.endpoints: Sequence[str] = dialer.endpoints
        self.members = Members(dialer.endpoints)
        self.token: str | None = None
        """Empty if no user is needed; None before the first login."""
        self._dialer = dialer
        self._refused_token: str | None = None
        """That a refused watch had."""
        self._next_login = 0.0

    async def call(self, request: Request[R], until: float, each: float = math.inf) -> R | Refusal | Fault:
        return (await self.call_told(request, until, each)).answer  # type: ignore[no-any-return]

    async def call_told(self, request: Request[Any], until: float, each: float = math.inf) -> Told:
        tries = await self._tried((request,), until, each)
        return Told(tries.answers[0], tries.has_doubt)

    async def call_many(self, requests: Sequence[Request[Any]], until: float, each: float = math.inf) -> list[Any]:
        return (await self._tried(requests, until, each)).answers

    async def _tried(self, requests: Sequence[Request[Any]], until: float, each: float) -> Tries:
        tries = Tries(requests)
        for _ in range(len(self.endpoints) + 1):
            began, endpoint = boottime(), self.members.current
            seconds = min(each, until - began)
            if seconds <= 0.0 and tries.answers[0] is not None:
                break
            fault = tries.take(await self._attempt(endpoint, tries.open, began + max(seconds, 0.001)))
            if fault is None:
                break
            if seconds >= min(each, self.timeout) * ENOUGH or boottime() < began + seconds:  # time enough, or at once
                self._leave(endpoint)
        return tries

    async def call_at(self, endpoint: str, request: Request[R], until: float) -> R | Refusal | Fault:
        answers: list[R | Refusal | Fault] = await self._attempt(endpoint, (request,), until, with_leader=False)
        return answers[0]

    async def _attempt(
        self, endpoint: str, requests: Sequence[Request[Any]], until: float, with_leader: bool = True
    ) -> list[Any]:
        if self.token is None and (trouble := await self._logged_in(endpoint, None, until)) is not None:
            return [trouble.copy() for _ in requests]
        token = self.token or ""
        answers = await self._exchange(endpoint, requests, until, token, with_leader)
        if self._dialer.login is None:
            return answers
        places = [place for place, answer in enumerate(answers) if faults.lacks_token(answer)]
        if places and (trouble := await self._logged_in(endpoint, token, until)) is None:
            again = [requests[place] for place in places]
            later = await self._exchange(endpoint, again, until, self.token or "", with_leader)
            for place, answer in zip(places, later, strict=True):
                answers[place] = answer
        elif places:
            for place in places:
                answers[place] = trouble.copy() if trouble is not None else answers[place]
        return answers

    async def _logged_in(self, endpoint: str, old: str | None, until: float) -> Fault | None:
        """Have another token than this old one."""
        if self.token != old:
            return None
        if self._dialer.login is None:
            self.token = ""
            return None
        return await self._log_in(endpoint, old, until)

    # -- watches ---------------------------------------------------------------------------------------------------

    async def _ready_to_watch(self, endpoint: str, until: float) -> Fault | None:
        """A member that refuses a watch does not say whether its token has expired, or rights are missing. So the next
        one has a new token, but not after every refusal."""
        if self._refused_token is not None and boottime() >= self._next_login:
            self._next_login, old = boottime() + LOGIN_EVERY, self._refused_token
            self._refused_token = None
            return await self._logged_in(endpoint, old, until)
        return await self._logged_in(endpoint, None, until)

    def watch_refused(self, conversation: Conversation) -> None:
        """The next watch begins a new stream, with what is the token by then."""
        self._refused_token = self.token
        conversation.lose_watches(faults.cut(conversation.where, "another watch was refused"))

    # -- tokens ----------------------------------------------------------------------------------------------------

    def _login_request(self) -> AuthenticateRequest:
        assert self._dialer.login is not None
        return AuthenticateRequest(*self._dialer.login)

    def _took_token(self, answer: AuthenticateResponse | Refusal | Fault) -> Fault | None:
        if isinstance(answer, AuthenticateResponse):
            self.token = answer.token
            return None
        if isinstance(answer, Refusal):
            if answer.message == faults.AUTH_IS_OFF:
                self.token = ""
                return None
            answer = faults.fault_of(answer)
        return answer._replace(was_sent=False)  # whoever logs in has requested nothing yet

    # -- the driver's part -----------------------------------------------------------------------------------------

    async def _exchange(
        self, endpoint: str, requests: Sequence[Request[Any]], until: float, token: str, with_leader: bool
    ) -> list[Any]:
        """An answer for each, on one connection."""
        raise NotImplementedError

    async def _log_in(self, endpoint: str, old: str | None, until: float) -> Fault | None:
        """One at a time; whoever comes meanwhile shares what comes of it."""
        raise NotImplementedError

    def _leave(self, endpoint: str) -> None:
        """Use the connections to this member no more."""
        raise NotImplementedError
