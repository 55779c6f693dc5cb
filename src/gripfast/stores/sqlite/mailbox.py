"""How processes of one machine wake each other: a datagram socket per client, in a folder beside the database.

A waiter leaves its address in the queue; whoever hands the lock over sends the grant there. The same thread watches the
holder's process (by pidfd, where the system has it): when it ends, all waiters retry at once.

Pushes are hints with a grant in them: a lost one costs a late retry, never safety. Where there are no unix sockets the
address is empty, and waiters poll at the slow pace.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import stat
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gripfast.core.ports import Granted
from gripfast.interrupts.guard import Guard
from gripfast.interrupts.living import Living
from gripfast.interrupts.threads import Background
from gripfast.machine import Process, this_process
from gripfast.stores.inboxes import Inboxes

if TYPE_CHECKING:
    import socket

_log = logging.getLogger("gripfast.sqlite")

SEND_TRIES, SEND_PAUSE = 10, 0.001
"""A mailbox whose queue is full gets this many tries, this many seconds apart."""

_ADDRESS_MAX = 100
"""Bytes; the system's limit is 104 to 108."""


class Mailbox:
    def __init__(self, database: Path, inboxes: Inboxes) -> None:
        self._database = database
        self._inboxes = inboxes
        self._listener: _Listener | None = None
        self._opening = Guard()

    def open(self) -> str:
        """The address; the first call, and the first after its socket was removed, makes one and starts listening."""
        listener = self._listener
        if listener is None or not listener.is_reachable():
            listener = self._opening.run(self._open_once)
        return listener.address

    def watch(self, process: Process) -> None:
        """Have everyone ask again when this process ends."""
        here = this_process()
        if process.pid != here.pid and (process.namespace, process.boot) == (here.namespace, here.boot):
            assert self._listener is not None
            self._listener.watch(process.pid)

    def close(self) -> None:
        if self._listener is not None:
            self._listener.stop()

    def _open_once(self) -> _Listener:
        """In steps that may each be interrupted: what was done is found again, and close() ends it."""
        listener = self._listener
        if listener is not None and listener.is_reachable():
            return listener  # another thread was quicker
        if listener is not None and (listener.is_started() or listener.is_inherited()):
            listener.stop()
            listener = None
        if listener is None:
            listener = self._listener = _Listener(*_bind(self._database), self._inboxes)
        listener.start()
        return listener


class _Listener:
    """A thread with a poll over the socket, the processes that are watched, and a pipe by which it is woken."""

    def __init__(self, mail: socket.socket | None, address: str, inboxes: Inboxes) -> None:
        import socket

        self.address = address
        self._pid = os.getpid()
        self._mail = mail
        self._inboxes = inboxes
        self._is_stopping = False
        self._to_watch: list[int] = []
        self._watched: dict[int, int] = {}  # pid → pidfd
        pair: tuple[socket.socket | None, ...] = (None, None) if mail is None else socket.socketpair()
        self._woken, self._waker = pair
        self._thread: threading.Thread | None = None  # made last: it knows us, and would keep the sockets open
        _listeners.add(self)

    def is_started(self) -> bool:
        return self._thread is not None and self._thread.ident is not None

    def is_inherited(self) -> bool:
        return self._pid != os.getpid()

    def is_reachable(self) -> bool:
        if self.is_inherited():
            return False
        return self._mail is None or (self.is_started() and os.path.exists(self.address))

    def start(self) -> None:
        if self._mail is not None and not self.is_started():
            self._thread = Background(self._listen, "gripfast-mailbox")
            self._thread.start()

    def stop(self) -> None:
        self._is_stopping = True
        self._wake()
        if not self.is_started() and self._pid == os.getpid():
            self._close()  # interrupted before it was started

    def watch(self, pid: int) -> None:
        if self._mail is not None and pid not in self._watched:
            self._to_watch.append(pid)
            self._wake()

    def disown(self) -> None:
        """In a forked child: the parent's sockets are closed here, without a word to anyone."""
        for each in (self._mail, self._woken, self._waker):
            if each is not None:
                each.close()

    def _wake(self) -> None:
        import socket

        if self._waker is not None and self._pid == os.getpid():
            with contextlib.suppress(OSError):  # it is over, or has been woken often enough
                self._waker.send(b"!", getattr(socket, "MSG_DONTWAIT", 0))

    def _listen(self) -> None:
        assert self._mail is not None
        assert self._woken is not None
        self._poll = select.poll()
        self._poll.register(self._mail, select.POLLIN)
        self._poll.register(self._woken, select.POLLIN)
        try:
            while not self._is_stopping:
                self._listen_once(self._mail, self._woken)
        finally:
            self._close()

    def _listen_once(self, mail: socket.socket, woken: socket.socket) -> None:
        for fd, _ in self._poll.poll():
            if fd == mail.fileno():
                self._read(mail.recv(_MESSAGE_MAX))
            elif fd == woken.fileno():
                woken.recv(512)
            else:
                self._ended(fd)
        while self._to_watch:
            self._watch(self._to_watch.pop())

    def _close(self) -> None:
        for fd in list(self._watched.values()):
            os.close(fd)
        self.disown()
        with contextlib.suppress(OSError):
            os.unlink(self.address)

    def _read(self, message: bytes) -> None:
        with contextlib.suppress(ValueError):  # anybody may write here; an empty one only asks whether we are there
            owner, *grant = message.decode().split()
            self._inboxes.deliver(owner, _read_grant(*grant) if grant else None)

    def _watch(self, pid: int) -> None:
        if pid in self._watched or not hasattr(os, "pidfd_open"):
            return
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            self._inboxes.ask_again()
        except OSError as error:
            _log.debug("can't watch process %d, so its end is noticed later: %s", pid, error)
        else:
            self._watched[pid] = fd
            self._poll.register(fd, select.POLLIN)

    def _ended(self, fd: int) -> None:
        self._poll.unregister(fd)
        os.close(fd)
        for pid in [pid for pid, other in self._watched.items() if other == fd]:
            del self._watched[pid]
        self._inboxes.ask_again()


_MESSAGE_MAX = 512
"""Bytes."""


def grant_message(owner: str, token: int, ttl: float, slots: Sequence[int] = ()) -> bytes:
    message = f"{owner} {token} {ttl!r}{' ' if slots else ''}{','.join(map(str, slots))}".encode()
    return message if len(message) <= _MESSAGE_MAX else retry_message(owner)


def retry_message(owner: str) -> bytes:
    """Ask, and be answered."""
    return owner.encode()


def _read_grant(token: str, ttl: str = "", slots: str = "") -> Granted:
    return Granted(int(token), float(ttl), slots=tuple(map(int, slots.split(","))) if slots else ())


def send(address: str, message: bytes, tries: int | None = None) -> bool:
    """False if nobody can read it there. One whose queue stays full is there, and will ask."""
    import socket

    for _ in range(tries or SEND_TRIES if address else 0):
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
                out.setblocking(False)
                out.sendto(message, address)
        except BlockingIOError:
            time.sleep(SEND_PAUSE if tries is None else 0.0)
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        except OSError as error:  # out of descriptors, or not ours to write to: it will ask
            _log.debug("can't notify the waiter at %s: %s", address, error)
            return True
        else:
            return True
    return bool(address)


def _bind(database: Path) -> tuple[socket.socket | None, str]:
    import socket

    has_sockets = hasattr(socket, "AF_UNIX") and hasattr(select, "poll")
    for folder in _folders(database) if has_sockets else ():
        address = str(folder / os.urandom(6).hex())
        if len(os.fsencode(address)) > _ADDRESS_MAX:
            continue
        try:
            _make_own(folder)
            mail = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            mail.bind(address)
        except OSError as error:
            _log.info("can't create a socket for notifications in the folder %s: %s", folder, error)
            continue
        return mail, address
    _log.log(logging.WARNING if has_sockets else logging.INFO, _NO_FOLDER, database)
    return None, ""


_NO_FOLDER = (
    "waiters of %s can't be notified, so they poll every few seconds: Gripfast found no private folder for its unix "
    "sockets. Make the folder of the database, or the folder for temporary files, writable, with a short path (a "
    "socket's path has at most about 100 bytes)"
)


def _make_own(folder: Path) -> None:
    """Make the folder and clear away the sockets of killed processes; a folder that others can enter is refused."""
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise PermissionError(f"{folder} is not a private folder")
    for left in list(folder.iterdir())[:100]:
        if left.is_socket() and not send(str(left), b"", tries=1):
            left.unlink(missing_ok=True)


def _folders(database: Path) -> Iterator[Path]:
    """Beside the database; for a path too long for an address, a folder that only this user can enter."""
    yield database.parent / (database.name + "-wake")
    import hashlib
    import tempfile

    short = hashlib.sha256(os.fsencode(database)).hexdigest()[:12]
    yield Path(tempfile.gettempdir()) / f"gripfast-{short}"


_listeners: Living[_Listener] = Living()


def _disown_all() -> None:
    for listener in _listeners:
        listener.disown()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown_all)
