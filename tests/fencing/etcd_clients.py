"""Clients of etcd as applications have them, both by the same few words."""

import asyncio
import base64
import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from gripfast.fencing import compare, put
from support.server_process import HOST

COLOURS = ("etcd3gw", "aetcd")


class Caller(Protocol):
    client: Any

    def put(self, *given: Any, **how: Any) -> None: ...

    def compare(self, *given: Any, **how: Any) -> list[Any]: ...

    def transact(self, compares: list[Any], key: str, value: str) -> bool:
        """Whether it has put that, in a transaction of its own."""
        ...


class Etcd3gw:
    def __init__(self, client: Any) -> None:
        self.client = client

    def put(self, *given: Any, **how: Any) -> None:
        put(self.client, *given, **how)

    def compare(self, *given: Any, **how: Any) -> list[Any]:
        return compare(self.client, *given, **how)

    def transact(self, compares: list[Any], key: str, value: str) -> bool:
        words = {name: base64.b64encode(text.encode()).decode() for name, text in (("key", key), ("value", value))}
        success = [{"request_put": words}]
        answer = self.client.transaction({"compare": compares, "success": success, "failure": []})
        return bool(answer.get("succeeded"))


class Aetcd:
    def __init__(self, client: Any, runner: asyncio.Runner) -> None:
        self.client = client
        self._runner = runner

    def put(self, *given: Any, **how: Any) -> None:
        async def awaited() -> None:
            await put(self.client, *given, **how)

        self._runner.run(awaited())

    def compare(self, *given: Any, **how: Any) -> list[Any]:
        async def awaited() -> list[Any]:
            return await compare(self.client, *given, **how)

        return self._runner.run(awaited())

    def transact(self, compares: list[Any], key: str, value: str) -> bool:
        success = [self.client.transactions.put(key.encode(), value.encode())]
        succeeded, _ = self._runner.run(self.client.transaction(compares, success, []))
        return bool(succeeded)


@contextmanager
def connected(colour: str, port: int) -> Iterator[Caller]:
    library = importlib.import_module(colour)
    if colour == "etcd3gw":
        client = library.client(host=HOST, port=port, api_path="/v3/")
        with client.session:
            yield Etcd3gw(client)
        return
    with asyncio.Runner() as runner:
        client = library.Client(host=HOST, port=port)
        runner.run(client.connect())
        try:
            yield Aetcd(client, runner)
        finally:
            runner.run(client.close())
