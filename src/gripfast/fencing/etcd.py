"""Fenced writes for etcd: the token's check is a compare in the transaction that writes.

The fence is a key, `fence:` + resource, its value the largest exclusive token seen, in decimal digits. Those who share
the resource have another one, `fence-shared:` + resource (`fencing/shared.py` has the rule for the two numbers).

A transaction of etcd's compares with values that were known before, and all its compares must hold: there is no "or".
So a token is let in by two steps. The first puts it into the fence, if what was seen there is not larger, and is still
there. From then on the compare is "the fence is as I left it": whoever comes with a larger token changes it first, and
no write of the former one is carried out any more. For a token that is in the fence already, `put` needs one step.

Nothing here relies on the time, nor on where the lock is: its token may be that of any store. The client library is
the caller's own. It is recognised by the name of its class, and not imported.
"""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, overload

from gripfast.drivers import full_name, is_a
from gripfast.errors import ConfigurationError, StaleToken
from gripfast.fencing.checks import MAX_TOKEN, checked_resource, checked_token

if TYPE_CHECKING:
    from aetcd.client import Client as AetcdClient  # type: ignore[import-untyped]
    from etcd3gw.client import Etcd3Client

T = TypeVar("T")
Values = Sequence[bytes | None]
"""Of the keys of a fence, in their order; None: there is no such key."""
Expected = Mapping[bytes, bytes | None]
Transact = Callable[[Expected, Mapping[bytes, bytes], Sequence[bytes]], Awaitable[Values | None]]
"""Put these values if those are as expected; otherwise read these keys. None if it was done."""

EXCLUSIVE, SHARED = b"fence:", b"fence-shared:"
BLOCKING = ("etcd3gw.client.Etcd3Client",)
ASYNCIO = ("aetcd.client.Client",)


@overload
def put(
    client: Etcd3Client, resource: str, token: int, key: str | bytes, value: str | bytes, *, shared: bool = False
) -> None: ...


@overload
def put(
    client: AetcdClient, resource: str, token: int, key: str | bytes, value: str | bytes, *, shared: bool = False
) -> Awaitable[None]: ...


def put(
    client: Any, resource: str, token: int, key: str | bytes, value: str | bytes, *, shared: bool = False
) -> Awaitable[None] | None:
    """Put a value into etcd, or raise StaleToken if a larger token was seen there for the resource.

        put(client, "invoice:7", lease.token, "invoices/7", "paid")

    The check and the write are one transaction. `client` is one of etcd3gw or of aetcd; with the latter, await the
    call. An equal token is the same holder writing again. For more than one put, use `compare`.

    `shared`: the holder shares the resource with others, as a reader of a read/write lock does. The token is stale only
    if a larger token was seen that was not shared.
    """
    fence, puts = _fence(client, resource, token, shared), {_key(key): _bytes(value)}

    async def run(transact: Transact) -> None:
        await fence.enter(transact, puts)

    return _run(client, run)


@overload
def compare(client: Etcd3Client, resource: str, token: int, *, shared: bool = False) -> list[dict[str, Any]]: ...


@overload
def compare(client: AetcdClient, resource: str, token: int, *, shared: bool = False) -> Awaitable[list[Any]]: ...


def compare(client: Any, resource: str, token: int, *, shared: bool = False) -> list[Any] | Awaitable[list[Any]]:
    """What to compare in a transaction of your own on etcd, so that it writes nothing once a larger token was seen for
    the resource. Raises StaleToken if that is so already; otherwise stores this token.

        fence = compare(client, "invoice:7", lease.token)       # first; then read, then write
        client.transaction({"compare": fence, "success": [...], "failure": []})

    `client` is one of etcd3gw or of aetcd; with the latter, await the call. What it returns is a list in the form that
    this client takes. The list protects only a write in the same transaction. You may add compares of your own, and use
    the list again for as long as you hold the lock.

    If the transaction does not succeed, nothing was written. Then call `compare` again. If a larger token was seen, it
    raises StaleToken. Otherwise, for example if a compare of your own was the reason, it returns the list for the next
    try.

    `shared`: as for `put`.
    """
    fence = _fence(client, resource, token, shared)

    async def run(transact: Transact) -> list[Any]:
        expected = await fence.enter(transact, {})
        translate = _of_aetcd if is_a(client, ASYNCIO) else _of_etcd3gw
        return [translate(key, value) for key, value in expected.items()]

    return _run(client, run)


def is_client(thing: object) -> bool:
    return is_a(thing, BLOCKING + ASYNCIO)


# -- the rule ----------------------------------------------------------------------------------------------------------


class _Fence(NamedTuple):
    """Of one resource, for a token that is to be let in."""

    resource: str
    token: int
    is_shared: bool

    @property
    def keys(self) -> tuple[bytes, bytes]:
        name = self.resource.encode()
        return EXCLUSIVE + name, SHARED + name

    async def enter(self, transact: Transact, puts: Mapping[bytes, bytes]) -> Expected:
        """What the fence has to be like from now on. It only grows, so this ends."""
        values: Values = (None if self.is_shared else self._digits, None)  # a guess: it has been here before
        while True:
            noted = self._noted(*map(self._number, self.keys, values))
            expected = dict(zip(self.keys, values, strict=True))
            found = await transact(expected, {**noted, **puts}, self.keys)
            if found is None:
                return self._left({**expected, **noted})
            values = found

    def _noted(self, exclusive: int, shared: int) -> dict[bytes, bytes]:
        """What is to be put into the fence."""
        least = exclusive if self.is_shared else max(exclusive, shared)
        if self.token < least:
            raise StaleToken(self.resource, self.token, least)
        key, last = (self.keys[1], shared) if self.is_shared else (self.keys[0], exclusive)
        return {key: self._digits} if self.token > last or not last else {}

    def _left(self, expected: dict[bytes, bytes | None]) -> Expected:
        """Others who share the resource may come and go."""
        if self.is_shared:
            del expected[self.keys[1]]
        return expected

    @property
    def _digits(self) -> bytes:
        return b"%d" % self.token

    def _number(self, key: bytes, value: bytes | None) -> int:
        if value is None:
            return 0
        if not value.isdigit() or len(value) > len(str(MAX_TOKEN)):
            raise ConfigurationError(
                f"the value of the key {key.decode()!r} is not a token, so nothing was written: see what put it there, "
                "and delete it"
            )
        return int(value)


def _fence(client: object, resource: object, token: object, shared: bool) -> _Fence:
    if not is_client(client):
        raise ConfigurationError(
            f"fenced writes to etcd need a client of etcd3gw or of aetcd, not a {full_name(type(client))}"
        )
    return _Fence(checked_resource(resource), checked_token(token), bool(shared))


def _key(text: object) -> bytes:
    key = _bytes(text)
    if not key:
        raise ConfigurationError("the key is empty, and etcd refuses empty keys: give it a name")
    if key.startswith((EXCLUSIVE, SHARED)):  # a put there could let a late writer in
        raise ConfigurationError(f"the key {key!r} is where the token of a resource is kept: write to another one")
    return key


def _bytes(text: object) -> bytes:
    if not isinstance(text, str | bytes):
        raise ConfigurationError(f"a key or value must be text or bytes, not {type(text).__name__}")
    try:
        return text.encode() if isinstance(text, str) else text
    except UnicodeEncodeError:
        raise ConfigurationError(f"a key or value must be valid Unicode text, or bytes, not {text!r:.80}") from None


# -- client libraries --------------------------------------------------------------------------------------------------


def _run(client: Any, steps: Callable[[Transact], Coroutine[Any, Any, T]]) -> T | Coroutine[Any, Any, T]:
    if is_a(client, ASYNCIO):
        return steps(_aetcd(client))
    try:
        steps(_etcd3gw(client)).send(None)  # a client that blocks never suspends: it runs to its end
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    raise AssertionError("a client that blocks has suspended")


def _etcd3gw(client: Any) -> Transact:
    async def transact(expected: Expected, puts: Mapping[bytes, bytes], read: Sequence[bytes]) -> Values | None:
        answer = client.transaction(
            {
                "compare": [_of_etcd3gw(key, value) for key, value in expected.items()],
                "success": [{"request_put": {"key": _64(key), "value": _64(value)}} for key, value in puts.items()],
                "failure": [{"request_range": {"key": _64(key)}} for key in read],
            }
        )
        if answer.get("succeeded"):
            return None
        found = [each["response_range"].get("kvs") for each in answer["responses"]]
        return [base64.b64decode(kvs[0].get("value", "")) if kvs else None for kvs in found]

    return transact


def _of_etcd3gw(key: bytes, value: bytes | None) -> dict[str, Any]:
    if value is None:
        return {"key": _64(key), "target": "CREATE", "result": "EQUAL", "create_revision": 0}
    return {"key": _64(key), "target": "VALUE", "result": "EQUAL", "value": _64(value)}


def _64(text: bytes) -> str:
    return base64.b64encode(text).decode()


def _aetcd(client: Any) -> Transact:
    async def transact(expected: Expected, puts: Mapping[bytes, bytes], read: Sequence[bytes]) -> Values | None:
        kinds = client.transactions
        succeeded, found = await client.transaction(
            compare=[_of_aetcd(key, value) for key, value in expected.items()],
            success=[kinds.put(key, value) for key, value in puts.items()],
            failure=[kinds.get(key) for key in read],
        )
        return None if succeeded else [kvs[0][0] if kvs else None for kvs in found]

    return transact


def _of_aetcd(key: bytes, value: bytes | None) -> Any:
    from aetcd import transactions  # type: ignore[import-untyped]

    return transactions.Create(key) == 0 if value is None else transactions.Value(key) == value
