"""The two requests of the limit over grpcio, as messages of protobuf's: the least that a lock over grpcio must do.

aetcd brings the messages, which protoc has made of etcd's own description. The requests that they can have in common
are made once; only the key differs from one pair to the next.
"""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from bench.etcd.limit import CARD, LOST, NOT_FREE, TTL, WAITING, Pair, new_keys
from bench.etcd.server import address
from bench.redis.aio import Pair as AsyncPair

NEEDS = ("grpcio", "aetcd")


def messages() -> Any:
    return importlib.import_module("aetcd.rpc.rpc_pb2")


class Requests:
    """What is sent for one name, by an owner that is new each time."""

    def __init__(self, name: str, lease: int) -> None:
        self._rpc = messages()
        self._queue = f"grpcio:{name}/".encode()
        from gripfast.stores.etcd import keys

        self._end = keys.after(self._queue)
        self._lease = lease
        self._new = new_keys(self._queue)
        self._key = b""

    def take(self) -> Any:
        rpc, key, queue = self._rpc, next(self._new), self._queue
        self._key = key
        everybody = {"key": queue, "range_end": self._end, "sort_target": "CREATE"}
        return rpc.TxnRequest(
            compare=[_created(rpc, 0, key=queue, range_end=self._end)],
            success=[rpc.RequestOp(request_put=self._put(CARD))],
            failure=[
                rpc.RequestOp(request_range=rpc.RangeRequest(**everybody, limit=1, sort_order="ASCEND")),
                rpc.RequestOp(request_txn=self._join()),
                rpc.RequestOp(request_range=rpc.RangeRequest(**everybody, limit=2, sort_order="DESCEND")),
            ],
        )

    def _join(self) -> Any:
        rpc = self._rpc
        return rpc.TxnRequest(
            compare=[_created(rpc, 0, key=self._key)],
            success=[rpc.RequestOp(request_put=self._put(WAITING))],
            failure=[rpc.RequestOp(request_range=rpc.RangeRequest(key=self._key))],
        )

    def _put(self, value: bytes) -> Any:
        return self._rpc.PutRequest(key=self._key, value=value, lease=self._lease)

    def give(self, taken: Any) -> Any:
        if not taken.succeeded:
            raise RuntimeError(NOT_FREE)
        rpc, key = self._rpc, self._key
        return rpc.TxnRequest(
            compare=[_created(rpc, taken.header.revision, key=key)],
            success=[rpc.RequestOp(request_delete_range=rpc.DeleteRangeRequest(key=key))],
            failure=[rpc.RequestOp(request_range=rpc.RangeRequest(key=key))],
        )


def _created(rpc: Any, revision: int, **which: bytes) -> Any:
    return rpc.Compare(target="CREATE", result="EQUAL", create_revision=revision, **which)


def check(given: Any) -> None:
    if not given.succeeded:
        raise RuntimeError(LOST)


def stubs(channel: Any) -> tuple[Any, Any]:
    """For a lease, and for a transaction."""
    from gripfast.stores.etcd.messages import LEASE_GRANT, TXN

    rpc = messages()
    grant = channel.unary_unary(
        LEASE_GRANT.path, rpc.LeaseGrantRequest.SerializeToString, rpc.LeaseGrantResponse.FromString
    )
    return grant, channel.unary_unary(TXN.path, rpc.TxnRequest.SerializeToString, rpc.TxnResponse.FromString)


def lasting() -> Any:
    return messages().LeaseGrantRequest(TTL=TTL * 100)


@contextmanager
def grpcio(url: str) -> Iterator[Pair]:
    grpc = importlib.import_module("grpc")
    with grpc.insecure_channel("{}:{}".format(*address(url))) as channel:
        grant, ask = stubs(channel)
        requests = Requests("bench", grant(lasting()).ID)

        def pair() -> None:
            check(ask(requests.give(ask(requests.take()))))

        yield pair


@asynccontextmanager
async def grpcio_pairs(url: str) -> AsyncIterator[Callable[[str], AsyncPair]]:
    grpc = importlib.import_module("grpc.aio")
    async with grpc.insecure_channel("{}:{}".format(*address(url))) as channel:
        grant, ask = stubs(channel)
        lease = (await grant(lasting())).ID
        yield lambda name: _awaited(Requests(name, lease), ask)


def _awaited(requests: Requests, ask: Callable[[Any], Any]) -> AsyncPair:
    async def pair() -> None:
        check(await ask(requests.give(await ask(requests.take()))))

    return pair
