"""Celery tasks that hold a lock while they run (`LockedTask`), or that are done once (`OnceTask`).

The lock is acquired in the worker, just before the task's function runs, and nowhere else. A lock that is taken when
the task is queued is not taken if somebody else queues it (`send_task`), and stays if the task is revoked.

`run` of the task object is replaced by a function that acquires the lock, calls the real `run`, and releases the lock.
This happens in `__new__`, which hardly anybody overrides, and on the object, so `super().run()` locks nothing twice.
`autoretry_for` wraps that function in turn: it sees the errors of the lock as well as those of the task.
"""

from __future__ import annotations

import functools
import inspect
import logging
import os
import random
import signal
import threading
import weakref
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from gripfast import Client, ConfigurationError, LockInfo, LockTimeout, Reason
from gripfast.api.current import call_with
from gripfast.api.decorator import Namer, no_coroutine
from gripfast.contrib.clients import client_at
from gripfast.extras import how_to_install
from gripfast.interrupts.guard import Guard

try:
    from billiard.process import current_process  # type: ignore[import-untyped]
    from celery import Task
    from celery.exceptions import Reject
except ImportError as error:
    raise ImportError(f"tasks with locks need the package celery: {how_to_install('celery')}") from error

if TYPE_CHECKING:
    from gripfast import Lease

__all__ = ["Busy", "LockedTask", "OnceTask"]

_log = logging.getLogger("gripfast.celery")

BUSY = ("retry", "skip", "reject", "raise")
LOST = ("raise", "end")
SETTING = "app.conf.gripfast_url = 'redis://…'"
COUNTDOWN_LEAST = 1.0
LOG_PATIENCE = 1.0
"""Seconds that a log line may delay the end of a process whose lock is lost."""

_TTL = "write ttl={value}, the seconds after which the lock is free if the process dies"
_WAIT = "write wait={value}, the seconds to wait for the lock"
_IN_THE_NAME = "write the arguments into the name, such as {option}='report:{{user_id}}'"
WORDS: Mapping[str, str] = {
    **dict.fromkeys(("expire", "expiry", "lease_time", "lock_timeout", "lock_expire", "lock_expiry", "lock_ttl"), _TTL),
    **dict.fromkeys(("blocking_timeout", "acquire_timeout", "wait_timeout", "lock_wait", "max_wait"), _WAIT),
    **dict.fromkeys(("unique_on", "unique_key", "lock_key", "key_args"), _IN_THE_NAME),
    **dict.fromkeys(("lock", "lost", "max_hold", "min_hold"), "only LockedTask has it"),
    **dict.fromkeys(("once", "keep"), "only OnceTask has it"),
    **dict.fromkeys(
        ("renew", "auto_renew", "auto_renewal"), "leave it out, because the lock is renewed while the task runs"
    ),
    **dict.fromkeys(("reentrant", "lazy_release", "group"), "leave it out: the locks of tasks do not have it"),
    **dict.fromkeys(("raise_on_duplicate", "on_busy", "skip_if_locked"), "write busy='raise' or busy='skip'"),
    "timeout": f"{_TTL}, or wait={{value}}, the seconds to wait for the lock",
    "blocking": "leave it out: `wait` says how long the task waits, and `busy` what happens then",
    "on_lost": "write lost='end', or call self.lease.ensure_held() in the task",
    "label": "leave it out, because the label is the id of the task",
}
"""Options that a task does not have, and what is meant here. Celery takes any word, and makes an attribute of it."""


class Busy(LockTimeout):
    """The LockTimeout of a task. Its text survives the result backend, which keeps the arguments of an exception as
    JSON: `holder` is known only in the worker."""

    def __init__(self, name: str, waited: float, text: str, holder: LockInfo | None = None) -> None:
        super().__init__(name, waited, holder)
        self.args = (name, waited, text)

    def __str__(self) -> str:
        return str(self.args[2])


class GuardedTask(Task):  # type: ignore[misc] # Celery has no types
    """What both kinds of tasks have in common. Their options are those of `@app.task(…)`."""

    client: ClassVar[Any] = None
    """A Client, or a function that is called with the task and returns one. None: that of `app.conf.gripfast_url`."""

    ttl: ClassVar[float | None] = None
    wait: ClassVar[float | None] = 0.0
    """Seconds to wait for the lock. Meanwhile this process of the worker does nothing else."""

    busy: ClassVar[Any] = "retry"
    """What happens if the lock is not free: "retry", "skip", "reject", "raise", or a function that is called with the
    task and the LockTimeout; what it returns is the result of the task."""

    _template_option: ClassVar[str]

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        task = super().__new__(cls)
        run = task.run
        task._namer = task._make_namer(run)
        task.run = functools.wraps(run)(functools.partial(task._run_guarded, run))
        return task

    @classmethod
    def bind(cls, app: Any) -> Any:
        """Celery calls this once it has filled in the configuration."""
        bound = super().bind(app)
        cls._check()
        return bound

    @classmethod
    def _check(cls) -> None:
        cls._check_words()
        if not callable(cls.busy) and cls.busy not in BUSY:
            raise cls._wrong(f"busy must be {_any_of(BUSY)}, or a function, not {cls.busy!r}")
        if cls.busy == "reject" and not cls.acks_late:
            raise cls._wrong("busy='reject' needs acks_late=True: otherwise the message is gone before the task begins")

    @classmethod
    def _check_words(cls) -> None:
        """Those of `@app.task(…)`. A class that somebody has written may use any word for its own purposes."""
        if "_decorated" not in vars(cls):
            return
        for word, value in vars(cls).items():
            if not word.startswith("_") and not any(word in vars(base) for base in cls.__mro__[1:]):
                cls._check_word(word, value)

    @classmethod
    def _check_word(cls, word: str, value: object) -> None:
        ours = [base for base in cls.__mro__ if issubclass(base, GuardedTask)]
        own = [option for base in ours for option in inspect.get_annotations(base)]
        if word in own:  # it has no default
            return
        near = [option for option in own if _letters(option) == _letters(word)]
        hint = WORDS.get(word) or (f"did you mean {near[0]!r}?" if near else None)
        if hint is not None:
            told = hint.format(value=repr(value), option=cls._template_option)
            raise cls._wrong(f"it has no {word!r}: {told}")

    @classmethod
    def _wrong(cls, what: str) -> ConfigurationError:
        return ConfigurationError(f"task {cls.name or cls.__name__}: {what}")

    @property
    def lease(self) -> Lease:
        """The lease of this run of the task: `self.lease.ensure_held()`, `self.lease.token`."""
        for call in reversed(_calls.get()):
            if call.task is self and (lease := call.lease()) is not None:
                return lease
        raise self._wrong(
            "it does not run in this thread now, so it has no lease here. Pass self.lease to the threads that you start"
        )

    def _make_namer(self, run: Callable[..., Any]) -> Namer | None:
        template = getattr(self, self._template_option)
        if template is None:
            return None
        if callable(template):
            raise self._wrong(f'{self._template_option} must be a text such as "report:{{user_id}}", not a function')
        try:
            return Namer(template, run)
        except ConfigurationError:
            raise
        except ValueError:  # of inspect.signature()
            name = getattr(run, "__name__", "f")
            raise self._wrong(f"bind=True passes the task itself: write def {name}(self), or leave bind out") from None

    def _run_guarded(self, run: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    def _run_with(self, lease: Lease, run: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        reset = _calls.set((*_calls.get(), _Call(self, lease)))
        try:
            return no_coroutine(call_with(lease, run, args, kwargs), run)
        finally:
            _calls.reset(reset)

    def _client(self) -> Client:
        if isinstance(self.client, Client):
            return self.client
        make = self._option("client")
        found = make(self) if callable(make) else _making.run(_client_of, self.app)
        if not isinstance(found, Client):
            raise self._wrong(f"client must be a Client, or a function that returns one, not {found!r}")
        return found

    def _option(self, name: str) -> Any:
        """As it was written: Python would make a method of a function, but not of a partial or another object."""
        written = inspect.getattr_static(self, name)
        return written.__func__ if isinstance(written, staticmethod) else written

    def _on_busy(self, error: Busy) -> Any:
        """Nobody but the worker's pool knows what `Retry` and `Reject` mean, so who calls the task like a function gets
        the error itself. `retry()` sees to that by itself. An eager task would be retried at once, perhaps for ever."""
        if callable(decide := self._option("busy")):
            return decide(self, error)
        if self.busy == "skip":
            _log.info("task %s[%s] is skipped: %s", self.name, self.request.id, error)
            return None
        if self.busy == "retry" and not self.request.is_eager:
            raise self.retry(exc=error, countdown=self._countdown(error.holder))
        if self.busy == "reject" and not self.request.called_directly:
            raise Reject(str(error), requeue=False)
        raise error

    def _countdown(self, holder: LockInfo | None) -> float:
        """If the holder is dead, the lock is free when its time is over. Those who were refused together do not come
        back together."""
        longest = float(self.default_retry_delay)
        soon = longest if holder is None else min(longest, holder.expires_in)
        return max(COUNTDOWN_LEAST, soon) * random.uniform(1.0, 1.2)


class LockedTask(GuardedTask):
    """`@app.task(base=LockedTask, bind=True, lock="report:{user_id}")`: one at a time, in all workers.

    The name is a template, filled with the arguments of the task. `ttl`, `wait`, `max_hold` and `min_hold` are those of
    `Client.lock`, but a task does not wait unless it is told to. The label of the lock is the id of the task.
    """

    lock: ClassVar[str]
    max_hold: ClassVar[float | None] = None
    min_hold: ClassVar[float | None] = None
    lost: ClassVar[Literal["raise", "end"]] = "raise"
    """What happens if the lock is lost while the task runs. "raise": the task fails when it has ended, or at its next
    `self.lease.ensure_held()`. "end": the process of the prefork pool that runs it is killed."""

    _template_option = "lock"

    def _make_namer(self, run: Callable[..., Any]) -> Namer | None:
        lock = getattr(self, "lock", None)
        if not isinstance(lock, str) and not callable(lock):
            raise self._wrong('it needs the name of its lock: @app.task(base=LockedTask, lock="report:{user_id}")')
        return super()._make_namer(run)

    @classmethod
    def _check(cls) -> None:
        super()._check()
        if cls.lost not in LOST:
            raise cls._wrong(f"lost must be {_any_of(LOST)}, not {cls.lost!r}")

    def _run_guarded(self, run: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        name = self._namer(args, kwargs)
        end = self._end_of_process()
        lock = self._client().lock(
            name,
            self.ttl,
            max_hold=self.max_hold,
            min_hold=self.min_hold,
            wait=self.wait,
            label=self.request.id,
            group=self.lock,
            on_lost=end,
        )
        try:
            lease = lock.acquire()
        except LockTimeout as error:
            return self._on_busy(Busy(name, error.waited, str(error), error.holder))
        with lease:
            return end.watching(self._run_with, lease, run, args, kwargs)

    def _end_of_process(self) -> EndOfProcess:
        """A call that is not the worker's is in a process which does other things, too: never end that."""
        is_ending = self.lost == "end" and not (self.request.called_directly or self.request.is_eager)
        if is_ending and current_process().name == "MainProcess":
            raise self._wrong(
                "lost='end' needs the prefork pool, because all other tasks of this worker would end with it. Write "
                "lost='raise', and call self.lease.ensure_held() in the task"
            )
        return EndOfProcess(f"{self.name}[{self.request.id}]", is_ending)


class OnceTask(GuardedTask):
    """`@app.task(base=OnceTask, bind=True, once="invoice:{number}", keep=86400)`: not again for `keep` seconds.

    When the task has succeeded, that is recorded. A task of the same name that comes later is skipped: it succeeds, and
    its result is None. If it comes while the first one still runs, `busy` decides. Without `once`, the name is the id
    of the task: then a message that the broker delivers a second time is skipped.
    """

    once: ClassVar[str | None] = None
    keep: ClassVar[float]

    _template_option = "once"

    @classmethod
    def _check(cls) -> None:
        super()._check()
        if not hasattr(cls, "keep"):
            raise cls._wrong("it needs `keep`, the seconds for which the store remembers it: @app.task(…, keep=86400)")

    def _run_guarded(self, run: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        name = self._name_of(args, kwargs)
        group = self.once or f"{self.name}:{{task_id}}"
        once = self._client().once(
            name, keep=self.keep, wait=self.wait, ttl=self.ttl, label=self.request.id, group=group
        )
        with once as turn:
            if turn:
                return self._run_with(turn.lease, run, args, kwargs)
        if turn.done:
            _log.info("task %s[%s] is skipped: %r was done before", self.name, self.request.id, name)
            return None
        error = LockTimeout(name, self.wait or 0.0, turn.holder, what="task")
        return self._on_busy(Busy(name, error.waited, str(error), error.holder))

    def _name_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        if self._namer is not None:
            return str(self._namer(args, kwargs))
        if self.request.id is None:
            raise self._wrong('it is called like a function, so it has no id: write once="…{argument}…"')
        return f"{self.name}:{self.request.id}"


class EndOfProcess:
    """Ends this process of the pool if the lock is lost while the task runs. It is called on a thread of its own.

    The pool sees a process that has died, records WorkerLostError, and starts another one, as after a hard time limit.
    """

    def __init__(self, task: str, is_ending: bool) -> None:
        self._task = task
        self._is_ending = is_ending
        """Until the task is over."""
        self._mutex = threading.Lock()
        """The process may run another task as soon as this one is over: that must not be killed."""

    def watching(self, function: Callable[..., Any], *args: Any) -> Any:
        """An interrupt, such as a soft time limit, can't skip both clauses."""
        try:
            try:
                return function(*args)
            finally:
                self._stop()
        finally:
            self._stop()

    def _stop(self) -> None:
        if self._is_ending:
            with self._mutex:
                self._is_ending = False

    def __call__(self, lease: Lease, reason: Reason) -> None:
        if not self._is_ending:
            return
        self._tell(lease.name, reason)
        with self._mutex:
            if self._is_ending:
                os.kill(os.getpid(), signal.SIGKILL)

    def _tell(self, name: str, reason: Reason) -> None:
        """The task may be in the middle of a log line, and hold the log for ever."""
        telling = threading.Thread(target=self._write, args=[name, reason], daemon=True)
        try:
            telling.start()
        except (RuntimeError, MemoryError):
            return  # no more threads: the end matters more
        telling.join(LOG_PATIENCE)

    def _write(self, name: str, reason: Reason) -> None:
        _log.critical("task %s has lost its lock %r (%s): killing its process", self._task, name, reason)


class _Call:
    """One run of a task. Contexts are copied and may outlive it, so it knows the lease weakly."""

    def __init__(self, task: GuardedTask, lease: Lease) -> None:
        self.task = task
        self.lease = weakref.ref(lease)


_calls: ContextVar[tuple[_Call, ...]] = ContextVar("gripfast.celery", default=())
"""The tasks that run here now, the innermost last: of this thread or greenlet. The task object itself is shared."""

_clients: weakref.WeakKeyDictionary[Any, Client] = weakref.WeakKeyDictionary()
"""By app. A process that was forked makes its own connections."""
_making = Guard()


def _client_of(app: Any) -> Client:
    if app not in _clients:
        _clients[app] = client_at(app.conf.get("gripfast_url"), SETTING)
    return _clients[app]


def _letters(word: str) -> tuple[str, set[str]]:
    """The same for most typing errors of a word, and for few other words."""
    return word[0], set(word) - {"_"}


def _any_of(words: tuple[str, ...]) -> str:
    return " or ".join(repr(word) for word in words)
