"""Gripfast's errors in redis-py's terms, each chained to the one that it tells."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from redis import exceptions

from gripfast.errors import ClientClosed, ConfigurationError, LeaseLost, StoreUnavailable

_BY_CODE: Mapping[str, type[exceptions.RedisError]] = {
    "WRONGPASS": exceptions.AuthenticationError,
    "NOAUTH": exceptions.AuthenticationError,
    "NOPERM": exceptions.NoPermissionError,
    "LOADING": exceptions.BusyLoadingError,
    "READONLY": exceptions.ReadOnlyError,
    "OOM": exceptions.OutOfMemoryError,
    "WRONGTYPE": exceptions.ResponseError,
    "MISCONF": exceptions.ResponseError,
    "BUSY": exceptions.ResponseError,
    "NOREPLICAS": exceptions.ResponseError,
    "MASTERDOWN": exceptions.ResponseError,
    "CLUSTERDOWN": exceptions.ResponseError,
    "MOVED": exceptions.ResponseError,
}
_CODES = "|".join(_BY_CODE)
_CODE = re.compile(rf"\([^)]*\b({_CODES})\b")
_LATE = re.compile("did not answer within|not made in time")
_UNCODED = re.compile("answered with an error")


class InRedisTerms:
    """`with InRedisTerms("release", name):` what Gripfast raises comes out as what redis-py raises."""

    __slots__ = ("_name", "_verb")

    def __init__(self, verb: str, name: Any) -> None:
        self._verb, self._name = verb, name

    def __enter__(self) -> None: ...

    def __exit__(self, _: object, error: BaseException | None, *__: object) -> None:
        if isinstance(error, LeaseLost):
            raise not_owned(self._verb, self._name) from error
        if isinstance(error, StoreUnavailable | ConfigurationError | ClientClosed):
            raise translated(error) from error


def not_owned(verb: str, name: Any) -> exceptions.LockNotOwnedError:
    return exceptions.LockNotOwnedError(f"Cannot {verb} a lock that's no longer owned", lock_name=name)


def translated(error: StoreUnavailable | ConfigurationError | ClientClosed) -> exceptions.RedisError:
    """A server that refuses quotes its own reply, with its code, in the message."""
    message = str(error)
    if isinstance(error, ConfigurationError):
        return exceptions.DataError(message.replace("ttl must", "timeout must"))
    if found := _CODE.search(message):
        return _BY_CODE[found[1]](message)
    if _LATE.search(message):
        return exceptions.TimeoutError(message)
    if _UNCODED.search(message):
        return exceptions.ResponseError(message)
    return exceptions.ConnectionError(message)
