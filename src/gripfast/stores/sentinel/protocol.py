"""What is asked of a Sentinel, and what its replies say. Pure."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from hiredis import ReplyError

from gripfast.stores.redis.followers import Replicas, address
from gripfast.stores.redis.protocol import command

T = TypeVar("T")

ROLE = command(b"ROLE")


class Question(NamedTuple, Generic[T]):
    commands: list[bytes]
    read: Callable[[Sequence[Any]], T | None]
    """From the replies to the answer; None if the service is unknown there. Raises ReplyError."""


class View(NamedTuple):
    """What a Sentinel says about the primary of a service."""

    host: str
    port: int
    epoch: int
    """It grows with every failover: of two Sentinels that disagree, the one with the larger number knows more."""


def primary(service: str, others_least: int) -> Question[View]:
    """The first command tells of a promotion at once; the second one has the epoch. `others_least`: a Sentinel that
    knows fewer others does not count."""
    name = service.encode()
    commands = [command(b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME", name), command(b"SENTINEL", b"MASTER", name)]
    return Question(commands, functools.partial(_read_view, others_least))


def _read_view(others_least: int, replies: Sequence[Any]) -> View | None:
    """A Sentinel may keep the second answer to itself."""
    address, state = replies
    if isinstance(address, ReplyError):
        raise address
    fields = _fields(state) if isinstance(state, list) else {}
    if address is None or int(fields.get(b"num-other-sentinels", 0)) < others_least:
        return None
    host, port = address
    return View(host.decode(), int(port), int(fields.get(b"config-epoch", 0)))


class Listed(NamedTuple):
    epoch: int
    replicas: Replicas


def replicas(service: str) -> Question[Listed]:
    name = service.encode()
    commands = [command(b"SENTINEL", b"REPLICAS", name), command(b"SENTINEL", b"MASTER", name)]
    return Question(commands, _read_replicas)


def _read_replicas(replies: Sequence[Any]) -> Listed | None:
    """Which replicas it may promote some day: also those that are down now, but none with the priority 0."""
    listed, state = replies
    if isinstance(listed, ReplyError):
        if "No such" in str(listed):
            return None
        raise listed
    fields = [_fields(each) for each in listed]
    known = {address(each[b"ip"], each[b"port"]): each.get(b"slave-priority") for each in fields}
    promotable = frozenset(each for each, priority in known.items() if priority != b"0")
    epoch = _fields(state).get(b"config-epoch", 0) if isinstance(state, list) else 0
    return Listed(int(epoch), Replicas(promotable, frozenset(known)))


def is_primary(role: Any) -> bool:
    return isinstance(role, list) and role[:1] == [b"master"]


def _fields(pairs: Sequence[bytes]) -> dict[bytes, bytes]:
    return dict(zip(pairs[::2], pairs[1::2], strict=True))
