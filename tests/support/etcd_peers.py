"""What stands between the members of a cluster of etcd's, so that one can be cut off from the others.

Members know each other by one address each, the same for all. So there is one proxy before each member, for all who
talk to it, and which of them a connection belongs to is told by its port: a process has it open.
"""

import contextlib
import functools
import os
import socket
from collections.abc import Callable
from pathlib import Path

from support.proxy import DIRECTIONS, Direction, Proxy, _Connection, _Way

Ways = dict[Direction, _Way]
Meant = Callable[[int], bool]
"""Whether a connection is, by the port that it comes from."""


class PeerProxy(Proxy):
    def __init__(self, target: tuple[str, int]) -> None:
        self._open: dict[int, Ways] = {}
        """By the port that a connection comes from."""
        self._is_cut: Meant = _none
        super().__init__(target, patience=2.0)  # members are started one beside the other

    def cut_off(self, is_meant: Meant) -> None:
        """On these connections nothing comes through, and there are no new ones."""
        self._do(functools.partial(self._cut_off, is_meant))

    def join(self) -> None:
        """What was held arrives after all."""
        self._do(self._join)

    def _cut_off(self, is_meant: Meant) -> None:
        self._is_cut = is_meant
        for port, ways in self._open.items():
            if is_meant(port):
                for way in ways.values():
                    way.open.clear()

    def _join(self) -> None:
        self._is_cut = _none
        for ways in self._open.values():
            for way in ways.values():
                way.open.set()

    async def _serve(self, client: socket.socket) -> None:
        port = client.getpeername()[1]
        if self._is_cut(port):
            return
        ways = self._open[port] = {direction: _Way() for direction in DIRECTIONS}
        try:
            await _Connection(ways, client, self._target, self._patience).run()
        finally:
            if self._open.get(port) is ways:
                del self._open[port]


def _none(port: int) -> bool:
    return False


def has_open(process: int, port: int) -> bool:
    """Whether this process has a TCP connection that comes from this port."""
    wanted = {f"socket:[{inode}]" for inode in _sockets_from(port)}
    return any(link in wanted for link in _descriptors_of(process))


def _sockets_from(port: int) -> list[str]:
    lines = Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]
    found = [line.split() for line in lines]
    return [fields[9] for fields in found if int(fields[1].rpartition(":")[2], 16) == port]


def _descriptors_of(process: int) -> list[str]:
    links = []
    with contextlib.suppress(OSError):
        for descriptor in os.listdir(f"/proc/{process}/fd"):
            with contextlib.suppress(OSError):
                links.append(os.readlink(f"/proc/{process}/fd/{descriptor}"))
    return links
