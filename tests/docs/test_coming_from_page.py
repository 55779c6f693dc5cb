"""docs/coming-from.md: every name and argument of Gripfast that its tables have is there, and so are those of the
libraries that the tests have at hand."""

import ast
import inspect
import re
from collections.abc import Iterator
from typing import Any

import kazoo.client
import kazoo.recipe.lock
import pytest
import redis.lock

import gripfast
from gripfast.stores import specs
from gripfast.stores.options import COMMON
from support.pages import page
from support.redis_server import shared_server
from support.zookeeper_servers import zookeeper_server

PAGE = page("coming-from")
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
OURS: dict[str, Any] = {
    "gripfast": gripfast,
    "client": gripfast.Client,
    "lock": gripfast.Lock,
    "lease": gripfast.Lease,
}
MADE_BY = {"lock": gripfast.Lock, "rwlock": gripfast.RWLock, "election": gripfast.Election}
"""What a call makes whose result is used at once."""


def rows(section: str) -> list[list[str]]:
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def code(cell: str) -> list[str]:
    return [text for text in re.findall("`([^`]+)`", cell) if "://" not in text or "(" in text]


def of_gripfast() -> list[str]:
    return sorted({text for section in SECTIONS.values() for row in rows(section) for text in code(row[1])})


def checked(node: ast.expr) -> Any:
    """What this names, or makes; fails if there is no such name or argument."""
    match node:
        case ast.Name(id=name):
            return OURS[name]
        case ast.Attribute(value=value, attr=name):
            whole = checked(value)
            assert hasattr(whole, name) or name in getattr(whole, "__annotations__", {}), ast.unparse(node)
            return getattr(whole, name, None)
        case ast.Call(func=function, args=args, keywords=keywords):
            called = checked(function)
            fits(called, len(args), [each.arg for each in keywords if each.arg], isinstance(called, type))
            return MADE_BY.get(getattr(called, "__name__", ""))
    raise AssertionError(ast.unparse(node))


def fits(called: Any, args: int, keywords: list[str], is_class: bool) -> None:
    signature = inspect.signature(called)
    takes_self = not is_class and "self" in signature.parameters
    given: dict[str, Any] = dict.fromkeys(keywords)
    signature.bind(*[None] * (args + takes_self), **given)
    if unpacked := [each for each in signature.parameters.values() if each.kind is each.VAR_KEYWORD]:
        plain = set(signature.parameters) - {unpacked[0].name}
        known = plain | set(gripfast.LockKwargs.__annotations__ if called is not gripfast.connect else options())
        assert set(keywords) <= known, keywords


def options() -> set[str]:
    """Of `connect()`, for any store."""
    return set(COMMON).union(*(spec.options for spec in specs()))


@pytest.mark.parametrize("text", of_gripfast())
def test_every_name_and_argument_of_gripfast_is_there(text: str) -> None:
    checked(ast.parse(text, mode="eval").body)


@pytest.mark.parametrize(
    "text",
    [
        *("client.semaphor(name)", "client.lock(name, timeout=5)", "lease.helt", "client.locked(name, patience=3)"),
        "gripfast.connect(url, prefx='')",
    ],
)
def test_a_name_or_argument_that_is_not_there_is_noticed(text: str) -> None:
    with pytest.raises((AssertionError, TypeError)):
        checked(ast.parse(text, mode="eval").body)


@pytest.mark.parametrize("library", ["redis-py", "filelock", "python-redis-lock", "tooz", "kazoo", "django-pglock"])
def test_every_library_has_a_table_whose_rows_say_something(library: str) -> None:
    for theirs, ours, differs in rows(SECTIONS[library]):
        assert theirs
        assert ours or differs


# -- the others --------------------------------------------------------------------------------------------------------


def keywords_of(library: str) -> Iterator[str]:
    """Arguments that stand alone, or in a call of the lock: `timeout=10`, `lock.acquire(timeout=5)`."""
    for theirs, _, _ in rows(SECTIONS[library]):
        for text in code(theirs):
            if re.match(r"\w+=|lock\.", text):
                yield from re.findall(r"(\w+)=", text)


def test_the_arguments_of_redis_py_are_there() -> None:
    known = set(inspect.signature(redis.lock.Lock).parameters)
    assert set(keywords_of("redis-py")) <= known


def test_the_arguments_of_kazoo_are_there() -> None:
    functions = (kazoo.recipe.lock.Lock, kazoo.recipe.lock.Lock.acquire, kazoo.recipe.lock.Semaphore)
    known = {name for function in functions for name in inspect.signature(function).parameters}
    assert set(keywords_of("kazoo")) <= known


def test_the_defaults_of_the_others_are_those_that_the_page_tells() -> None:
    lock = inspect.signature(redis.lock.Lock).parameters
    assert (lock["timeout"].default, lock["sleep"].default) == (None, 0.1)
    assert inspect.signature(kazoo.client.KazooClient).parameters["timeout"].default == 10


# -- both at the same time ---------------------------------------------------------------------------------------------


def connecting(library: str) -> list[dict[str, Any]]:
    """The options of each `gripfast.connect(…)` in the table of this library."""
    found = [text for row in rows(SECTIONS[library]) for text in code(row[1]) if text.startswith("gripfast.connect(")]
    calls = [ast.parse(text, mode="eval").body for text in found]
    return [{each.arg: ast.literal_eval(each.value) for each in call.keywords} for call in calls]  # type: ignore[attr-defined]


def is_free(name: str, url: str, options: dict[str, Any]) -> bool:
    with gripfast.connect(url, **options) as client:
        lease = client.lock(name).try_acquire()
        if lease is not None:
            lease.release()
        return lease is not None


def test_redis_py_and_gripfast_exclude_each_other_only_with_the_prefix_of_the_page() -> None:
    (options,), url = connecting("redis-py"), shared_server().url
    with redis.Redis.from_url(url) as connection, connection.lock("coming from redis-py", timeout=60):
        assert not is_free("coming from redis-py", url, options)
        assert not is_free("coming from redis-py", f"{url}?prefix=", {})
        assert is_free("coming from redis-py", url, {})


def test_the_key_of_python_redis_lock_is_that_of_gripfast_by_default() -> None:
    """Its lock is `SET lock:name … NX`."""
    (options,), url = connecting("python-redis-lock"), shared_server().url
    with redis.Redis.from_url(url) as connection:
        connection.set("lock:coming from it", b"its id", nx=True, px=60_000)
        assert not is_free("coming from it", url, options)
        connection.delete("lock:coming from it")
        assert is_free("coming from it", url, options)


def test_kazoo_and_gripfast_exclude_each_other_only_with_the_root_of_the_page() -> None:
    (options,), server = connecting("kazoo"), zookeeper_server()
    with server.client() as theirs, theirs.Lock(f"{options['root']}/nightly"):
        assert not is_free("nightly", server.url, options)
        assert is_free("nightly", server.url, {})
    with server.client() as theirs, theirs.Lock("/gripfast/nightly"):
        assert not is_free("nightly", server.url, {})
