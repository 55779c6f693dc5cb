"""Mistakes that come from Gripfast's own words are told with what to write, too."""

from __future__ import annotations

import asyncio
import functools
import inspect
import itertools
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import gripfast
from support.both_colours import staged


@pytest.fixture
def client() -> Iterator[gripfast.Client]:
    with gripfast.connect("memory://") as client:
        yield client


@pytest.mark.parametrize("connect", [gripfast.connect, gripfast.connect_async])
def test_what_operators_do_names_the_kind(connect: Callable[[str], Any]) -> None:
    """Without it, they would do it to the lock of the same name."""
    client = connect("memory://")
    kinds = {"semaphore": client.semaphore("job", 3), "rwlock": client.rwlock("job").read(), "": client.lock("job")}
    methods = {"release": "force_release", "force_release": "force_release", "locked": "inspect"}
    for (kind, held), (missing, method) in itertools.product(kinds.items(), methods.items()):
        call = f"`client.{method}(name, kind={kind!r})`" if kind else f"`client.{method}(name)`"
        with pytest.raises(AttributeError) as refused:
            getattr(held, missing)
        assert call in str(refused.value).replace("await ", "")


@pytest.mark.parametrize("connect", [gripfast.connect, gripfast.connect_async])
def test_a_decorator_is_no_context_manager(connect: Callable[[str], Any]) -> None:
    client = connect("memory://")
    with pytest.raises(TypeError, match=r"it decorates functions\. Write `with client\.lock\(name\):`"):
        with client.locked("job"):
            pass
    with pytest.raises(TypeError, match=r"Write `with`, and one of client\.semaphore\(name, limit\), client\.rwlock"):
        with client.limited("job", 3):
            pass

    async def enter() -> None:
        async with client.locked("job"):
            pass

    with pytest.raises(TypeError, match=r"Write `async with client\.lock\(name\):`"):
        asyncio.run(enter())


@pytest.mark.parametrize("connect", [gripfast.connect, gripfast.connect_async])
def test_a_name_from_the_arguments_is_a_text(connect: Callable[[str], Any]) -> None:
    client = connect("memory://")
    for decorate in (client.locked, lambda name: client.limited(name, 3)):
        with pytest.raises(
            gripfast.ConfigurationError, match=r"is a text with placeholders, such as 'report:{user_id}'"
        ):
            decorate(lambda user: f"user:{user}")


def test_bytes_of_a_queue_are_not_adopted_but_told(client: gripfast.Client) -> None:
    text = client.lock("job").acquire().detach()
    with pytest.raises(gripfast.ConfigurationError, match=r"this is bytes, .*pass text\.decode\(\)"):
        client.adopt(text.encode())  # type: ignore[arg-type]
    client.adopt(text).release()


@pytest.mark.parametrize("lock", [gripfast.lock, gripfast.async_lock])
def test_the_help_of_the_default_lock_names_its_settings(lock: Callable[..., Any]) -> None:
    told = inspect.getdoc(lock) or ""
    assert set(gripfast.LockKwargs.__annotations__) <= set(re.findall(r"\w+", told))
    assert "help(gripfast.Client.lock)" in told


def test_a_lock_of_threads_in_a_coroutine_is_told_that_of_tasks(client: gripfast.Client) -> None:
    async def enter() -> None:
        async with gripfast.lock("job"):  # type: ignore[attr-defined]
            pass

    words = r"write `with`\. For `async with`, write gripfast\.async_lock\(name\), or .*gripfast\.connect_async\(url\)"
    with pytest.raises(TypeError, match=words):
        asyncio.run(enter())
    others: list[Any] = [client, client.rwlock("job").read(), client.semaphore("job", 2)]
    for other in others:
        with pytest.raises(TypeError, match="connect_async") as refused:
            other.__aenter__  # noqa: B018
        assert "async_lock" not in str(refused.value)


@pytest.mark.parametrize("connect", [gripfast.connect, gripfast.connect_async])
@pytest.mark.parametrize("template", ["x:{}", "x:{0}", "x:{0.id}"])
def test_braces_without_a_name_are_told_to_have_one(connect: Callable[[str], Any], template: str) -> None:
    async def work(self: object, order: int) -> None: ...

    with pytest.raises(gripfast.ConfigurationError, match=r"write it in them, such as {order}$"):
        connect("memory://").locked(template)(work)


@pytest.mark.parametrize(
    "function",
    [lambda *args, **kwargs: 1, lambda *args, user_id=0: 1, lambda user_id, *args: 1],
    ids=["none", "behind", "before"],
)
def test_braces_are_not_filled_from_all_arguments(client: gripfast.Client, function: Any) -> None:
    with pytest.raises(gripfast.ConfigurationError, match=r"such as {user_id}$"):
        client.locked("j-{}")(function)


class _Unsigned:
    def __call__(self, *args: object) -> None: ...

    @property
    def __signature__(self) -> inspect.Signature:
        raise NameError("of an annotation that is read late, as in Python 3.14")


def test_a_function_whose_signature_can_not_be_read_is_believed(client: gripfast.Client) -> None:
    with client.lock("job", on_lost=_Unsigned()):
        pass


@pytest.mark.parametrize(
    "function",
    [lambda: 1, lambda term, more: 1, functools.partial(lambda term: 1, None)],
    ids=["none", "two", "partial"],
)
def test_what_can_not_lead_is_refused_before_it_is_elected(client: gripfast.Client, function: Any) -> None:
    """And not when the campaign is won, maybe days later."""
    told = r"run\(\) calls the function with the term, and .* write `def work\(term\): …`"
    with client.lock("job"), pytest.raises(gripfast.ConfigurationError, match=told):
        client.election("job").run(function)

    async def run() -> None:
        async with gripfast.connect_async("memory://") as aclient:
            with pytest.raises(gripfast.ConfigurationError, match=told):
                await aclient.election("job").run(function)

    asyncio.run(run())


def test_what_may_take_the_term_leads(client: gripfast.Client) -> None:
    for function in (lambda *all: 1, lambda term, more=1: 1, functools.wraps(work_alone)(lambda term: 1)):
        assert client.election("job").run(function) == 1


def work_alone() -> None: ...


def test_a_client_that_is_closed_is_not_entered() -> None:
    client = gripfast.connect("memory://")
    client.close()
    with pytest.raises(gripfast.ClientClosed), client:
        raise AssertionError("entered")

    async def enter() -> None:
        aclient = gripfast.connect_async("memory://")
        await aclient.aclose()
        with pytest.raises(gripfast.ClientClosed):
            async with aclient:
                raise AssertionError("entered")

    asyncio.run(enter())


@pytest.mark.parametrize("connect", [gripfast.connect, gripfast.connect_async])
def test_one_call_lists_one_kind(connect: Callable[[str], Any]) -> None:
    with pytest.raises(gripfast.ConfigurationError, match=r"not 'all': make one call for each kind$"):
        connect("memory://").list(kind="all")
    with pytest.raises(gripfast.ConfigurationError, match=r"not 'lokc'$"):
        connect("memory://").list(kind="lokc")


@pytest.mark.parametrize("kind", [gripfast.Lease, gripfast.AsyncLease])
def test_the_event_of_a_loss_is_not_callable(kind: type[Any]) -> None:
    """A template calls what is callable. If `lost` refused the call, Django would render `lease.lost.is_set` as empty,
    and so show a lost lease as one that is held."""
    assert not callable(object.__new__(kind).lost)


@staged
async def test_an_attempt_to_adopt_or_lead_says_what_to_await() -> None:
    async with gripfast.connect_async("memory://") as client:
        text = await (await client.lock("job").acquire()).detach()
        election = client.election("boss")
        attempts: list[tuple[Callable[[], Any], str]] = [
            (lambda: client.adopt(text), "await client.adopt(text)"),
            (election.lead, "await election.lead()"),
            (election.try_lead, "await election.try_lead()"),
        ]
        for attempt, instead in attempts:
            with pytest.raises(TypeError, match=re.escape(instead)):
                bool(attempt())
            used = attempt()
            lease = await used
            with pytest.raises(AttributeError, match=re.escape(instead)):
                used.held  # noqa: B018
            await lease.release()


@staged
async def test_a_text_that_was_adopted_is_not_adopted_again() -> None:
    async with gripfast.connect_async("memory://") as client:
        used = client.adopt(await (await client.lock("job").acquire()).detach())
        async with used:
            pass
        with pytest.raises(RuntimeError, match="a text can be adopted once") as refused:
            await used
        assert "call it again" not in str(refused.value)


@staged
async def test_only_a_writer_can_downgrade() -> None:
    with gripfast.connect("memory://") as client:
        with (
            client.rwlock("job").read() as lease,
            pytest.raises(AttributeError, match=r"`with rwlock\.write\(\) as lease"),
        ):
            lease.downgrade()  # type: ignore[attr-defined]
        with client.rwlock("job").write() as writer:
            assert "downgrade" in dir(writer)
            assert "downgrade" in dir(type(writer))
            writer.downgrade()
    async with gripfast.connect_async("memory://") as aclient:
        async with aclient.rwlock("job").read() as alease:
            with pytest.raises(
                AttributeError, match=r"`async with rwlock\.write\(\) as lease:`.*await lease\.downgrade"
            ):
                await alease.downgrade()  # type: ignore[attr-defined]
        async with aclient.rwlock("job").write() as awriter:
            assert "downgrade" in dir(awriter)
            await awriter.downgrade()


def test_a_lock_for_tasks_and_one_of_redis_are_told_what_they_are_here() -> None:
    with pytest.raises(ImportError, match=r"write gripfast\.async_lock\(name\)"):
        from gripfast import lock_async  # type: ignore[attr-defined] # noqa: F401
    with pytest.raises(ImportError, match=r"write gripfast\.lock\(name\)"):
        from gripfast import RedisLock  # type: ignore[attr-defined] # noqa: F401


def test_a_module_that_is_not_imported_yet_is_told_how() -> None:
    script = (
        "import gripfast\n"
        "try: gripfast.testing.World\n"
        "except AttributeError as error: print(error)\n"
        "from gripfast import fencing, testing\n"
        "gripfast.testing.World; fencing.guard"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=True)
    assert "it is a module: write `import gripfast.testing`" in ended.stdout
