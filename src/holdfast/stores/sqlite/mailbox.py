"""How processes of one machine wake each other: a datagram socket per client, in a folder beside the database.

A waiter leaves its address in its place in line; whoever hands the lock over sends the grant there. The same thread
watches the holder's process (by pidfd, where the system has it): when it ends, everyone who waits asks at once.

Pushes are hints with a grant in them: a lost one costs a slow ask, never safety. Where there are no unix sockets the
address is empty, and waiters ask at the slow pace.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import secrets
import select
import socket
import tempfile
import threading
from pathlib import Path

from holdfast.core.ports import Granted
from holdfast.guard import Guard
from holdfast.machine import Process, this_process
from holdfast.stores.inboxes import Inboxes

_log = logging.getLogger("holdfast.sqlite")

_ADDRESS_MAX = 100
"""Bytes; the system's limit is 104 to 108."""


class Mailbox:
    def __init__(self, database: Path, inboxes: Inboxes) -> None:
        self._database = database
        self._inboxes = inboxes
        self._listener: _Listener | None = None
        self._opening = Guard()

    def open(self) -> str:
        """The address; the first call makes the socket and starts listening."""
        listener = self._listener
        if listener is None or not listener.is_listening():
            listener = self._opening.run(self._open_once)
        return listener.address

    def watch(self, process: Process) -> None:
        """Have everyone ask again when this process ends."""
        here = this_process()
        if process.pid != here.pid and (process.namespace, process.boot) == (here.namespace, here.boot):
            assert self._listener is not None
            self._listener.watch(process.pid)

    def close(self) -> None:
        if self._listener is not None and self._listener.pid == os.getpid():
            send(self._listener.address, b"stop")

    def _open_once(self) -> _Listener:
        """In steps that may each be interrupted: what was done is found again, and close() ends it."""
        if self._listener is None or self._listener.pid != os.getpid():
            self._listener = _Listener(*_bind(self._database), self._inboxes)
        self._listener.start()
        return self._listener


class _Listener:
    """A thread with a poll over the socket and the processes that are watched."""

    def __init__(self, mail: socket.socket | None, address: str, inboxes: Inboxes) -> None:
        self.pid = os.getpid()
        self.address = address
        self._mail = mail
        self._inboxes = inboxes
        self._to_watch: list[int] = []
        self._watched: dict[int, int] = {}  # pid → pidfd
        self._thread = threading.Thread(target=self._listen, name="holdfast-mailbox", daemon=True)

    def is_listening(self) -> bool:
        return self.pid == os.getpid() and (self._mail is None or self._thread.ident is not None)

    def start(self) -> None:
        if self._mail is not None and self._thread.ident is None:
            self._thread.start()

    def watch(self, pid: int) -> None:
        if pid not in self._watched:
            self._to_watch.append(pid)
            send(self.address, b"")

    def _listen(self) -> None:
        assert self._mail is not None
        self._poll = select.poll()
        self._poll.register(self._mail, select.POLLIN)
        try:
            while self._listen_once(self._mail):
                pass
        finally:
            self._close(self._mail)

    def _listen_once(self, mail: socket.socket) -> bool:
        """False when told to stop."""
        for fd, _ in self._poll.poll():
            if fd != mail.fileno():
                self._ended(fd)
            elif not self._read(mail):
                return False
        while self._to_watch:
            self._watch(self._to_watch.pop())
        return True

    def _close(self, mail: socket.socket) -> None:
        for fd in list(self._watched.values()):
            os.close(fd)
        mail.close()
        with contextlib.suppress(OSError):
            os.unlink(self.address)

    def _read(self, mail: socket.socket) -> bool:
        message = mail.recv(512)
        if message == b"stop":
            return False
        if message:
            with contextlib.suppress(ValueError):  # anybody may write here
                owner, token, ttl = message.decode().split()
                self._inboxes.deliver(owner, Granted(int(token), float(ttl)))
        return True

    def _watch(self, pid: int) -> None:
        if pid in self._watched or not hasattr(os, "pidfd_open"):
            return
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            self._inboxes.ask_again()
        except OSError as error:
            _log.debug("process %d can't be watched: %s", pid, error)
        else:
            self._watched[pid] = fd
            self._poll.register(fd, select.POLLIN)

    def _ended(self, fd: int) -> None:
        self._poll.unregister(fd)
        os.close(fd)
        for pid in [pid for pid, other in self._watched.items() if other == fd]:
            del self._watched[pid]
        self._inboxes.ask_again()


def grant_message(owner: str, token: int, ttl: float) -> bytes:
    return f"{owner} {token} {ttl!r}".encode()


def send(address: str, message: bytes) -> bool:
    """False if nobody can read it there."""
    if not address:
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
        out.setblocking(False)
        try:
            out.sendto(message, address)
        except (FileNotFoundError, ConnectionRefusedError):
            with contextlib.suppress(OSError):
                os.unlink(address)
            return False
        except OSError as error:  # its queue is full, or it is not ours to write to: it will ask
            _log.debug("push to %s: %s", address, error)
    return True


def _bind(database: Path) -> tuple[socket.socket | None, str]:
    for folder in _folders(database) if hasattr(socket, "AF_UNIX") and hasattr(select, "poll") else ():
        address = str(folder / secrets.token_hex(6))
        if len(os.fsencode(address)) > _ADDRESS_MAX:
            continue
        try:
            _make_own(folder)
            mail = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            mail.bind(address)
        except OSError as error:
            _log.info("no wake-ups through %s: %s", folder, error)
            continue
        return mail, address
    _log.warning("no folder for wake-ups: waiters of %s ask at a slow pace", database)
    return None, ""


def _make_own(folder: Path) -> None:
    """Make the folder and clear away what killed processes left there; one that others can enter is refused."""
    folder.mkdir(mode=0o700, exist_ok=True)
    stat = folder.stat()
    if stat.st_uid != os.geteuid() or stat.st_mode & 0o077:
        raise PermissionError(f"{folder} is not private")
    for left in list(folder.iterdir())[:100]:
        send(str(left), b"")


def _folders(database: Path) -> list[Path]:
    """Beside the database; for a path too long for an address, a folder that only this user can enter."""
    short = hashlib.sha256(os.fsencode(database)).hexdigest()[:12]
    return [database.parent / (database.name + "-wake"), Path(tempfile.gettempdir()) / f"holdfast-{short}"]
