"""The simulated server of what is kept and handed over: what it really did."""

from __future__ import annotations

from typing import Any

from gripfast.core.kept import kept
from gripfast.stores.redis import protocol, scripts
from gripfast_lab.sim.redis.node import Node
from gripfast_lab.sim.redis.observer import Observer

SCRIPTS = (scripts.KEEP, scripts.ADOPT, scripts.DISOWN)
_CALLS = (b"EVALSHA", b"EVAL")
_WHAT = {key: script for script in SCRIPTS for key in (script.sha.encode(), script.text.encode())}
_FREES = {key for script in (scripts.RELEASE, scripts.ABANDON) for key in (script.sha.encode(), script.text.encode())}


class KeptObserver(Observer):
    """Knows, besides, who leaves a name to a marker, who frees it, and who adopts it."""

    _new: object = None
    _token = 0

    def _before(self, session: object, args: list[bytes]) -> None:
        super()._before(session, args)
        is_call = args[0] in _CALLS
        self._new = _WHAT.get(args[1]) if is_call else None
        if self._new is not None:
            self._holder = self._server.database.text(args[3])
        if self._new is not None or self._what is not None:
            self._token = self._last_token(args)

    def _last_token(self, args: list[bytes]) -> int:
        return protocol.last_token(self._server.database.text(args[4]))

    def _after(self, session: object, args: list[bytes], reply: Any) -> None:
        if isinstance(reply, Exception) or (self._new is None and self._what is None):
            return
        key, values, before = args[3], args[3 + int(args[2]) :], self._holder
        holder = self._server.database.text(key)
        if self._what is scripts.FORCE_RELEASE and before != holder and kept((before or b"").decode()) == "done":
            self._tell("removed", key, b"an operator", note=(before or b"").decode())
        if self._new is scripts.ADOPT:
            self._adopts(key, args, before, holder)
        elif self._new is scripts.KEEP:
            self._keeps(key, args, before, holder)
        elif self._new is scripts.DISOWN:
            self._disowns(key, args, before, holder)
        elif self._what is not None and args[1] in _FREES and before == values[0] and holder != before:
            self._tell("freed", key, values[0], token=self._token)
        super()._after(session, args, reply)

    def _adopts(self, key: bytes, args: list[bytes], before: bytes | None, holder: bytes | None) -> None:
        former, owner = args[3 + int(args[2]) :][:2]
        if holder == before:
            return
        if before != former:
            self._tell("removed", key, owner, note=(before or b"nobody").decode())
        self._tell("handed", key, owner, token=self._last_token(args))

    def _disowns(self, key: bytes, args: list[bytes], before: bytes | None, holder: bytes | None) -> None:
        owner, token = args[3 + int(args[2]) :][:2]
        line = self._lines.setdefault(key, {})
        line.pop(owner, None)
        if holder == before:
            return
        if before is not None and (before != owner or self._token == int(token)):
            self._tell("removed", key, owner, note=f"{before.decode()}, which was detached")
        if holder is not None:
            self._handed(key, line, holder, None, args[4])
            line.pop(holder, None)

    def _keeps(self, key: bytes, args: list[bytes], before: bytes | None, holder: bytes | None) -> None:
        owner, marker = args[3 + int(args[2]) :][:2]
        line = self._lines.setdefault(key, {})
        line.pop(owner, None)
        if holder == before:
            return
        if before == owner:
            if holder == marker:
                until = self._node.keeps_until(key.decode(), marker.decode())
                self._tell("kept", key, owner, token=self._token, until=until, note=marker.decode())
            else:
                self._tell("freed", key, owner, token=self._token)
        elif before is not None:
            self._tell("removed", key, owner, note=before.decode())
        elif holder == marker:
            self._tell("removed", key, owner, note="nobody")
        if holder is not None and holder != marker:
            self._handed(key, line, holder, None, args[4])
            line.pop(holder, None)

    _node: KeptNode


class KeptNode(Node):
    def __init__(self, world: Any, name: str, clock: Any, observer: KeptObserver) -> None:
        super().__init__(world, name, clock, observer)
        observer._node = self

    def warm_up(self) -> None:
        super().warm_up()
        for script in SCRIPTS:
            self.server.remember(script.text)
