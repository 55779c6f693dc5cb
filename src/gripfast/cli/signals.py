"""How `gripfast` reads signals, and passes them on.

While we wait for a lock, a signal that asks us to end raises `Interrupted` in the main thread, so that we leave the
queue. While the user's command runs, signals are read one by one and passed on to it.

Where the system can tell who sent a signal (`sigwaitinfo`), they are blocked in every thread and one thread reads them.
A signal of the terminal, such as Ctrl-C, went to the whole process group: the command has it already and must not get
it twice. Elsewhere handlers read them, and a terminal counts as the sender if our group is in its foreground.
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NamedTuple

from gripfast.interrupts.threads import Background
from gripfast.timed_queue import TimedQueue


def _existing(*names: str) -> frozenset[signal.Signals]:
    return frozenset(getattr(signal, name) for name in names if hasattr(signal, name))


ENDING = _existing("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGBREAK")
STOPPING = _existing("SIGTSTP", "SIGTTIN", "SIGTTOU")
TELLING = _existing("SIGUSR1", "SIGUSR2", "SIGCONT", "SIGWINCH", "SIGCHLD")
OF_TERMINALS = _existing("SIGINT", "SIGQUIT", "SIGWINCH")

# What the kernel puts into si_code when it sends a signal itself, on behalf of a terminal.
_SI_KERNEL = 0x80


class Caught(NamedTuple):
    signum: int
    from_terminal: bool


class Interrupted(KeyboardInterrupt):
    """A signal asked the waiting process to end."""

    def __init__(self, signum: int) -> None:
        self.signum = signum
        super().__init__(signum)


class Signals:
    """The signals sent to this process, from `listen` on. What was ignored when the process began stays ignored."""

    def __init__(self) -> None:
        self.ignored = {number for number in ENDING | STOPPING | TELLING if signal.getsignal(number) is signal.SIG_IGN}
        self.inherited_mask: set[int] = set()
        self._arrived: TimedQueue[Caught] = TimedQueue()
        self._interrupts = False

    def listen(self) -> None:
        raise NotImplementedError

    def next(self, timeout: float) -> Caught | None:
        """The next signal, or None if none came in time."""
        try:
            return self._arrived.get(timeout)
        except queue.Empty:
            return None

    @contextmanager
    def interrupting(self) -> Iterator[None]:
        """Inside, a signal that asks to end raises Interrupted in this, the main thread. Others find nobody to tell."""
        self._interrupts = True
        try:
            while caught := self.next(0):
                self._end_if_asked(caught)
            yield
        finally:
            self._interrupts = False

    def _end_if_asked(self, caught: Caught) -> None:
        if caught.signum in ENDING:
            raise Interrupted(caught.signum)

    def _on_main_thread(self, caught: Caught) -> None:
        if self._interrupts:
            self._end_if_asked(caught)
        else:
            self._arrived.put(caught)


class ReadSignals(Signals):
    """By a thread that waits for them. Threads started later inherit that they are blocked."""

    def listen(self) -> None:
        self._wanted = (ENDING | STOPPING | TELLING) - (self.ignored - {signal.SIGCHLD})
        self._wake = signal.SIGRTMIN
        self._for_main: queue.SimpleQueue[Caught] = queue.SimpleQueue()
        self._main = threading.main_thread().ident or 0
        self.inherited_mask = set(signal.pthread_sigmask(signal.SIG_BLOCK, self._wanted))
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(self._wake, self._woken)
        Background(self._read, "gripfast-signals").start()

    def _read(self) -> None:
        while True:
            info = signal.sigwaitinfo(self._wanted)
            self._sort(Caught(info.si_signo, info.si_code == _SI_KERNEL))

    def _sort(self, caught: Caught) -> None:
        if not self._interrupts:
            self._arrived.put(caught)
        elif caught.signum in STOPPING:
            suspend()
        elif caught.signum in ENDING:
            self._for_main.put(caught)
            signal.pthread_kill(self._main, self._wake)

    def _woken(self, _: int, __: FrameType | None) -> None:
        """Runs on the main thread, which may have got its lock since: then the signal is for the command."""
        try:
            self._on_main_thread(self._for_main.get_nowait())
        except queue.Empty:
            pass


class HandledSignals(Signals):
    """By handlers, where nothing tells who sent a signal. Stopping is left to the system."""

    def listen(self) -> None:
        for number in (ENDING | TELLING) - self.ignored:
            signal.signal(number, self._handle)
        if hasattr(signal, "SIGCHLD"):
            signal.signal(signal.SIGCHLD, self._handle)

    def _handle(self, signum: int, _: FrameType | None) -> None:
        self._on_main_thread(Caught(signum, signum in OF_TERMINALS and _in_foreground()))


def listening() -> Signals:
    """From here on no signal is lost, and none ends the process by itself."""
    signals = ReadSignals() if hasattr(signal, "sigwaitinfo") else HandledSignals()
    signals.listen()
    return signals


def suspend() -> None:
    """Stop this process, as the terminal asked; goes on when the shell says so."""
    if sys.platform != "win32":
        os.kill(os.getpid(), signal.SIGSTOP)


def _in_foreground() -> bool:
    """Whether a terminal would have sent its signal to our whole process group."""
    if sys.platform == "win32":
        return True  # a console tells every process attached to it
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)
