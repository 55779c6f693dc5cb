"""Five nodes that a test may stop, kill and empty, and that are well again for the next one."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence

from support.proxy import Proxy
from support.redis_server import HOST, RedisServer
from support.redlock_nodes import NODES
from support.waiting import auntil

KEY = "lock:job"


class Cluster:
    def __init__(self) -> None:
        self.nodes = [RedisServer() for _ in range(NODES)]
        self._paused: set[RedisServer] = set()

    def url(self, proxies: Sequence[Proxy] = (), **options: object) -> str:
        """Through the proxies, as far as there are any; directly to the nodes that are left."""
        ports = [proxy.port for proxy in proxies] + [node.port for node in self.nodes[len(proxies) :]]
        query = "&".join(f"{name}={value}" for name, value in options.items())
        return f"redlock://{','.join(f'{HOST}:{port}' for port in ports)}?{query}"

    @contextlib.contextmanager
    def proxies(self, count: int) -> Iterator[list[Proxy]]:
        """In front of the first of the nodes."""
        with contextlib.ExitStack() as stack:
            yield [stack.enter_context(Proxy((HOST, node.port))) for node in self.nodes[:count]]

    # What is done to the nodes ----------------------------------------------------------------------------------------

    def kill(self, *nodes: int) -> None:
        for node in nodes:
            self.nodes[node].kill()

    def pause(self, *nodes: int) -> None:
        for node in nodes:
            self.nodes[node].pause()
            self._paused.add(self.nodes[node])

    def resume(self) -> None:
        while self._paused:
            self._paused.pop().resume()

    def heal(self) -> None:
        """All run, and have forgotten everything: a new cluster."""
        self.resume()
        for place, node in enumerate(self.nodes):
            if node.running:
                with node.client() as client:
                    client.flushall()
            else:  # somebody else may have its port by now
                node.close()
                self.nodes[place] = RedisServer()

    def close(self) -> None:
        for node in self.nodes:
            node.close()

    # What is to be seen of them ---------------------------------------------------------------------------------------

    def values(self, key: str = KEY) -> list[str | None]:
        """What each node that runs has as the value of the lock."""
        return [self.value(node, key) for node in range(NODES) if self._answers(node)]

    def value(self, node: int, key: str = KEY) -> str | None:
        with self.nodes[node].client(decode_responses=True) as client:
            value = client.get(key)
        assert value is None or isinstance(value, str)
        return value

    def put(self, node: int, value: str, seconds: float) -> None:
        with self.nodes[node].client() as client:
            client.set(KEY, value, px=round(seconds * 1000))

    def delete(self, *nodes: int) -> None:
        for node in nodes:
            with self.nodes[node].client() as client:
                client.delete(KEY)

    def times_left(self) -> list[float]:
        """Seconds for which each node that runs has the lock, longest first."""
        left = []
        for node in range(NODES):
            if self._answers(node):
                with self.nodes[node].client() as client:
                    left.append(client.pttl(KEY) / 1000)
        return sorted(left, reverse=True)

    def has_heard_of_it(self, node: int) -> bool:
        """A vote has arrived there: its token stays when the lock is gone."""
        with self.nodes[node].client() as client:
            return any(client.scan_iter(match="*job*", count=1000))

    def holders(self) -> set[str]:
        """The owners that have the lock somewhere."""
        return {value.rpartition(".")[0] for value in self.values() if value is not None}

    async def nothing_locked(self, within: float = 2.0) -> None:
        await auntil(lambda: not any(self.values()), within)

    def _answers(self, node: int) -> bool:
        return self.nodes[node].running and self.nodes[node] not in self._paused


async def wait_out(seconds: float) -> None:
    ends = time.monotonic() + seconds
    await auntil(lambda: time.monotonic() >= ends, within=seconds + 5)
