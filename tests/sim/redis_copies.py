"""A real primary with a real replica, and the simulated ones beside them: the same is done to both, and compared.

Both have the real clock. What the simulated primary writes reaches its replica when `catch_up` is called, which waits
for the real one, too.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from gripfast_lab.sim.redis.replication import Effect, Follower, ReplicatedServer, Sync
from sim.redis_pair import Real, Simulated, contents, shape
from support.redis_server import HOST, RedisServer
from support.waiting import until

FIRST, SECOND = 0, 1
BOTH = (FIRST, SECOND)


class SimulatedMember(Simulated):
    server: ReplicatedServer

    def __init__(self, name: str) -> None:
        super().__init__()
        self.server = server = ReplicatedServer(lambda: time.time_ns() // 1000, name)
        self._asker = server.connect()
        self._listeners = [server.connect(inbox.append) for inbox in self._inboxes]


class Copies:
    """Two pairs: a server and its simulation each. The first is the primary at the beginning."""

    def __init__(self, servers: Sequence[RedisServer]) -> None:
        self.real = [Real(server) for server in servers]
        self.simulated = [SimulatedMember(f"s{place}") for place in BOTH]
        self._ports = [server.port for server in servers]
        self._on_the_way: list[Sync | Effect] = []
        self._follower: Follower | None = None
        self.demote(SECOND)

    def do(self, place: int, *words: bytes) -> Any:
        real, simulated = (shape(words, side[place].many(words)[0]) for side in (self.real, self.simulated))
        assert simulated == real, f"{words}: the real server says {real}, the simulated one {simulated}"
        return simulated

    def listens(self, place: int, channel: bytes) -> None:
        for side in (self.real, self.simulated):
            side[place].listens(0, channel, True)

    def compare(self, primary: int = FIRST) -> None:
        for place in (primary, 1 - primary):
            real = self.real[place].heard(asks=place == primary)  # which reaches the listeners of the other one, too
            heard = [real, self.simulated[place].heard()]
            assert heard[1] == heard[0], f"the real server sent {heard[0]}, the simulated one {heard[1]}"
            has = [contents(side[place], bytes) for side in (self.real, self.simulated)]
            assert has[1] == has[0], f"the real server has {has[0]}, the simulated one {has[1]}"

    def catch_up(self, primary: int = FIRST) -> None:
        """The other one has all that this one has written."""
        server = self.simulated[primary].server
        server.commit()
        for each in self._on_the_way:
            self.simulated[1 - primary].server.receive(each)
            assert self._follower is not None
            server.acknowledge(self._follower, each.offset)
        self._on_the_way.clear()
        until(lambda: self._is_caught_up(primary), within=20)

    def _is_caught_up(self, primary: int) -> bool:
        infos = [self._info(place) for place in BOTH]
        mine, others = infos[primary], infos[1 - primary]
        return others["master_link_status"] == "up" and others["slave_repl_offset"] == mine["master_repl_offset"]

    def promote(self, place: int) -> None:
        self.real[place].many((b"REPLICAOF", b"NO", b"ONE"))
        self.simulated[place].server.promote()
        self._on_the_way.clear()
        other = self.simulated[1 - place].server
        if self._follower is not None:
            other.drop(self._follower)
            until(lambda: self._info(1 - place)["connected_slaves"] == "0", within=20)

    def demote(self, place: int, syncs: bool = True) -> None:
        port = self._ports[1 - place] if syncs else 1
        self.real[place].many((b"REPLICAOF", HOST.encode(), b"%d" % port))
        server = self.simulated[place].server
        server.demote()
        if syncs:
            self._follower = Follower(self._on_the_way.append)
            self.simulated[1 - place].server.add(self._follower)
            self.catch_up(1 - place)

    def identity(self) -> list[Any]:
        """Roles and ids, in the order in which they were first seen: the same for both."""
        return [self._read(self._info_of(side, place)) for side in (self.real, self.simulated) for place in BOTH]

    def _info(self, place: int) -> dict[str, str]:
        return self._info_of(self.real, place)

    @staticmethod
    def _info_of(side: Sequence[Any], place: int) -> dict[str, str]:
        lines = side[place].many((b"INFO", b"server", b"replication"))[0].decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    @staticmethod
    def _read(info: dict[str, str]) -> tuple[str, str, str, str]:
        return info["role"], info["run_id"], info["master_replid"], info["connected_slaves"]

    def close(self) -> None:
        for each in self.real:
            each.close()


@contextmanager
def copies() -> Iterator[Copies]:
    with ExitStack() as stack:
        arguments = ("--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "3600")
        found = Copies([stack.enter_context(RedisServer(*arguments)) for _ in BOTH])
        stack.callback(found.close)
        yield found
