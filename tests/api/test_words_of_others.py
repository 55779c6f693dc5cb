"""Whoever writes the words of another library (redis-py, filelock, threading) is told those of Gripfast."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from unittest.mock import create_autospec

import pytest

import gripfast
from gripfast.api.words import OF_CLIENTS, OF_LEASES, OF_LOCKS, OPTIONS


@pytest.fixture
def client() -> Iterator[gripfast.Client]:
    with gripfast.connect("memory://") as client:
        yield client


Call = Callable[[Any], object]

WRONG_OPTIONS: list[tuple[Call, str]] = [
    (lambda client: client.lock("job").acquire(timeout=5), "acquire() has no 'timeout': write acquire(wait=5)"),
    (lambda client: client.lock("job").acquire(timeout=-1), "acquire() has no 'timeout': write acquire(wait=None)"),
    (
        lambda client: client.lock("job").acquire(blocking=False),
        "acquire() has no 'blocking': leave it out. Not to wait",
    ),
    (lambda client: client.lock("job").acquire(block=False), "acquire() has no 'block': leave it out. Not to wait"),
    (lambda client: client.lock("job").acquire(blocking_timeout=2), "write acquire(wait=2)"),
    (lambda client: client.rwlock("job").read(wait=2), "read() has no 'wait': write rwlock.read().acquire(wait=2)"),
    (lambda client: client.rwlock("job").write(timeout=2), "or make it with client.rwlock(name, wait=2)"),
    (lambda client: client.rwlock("job").write(bogus=2), "write() has no 'bogus': it takes nothing"),
    (lambda client: client.lock("job").acquire(wiat=2), "acquire() has no 'wiat': did you mean 'wait'?"),
    (lambda client: client.lock("job").acquire(ttl=2), "Write client.lock(name, ttl=2)"),
    (lambda client: client.lock("job").acquire(True, 2), "acquire() takes only `wait`: to wait, write acquire(wait=2)"),
    (lambda client: client.lock("job").acquire(True, -1), "write acquire(wait=None)"),
    (lambda client: client.lock("job").acquire(False, 2), "not to wait, write `lease = lock.try_acquire()`"),
    (lambda client: client.lock("job").try_acquire(timeout=3), "to wait, write acquire(wait=3)"),
    (
        lambda client: client.lock("job").try_acquire(3),
        "it never waits; to wait, write acquire(wait=3)",
    ),
    (lambda client: client.locks("a", "b", renew=False), "leases on several locks are always renewed"),
    (lambda client: client.lock("job", auto_release_time=1), "write ttl=1"),
    (lambda client: client.lock("job", acquire_timeout=1), "write wait="),
    (lambda client: client.lock("job", url="redis://"), "Write gripfast.connect(url).lock(name)"),
    (lambda client: client.lock("job").acquire(bogus=2), "acquire() has no 'bogus': it takes wait"),
    (lambda client: client.lock("job", timeout=9), "lock() has no 'timeout': write ttl=9"),
    (lambda client: client.lock("job", timeout=9), "or wait=9, the seconds to wait"),
    *(
        (
            lambda client, word=word: client.lock("job", **{word: -1}),
            f"has no {word!r}: leave it out, because acquire() waits",
        )
        for word in ("timeout", "blocking_timeout", "acquire_timeout", "max_wait")
    ),
    (lambda client: client.semaphore("job", 3, timeout=-1), "leave it out, because acquire() waits for ever"),
    (lambda client: client.locked("job", timeout=-1), "leave it out, because acquire() waits for ever"),
    (lambda client: client.once("job", keep=5, timeout=-1), "write wait=None to wait for ever"),
    (lambda client: client.election("job", timeout=-1), "leave it out, because lead() waits for ever"),
    (lambda client: client.semaphore("job"), "a semaphore needs a limit, which is how many may have a permit"),
    (lambda client: client.semaphore("job"), "write limit=3"),
    (lambda client: client.semaphore("job", permits=3), "semaphore() has no 'permits': write limit=3"),
    (lambda client: client.limited("job"), "write limit=3"),
    (lambda client: client.once("job"), "once() needs `keep`, the seconds for which the store remembers"),
    (lambda client: client.once("job", period=60), "once() has no 'period': write keep=60"),
    (lambda client: client.lock("job", blocking=False), "write `lease = lock.try_acquire()`"),
    (lambda client: client.lock("job", blocking_timeout=2), "write wait=2"),
    (lambda client: client.lock("job", tll=4), "lock() has no 'tll': did you mean 'ttl'?"),
    (lambda client: client.lock("job", expire=4), "write ttl=4"),
    (lambda client: client.lock("job", auto_renewal=True), "'auto_renewal': leave it out: renewing is the default"),
    (lambda client: client.lock("job", auto_renewal=False), "write renew=False"),
    (lambda client: client.lock("job", bogus=4), "it takes name, ttl, renew"),
    (lambda client: client.locked("job", tll=4), "did you mean 'ttl'?"),
    (lambda client: client.lock("job", 10, 5), "lock() takes a name and a ttl; all else are keywords, such as wait=5"),
    (lambda client: client.lock("job", True, -1), "such as wait=None, the seconds to wait for it"),
    (lambda client: client.locked("job", timeout=4), "write ttl=4"),
    (lambda client: client.locked("job", on_busy="skip"), "locked() has no 'on_busy': write busy='raise'"),
    (lambda client: client.locked("job", on_busy="skip"), "To skip the call if the lock is taken, write wait=0, busy="),
    (lambda client: client.limited("job", 3, skip=True), "limited() has no 'skip': to skip the call if"),
]


@pytest.mark.parametrize(("call", "words"), WRONG_OPTIONS)
@pytest.mark.parametrize("connect", [gripfast.connect, gripfast.connect_async])
def test_a_keyword_of_another_library_is_refused_with_the_right_one(
    connect: Callable[[str], Any], call: Call, words: str
) -> None:
    with pytest.raises(TypeError) as refused:
        call(connect("memory://"))
    assert words in str(refused.value).replace("await ", "")  # which async locks say


def test_the_default_client_says_the_same() -> None:
    with pytest.raises(TypeError, match="did you mean 'ttl'"):
        gripfast.lock("job", tll=4)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (-1, r"Leave -1 out: acquire\(\) waits for ever"),
        (10, "Write ttl=10, the seconds that a lease lasts unless it is renewed, or wait=10, the seconds to wait"),
        (True, "such as ttl=30 or wait=5"),
    ],
)
@pytest.mark.parametrize("lock", [gripfast.lock, gripfast.async_lock])
def test_a_number_behind_the_name_is_told_what_it_may_be(lock: Callable[..., Any], given: object, told: str) -> None:
    """threading, redis-py and filelock mean the wait by it; here it would be the ttl."""
    with pytest.raises(
        TypeError, match=rf"gripfast\.{lock.__name__}\(\) takes one name; settings are keywords.*{told}"
    ):
        lock("job", given)


def test_what_has_to_be_given_has_no_default_that_anybody_sees() -> None:
    for client in (gripfast.Client, gripfast.AsyncClient):
        for function, name in ((client.semaphore, "limit"), (client.once, "keep"), (client.limited, "limit")):
            assert inspect.signature(function).parameters[name].default is inspect.Parameter.empty


@pytest.mark.parametrize("connect", [gripfast.connect, gripfast.connect_async])
@pytest.mark.parametrize(
    "acquire",
    [
        lambda client: client.lock("job").acquire(True),
        lambda client: client.lock("job").acquire(wait=True),
        lambda client: client.semaphore("job", 3).acquire(wait=True),
        lambda client: client.locks("job", "b").acquire(True),
    ],
)
def test_true_is_no_time_but_means_to_wait(connect: Callable[[str], Any], acquire: Call) -> None:
    with pytest.raises(gripfast.ConfigurationError, match="not True: leave it out to wait until the lock is free"):
        acquire(connect("memory://"))


def test_false_is_no_time_either(client: gripfast.Client) -> None:
    with pytest.raises(gripfast.ConfigurationError, match=r"0 means do not wait, .* try_acquire\(\)"):
        client.lock("job").acquire(False)


@pytest.mark.parametrize(
    "make",
    [
        lambda client: client.lock("job"),
        lambda client: client.rwlock("job").read(),
        lambda client: client.semaphore("job", 3),
        lambda client: client.locks("job", "b"),
    ],
)
def test_a_lock_that_is_awaited_is_an_error_and_nothing_awaits_one_by_itself(make: Call) -> None:
    """Those who await whatever says that it can be awaited: anyio's portals, containers of dependencies, templates."""

    async def wait() -> None:
        lock = make(gripfast.connect_async("memory://"))
        assert not inspect.isawaitable(lock)
        with pytest.raises(TypeError, match="can't be used in 'await' expression"):
            await lock

    asyncio.run(wait())


def test_a_text_is_no_time_in_python(client: gripfast.Client) -> None:
    with pytest.raises(gripfast.ConfigurationError, match=r"not '30s'\. In Python write seconds as a number"):
        client.lock("job", ttl="30s")  # type: ignore[arg-type]


def a_lease(client: object) -> Any:
    return one_of_each(gripfast.connect if isinstance(client, gripfast.Client) else gripfast.connect_async)["Lease"]


AWAITED: list[tuple[Call, str]] = [
    (lambda client: client.force_release("job", note="typo"), "force_release() has no 'note': write reason='typo'"),
    (lambda client: client.force_release("job", resaon="typo"), "did you mean 'reason'?"),
    (
        lambda client: a_lease(client).release(force=True),
        "release() has no 'force': leave it out. To free a lock that another program holds, write `client",
    ),
    (lambda client: a_lease(client).release(bogus=True), "it takes nothing"),
]


@pytest.mark.parametrize(("call", "words"), AWAITED)
def test_a_keyword_of_another_method_is_refused_with_the_right_one(call: Call, words: str) -> None:
    async def wait() -> None:
        await call(gripfast.connect_async("memory://"))

    for refused in (lambda: call(gripfast.connect("memory://")), lambda: asyncio.run(wait())):
        with pytest.raises(TypeError) as error:
            refused()
        assert words in str(error.value).replace("await ", "")


@pytest.mark.parametrize("connect", [gripfast.connect, gripfast.connect_async])
@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("acquire_read", "`lease = rwlock.read().acquire()`"),
        ("acquire_write", "`lease = rwlock.write().acquire()`"),
        ("release_read", "`lease.release()`"),
    ],
)
def test_the_halves_of_a_read_write_lock_are_acquired(connect: Callable[[str], Any], name: str, instead: str) -> None:
    with pytest.raises(AttributeError, match=f"RWLock has no '{name}': write ") as refused:
        getattr(connect("memory://").rwlock("job"), name)
    assert instead in str(refused.value).replace("await ", "")


def one_of_each(connect: Callable[[str], Any]) -> dict[str, Any]:
    """A client, its lock and its lease; none of them is used."""
    client = connect("memory://")
    kind = gripfast.Lease if connect is gripfast.connect else gripfast.AsyncLease
    return {"Client": client, "Lock": client.lock("job"), "Lease": kind.__new__(kind)}


LACKS = {"Lock": OF_LOCKS, "Client": OF_CLIENTS, "Lease": OF_LEASES}


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, lacks in LACKS.items() for name in lacks])
@pytest.mark.parametrize("connect", [gripfast.connect, gripfast.connect_async])
def test_what_is_not_there_is_told_with_what_to_write(connect: Callable[[str], Any], kind: str, name: str) -> None:
    held = one_of_each(connect)[kind]
    for error in (AttributeError, TypeError):
        with pytest.raises(error, match=f"{kind} has no '{name}': .*(lease|lock|client|wait|leave it out)") as refused:
            getattr(held, name)
    assert "{" not in str(refused.value)
    assert ("await" in str(refused.value)) == (connect is gripfast.connect_async and "{await_}" in LACKS[kind][name])
    assert not hasattr(held, name)
    assert not hasattr(type(held), name) or name == "__call__"  # of every class
    assert name not in dir(held)
    assert name not in dir(type(held))


def test_nor_is_it_there_in_a_mock() -> None:
    for kind in (gripfast.Lock, gripfast.AsyncLock, gripfast.Client, gripfast.AsyncClient, gripfast.Lease):
        mocked = create_autospec(kind, instance=True)
        assert mocked.__repr__
        assert [name for name in kind._lacks if hasattr(mocked, name)] in ([], ["__call__"])  # which every mock has


def test_a_lock_is_no_decorator(client: gripfast.Client) -> None:
    with pytest.raises(
        TypeError, match=r"Lock has no '__call__': to decorate a function, write `@client.locked\(name\)`"
    ):

        @client.lock("job")  # type: ignore[operator]
        def work() -> None: ...


@pytest.mark.parametrize("connect", [gripfast.connect, gripfast.connect_async])
def test_nor_is_a_semaphore_or_a_read_write_lock(connect: Callable[[str], Any]) -> None:
    client = connect("memory://")
    rwlock = client.rwlock("job")
    for thing, instead in (
        (client.semaphore("job", 3), "client.limited(name, limit)"),
        *((each, "client.read_locked(name)` or `@client.write_locked(name)") for each in (rwlock.read(), rwlock)),
    ):
        with pytest.raises(
            TypeError, match=f"has no '__call__': to decorate a function, write `@{re.escape(instead)}`"
        ):
            thing(print)


def test_the_client_of_a_loop_is_closed_by_aclose() -> None:
    with pytest.raises(AttributeError, match=r"AsyncClient has no 'close': write `await client\.aclose"):
        gripfast.connect_async("memory://").close()  # type: ignore[attr-defined]


@pytest.mark.parametrize("flag", ["renew", "reentrant"])
@pytest.mark.parametrize("value", ["no", 0, 1, None])
def test_a_flag_is_true_or_false(client: gripfast.Client, flag: str, value: Any) -> None:
    with pytest.raises(gripfast.ConfigurationError, match=f"{flag} must be True or False, not {value!r}"):
        client.lock("job", **{flag: value})


def test_what_is_always_true_is_no_condition(client: gripfast.Client) -> None:
    lock = client.lock("job")
    lease = lock.acquire()
    asked: list[tuple[Any, str]] = [
        (lock, "Lock is neither true nor false: to acquire it, write `with lock:`.*`lock is not None`"),
        (gripfast.connect_async("memory://").lock("job"), "`async with lock:`.* = await lock"),
        (client.locks("a", "b"), "Locks is neither"),
        (client.locked("job"), r"`locked` decorates functions.*client\.inspect\(name\)"),
        (client.limited("job", 3), r"it decorates functions.*client\.inspect\(name, kind='semaphore'\)"),
        (lease.lost, r"write `lease\.lost\.is_set\(\)`"),
    ]
    for thing, words in asked:
        with pytest.raises(TypeError, match=words):
            bool(thing)
    assert lease
    lease.release()


@pytest.mark.parametrize("extend", [lambda lease: lease.extend(5, True), lambda lease: lease.extend(additional_time=5)])
def test_an_extension_does_not_add(client: gripfast.Client, extend: Call) -> None:
    with client.lock("job") as lease, pytest.raises(TypeError, match="It does not add to what is left"):
        extend(lease)


def test_a_level_of_a_reentrant_lock_that_is_dropped_is_told(
    client: gripfast.Client, caplog: pytest.LogCaptureFixture
) -> None:
    lock = client.lock("job", reentrant=True)
    lease = lock.acquire()
    lease = lock.acquire()  # the first one is dropped
    lease.release()
    assert "an earlier lease of the re-entrant lock 'job' was dropped" in caplog.text
    caplog.clear()
    outer, inner = lock.acquire(), lock.acquire()
    inner.release()
    inner.release()
    del inner
    assert outer.held
    assert client.inspect("job") is not None
    outer.release()
    with lock, lock as lease:
        lock.acquire().release()
    assert "dropped" not in caplog.text
    assert client.inspect("job") is None


def test_a_decorator_needs_a_name(client: gripfast.Client) -> None:
    with pytest.raises(gripfast.ConfigurationError, match=r"write @client\.locked\(name\)"):
        client.locked(print)  # type: ignore[call-overload]
    with pytest.raises(gripfast.ConfigurationError, match=r"write @client\.read_locked\(name, …\)"):
        client.read_locked(print)  # type: ignore[call-overload]
    with pytest.raises(gripfast.ConfigurationError, match=r"write @client\.locked\(name\)"):
        gripfast.lock(print)  # type: ignore[arg-type]


def test_a_timedelta_is_told_how_to_become_seconds(client: gripfast.Client) -> None:
    with pytest.raises(gripfast.ConfigurationError, match=r"Write its total_seconds\(\)"):
        client.lock("job", ttl=timedelta(seconds=5))  # type: ignore[arg-type]


def test_sqlite_has_no_locks_in_memory() -> None:
    with pytest.raises(gripfast.ConfigurationError, match="write memory://name"):
        gripfast.connect("sqlite:///:memory:")


def test_minus_one_does_not_wait_for_ever(client: gripfast.Client) -> None:
    with pytest.raises(gripfast.ConfigurationError, match="write None to wait for ever"):
        client.lock("job").acquire(-1)


def test_a_name_of_another_library_is_told_where_it_is_imported() -> None:
    with pytest.raises(ImportError, match=r"gripfast\.LockTimeout"):
        from gripfast import Timeout  # type: ignore[attr-defined] # noqa: F401
    with pytest.raises(AttributeError, match=r"gripfast\.LockTimeout"):
        gripfast.Timeout  # type: ignore[attr-defined] # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'bogus'"):
        from gripfast import bogus  # type: ignore[attr-defined] # noqa: F401
    assert not hasattr(gripfast, "Timeout")


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("semaphore", "semaphore(name, limit)"),
        ("rwlock", "rwlock(name)"),
        ("once", "once(name, keep=seconds)"),
        ("adopt", "adopt(text)"),
        ("list", "list()"),
        ("inspect", "inspect(name)"),
    ],
)
def test_what_only_a_client_makes_is_told_so(name: str, instead: str) -> None:
    with pytest.raises(AttributeError, match=re.escape(f"write gripfast.connect(url).{instead}")):
        getattr(gripfast, name)


def test_an_address_without_a_scheme_is_told_how_to_write_it() -> None:
    with pytest.raises(gripfast.ConfigurationError, match="such as redis://localhost:6379"):
        gripfast.connect("localhost:6379")


@pytest.mark.parametrize(
    ("module", "instead"),
    [("exceptions", "from gripfast import LockTimeout"), ("aio", "connect_async"), ("asyncio", "connect_async")],
)
def test_modules_of_others_say_what_to_import(module: str, instead: str) -> None:
    with pytest.raises(ModuleNotFoundError, match=instead) as missing:
        importlib.import_module(f"gripfast.{module}")
    assert missing.value.name == f"gripfast.{module}"
    assert not hasattr(gripfast, module)


def test_what_nobody_thought_of_is_told_by_python(client: gripfast.Client) -> None:
    with pytest.raises(AttributeError, match="'Lock' object has no attribute 'bogus'"):
        client.lock("job").bogus  # type: ignore[attr-defined] # noqa: B018


def test_signatures_show_what_may_be_given() -> None:
    for lock in (gripfast.Lock, gripfast.AsyncLock):
        assert list(inspect.signature(lock.acquire).parameters) == ["self", "wait"]
    for client in (gripfast.Client, gripfast.AsyncClient):
        assert list(inspect.signature(client.lock).parameters)[:3] == ["self", "name", "ttl"]
        assert "wrong" not in inspect.signature(client.lock).parameters


def test_nothing_in_the_tables_is_right_here() -> None:
    for lock in (gripfast.Lock, gripfast.AsyncLock):
        assert [name for name in OF_LOCKS if name in dir(lock)] == []
    for client in (gripfast.Client, gripfast.AsyncClient):
        assert not set(inspect.signature(client.lock).parameters) & set(OPTIONS["lock"])


@pytest.mark.parametrize(
    ("kind", "given", "instead"),
    [
        (gripfast.Lock, [], "gripfast.lock(name)"),
        (gripfast.Lock, ["job"], "gripfast.lock(name)"),
        (gripfast.Lock, [gripfast.connect("memory://"), "job"], "connect(url).lock(name)"),
        (gripfast.AsyncLock, ["job"], "gripfast.async_lock(name)"),
        (gripfast.Client, [], "gripfast.connect(url)"),
        (gripfast.Client, ["memory://"], "gripfast.connect(url)"),
        (gripfast.AsyncClient, ["memory://"], "gripfast.connect_async(url)"),
    ],
)
def test_classes_that_are_called_as_those_of_others_say_how_to_make_one(
    kind: Callable[..., Any], given: list[Any], instead: str
) -> None:
    with pytest.raises(TypeError) as refused:
        kind(*given)
    assert instead in str(refused.value)


def test_a_time_that_is_none_is_left_out(client: gripfast.Client) -> None:
    with pytest.raises(TypeError, match="leave it out: the setting of the lock counts"):
        client.lock("job").acquire(blocking_timeout=None)  # type: ignore[call-arg]


@pytest.mark.parametrize("connect", [gripfast.connect, gripfast.connect_async])
def test_a_decorator_that_does_not_wait_is_told_how_to_skip(connect: Callable[[str], Any]) -> None:
    with pytest.raises(TypeError, match=r"locked\(\) has no 'blocking': .* write wait=0, busy='skip'"):
        connect("memory://").locked("job", blocking=False)
    with pytest.raises(TypeError, match=r"limited\(\) has no 'blocking': .* write wait=0, busy='skip'"):
        connect("memory://").limited("job", 3, blocking=False)
    with pytest.raises(TypeError, match=r"read_locked\(\) has no 'nx': .* write wait=0, busy='skip'"):
        connect("memory://").read_locked("job", nx=True)


def test_an_error_says_what_it_has() -> None:
    with pytest.raises(AttributeError, match="LockTimeout has no 'lock_file': it has name, waited, holder"):
        gripfast.LockTimeout("job", 1.0).lock_file  # type: ignore[attr-defined] # noqa: B018
    assert not hasattr(gripfast.GripfastError(), "job")


def test_settings_are_not_assigned_to_a_lock(client: gripfast.Client) -> None:
    with pytest.raises(AttributeError, match=r"write client\.lock\(name, wait=5"):
        client.lock("job").wait = 5  # type: ignore[attr-defined]


@pytest.mark.parametrize("what", [gripfast.Client.inspect, gripfast.Client.force_release, gripfast.Client.lock])
def test_a_lock_in_place_of_its_name_is_refused_with_the_name(
    client: gripfast.Client, what: Callable[..., Any]
) -> None:
    with pytest.raises(gripfast.ConfigurationError, match=r"must be text, not Lock: write its \.name"):
        what(client, client.lock("job"))


def test_the_url_may_have_its_name() -> None:
    assert gripfast.connect(url="memory://job").where == gripfast.connect("memory://job").where


def test_parts_of_a_url_are_refused_with_a_url() -> None:
    with pytest.raises(gripfast.ConfigurationError, match="'host' is part of a URL: write connect"):
        gripfast.connect(host="localhost", port=6379)


def test_the_default_lock_takes_settings_by_name() -> None:
    with pytest.raises(TypeError, match="Write ttl=10"):
        gripfast.lock("job", 10)  # type: ignore[arg-type]
