"""`@client.locked(…)`: a function that runs only while the lock is held."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import gripfast
from gripfast import ConfigurationError, LeaseLost, LockTimeout
from gripfast.testing.colours import World
from gripfast.testing.waiting import until


class Report:
    """A function that notes its calls and who held which lock meanwhile."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.calls: list[Any] = []

    def locked(self, actor: Any, template: Any, **settings: Any) -> Callable[..., Any]:
        def report(user_id: Any, kind: str = "daily", *, deep: bool = False) -> str:
            """Make a report."""
            self.calls.append((user_id, kind, deep))
            return f"report for {user_id}"

        decorated: Callable[..., Any] = actor.client.locked(template, **settings)(self.world.colour.function(report))
        return decorated


@pytest.fixture
def report(world: World) -> Report:
    return Report(world)


async def test_the_function_runs_and_its_result_comes_back(world: World, report: Report) -> None:
    alice = world.actor()
    assert await alice.calls(report.locked(alice, "report"), 5) == "report for 5"
    assert report.calls == [(5, "daily", False)]
    assert await world.inspect("report") is None


async def test_the_lock_is_held_while_the_function_runs(world: World) -> None:
    alice = world.actor()
    seen: list[Any] = []

    def look() -> None:
        with gripfast.connect(world.url) as onlooker:
            seen.append(onlooker.inspect("report"))

    await alice.calls(alice.client.locked("report", label="the label")(world.colour.function(look)))
    assert (seen[0].name, seen[0].label) == ("report", "the label")


async def test_a_busy_lock_raises_unless_told_otherwise(world: World, report: Report) -> None:
    alice, bob = world.actors(2)
    await bob.acquire("report")
    with pytest.raises(LockTimeout):
        await alice.calls(report.locked(alice, "report", wait=0), 5)
    with pytest.raises(LockTimeout):
        await alice.calls(report.locked(alice, "report", wait=0.05, busy="raise"), 5)
    assert report.calls == []


async def test_a_busy_lock_skips_the_call_when_told_so(world: World, report: Report) -> None:
    alice, bob = world.actors(2)
    lease = await bob.acquire("report")
    make_report = report.locked(alice, "report", wait=0, busy="skip")
    assert await alice.calls(make_report, 5) is None
    assert report.calls == []
    await bob.release(lease)
    assert await alice.calls(make_report, 5) == "report for 5"


async def test_a_busy_lock_calls_a_function_when_told_so(world: World, report: Report) -> None:
    alice, bob = world.actors(2)
    lease = await bob.acquire("report", label="bob's")
    make_report = report.locked(alice, "report", wait=0, busy=lambda busy: (busy.name, busy.holder.label))
    assert await alice.calls(make_report, 5) == ("report", "bob's")
    assert report.calls == []
    await bob.release(lease)
    assert await alice.calls(make_report, 5) == "report for 5"


async def test_the_function_finds_its_lease(world: World) -> None:
    alice = world.actor()

    def look() -> tuple[str, int]:
        lease = gripfast.current_lease()
        lease.ensure_held()
        return lease.name, lease.token

    with gripfast.connect(world.url) as onlooker:
        function = world.colour.function(lambda: (look(), onlooker.inspect("report")))
        found, info = await alice.calls(alice.client.locked("report")(function))
    assert info is not None
    assert found == ("report", info.token)


async def test_the_function_waits_for_its_lock(world: World, report: Report) -> None:
    alice, bob = world.actors(2)
    lease = await bob.acquire("report")
    calling = alice.calls(report.locked(alice, "report"), 5)
    await world.queued("report", 1)
    assert report.calls == []
    await bob.release(lease)
    assert await calling == "report for 5"


NAMES_MADE: list[tuple[str, tuple[Any, ...], dict[str, Any], str]] = [
    ("report", (5,), {}, "report"),
    ("report:{user_id}", (5,), {}, "report:5"),
    ("report:{user_id}", (), {"user_id": 5}, "report:5"),
    ("report:{user_id}:{kind}", (5,), {}, "report:5:daily"),
    ("report:{user_id}:{kind}", (5, "weekly"), {}, "report:5:weekly"),
    ("report:{deep}", (5,), {"deep": True}, "report:True"),
    ("report:{user_id}", ("it's {odd} %s",), {}, "report:it's {odd} %s"),
    ("{{literal}}:{user_id}", (5,), {}, "{literal}:5"),
]


async def test_names_are_made_from_arguments(world: World, report: Report) -> None:
    alice, bob = world.actors(2)
    for template, args, kwargs, name in NAMES_MADE:
        make_report = report.locked(alice, template, wait=0, busy="skip")
        lease = await bob.acquire(name)
        assert await alice.calls(make_report, *args, **kwargs) is None
        await bob.release(lease)
        assert await alice.calls(make_report, *args, **kwargs) is not None


async def test_other_arguments_are_another_lock(world: World, report: Report) -> None:
    alice, bob = world.actors(2)
    await bob.acquire("report:5")
    assert await alice.calls(report.locked(alice, "report:{user_id}", wait=0), 6) == "report for 6"


async def test_a_bad_template_is_refused_and_nothing_runs(world: World, report: Report) -> None:
    alice = world.actor()
    for template in ("report:{nobody}", "report:{", "report:}", "report:{}", "", "a\0b", 5, None):
        with pytest.raises(ConfigurationError):
            await alice.calls(report.locked(alice, template), 5)
    assert report.calls == []


async def test_a_bad_template_is_refused_by_the_name_of_the_missing_argument(world: World, report: Report) -> None:
    alice = world.actor()
    with pytest.raises(ConfigurationError, match="nobody"):
        await alice.calls(report.locked(alice, "report:{nobody}"), 5)


async def test_an_argument_that_makes_a_bad_name_is_refused(world: World, report: Report) -> None:
    alice = world.actor()
    for user_id in ("", "a\0b", "x" * 600, "\ud800"):
        with pytest.raises(ConfigurationError):
            await alice.calls(report.locked(alice, "{user_id}"), user_id)
    assert report.calls == []


async def test_a_wrong_call_is_a_type_error_as_without_the_lock(world: World, report: Report) -> None:
    alice = world.actor()
    with pytest.raises(TypeError):
        await alice.calls(report.locked(alice, "report:{user_id}"))


async def test_bad_settings_are_refused_and_nothing_runs(world: World, report: Report) -> None:
    alice = world.actor()
    for settings in ({"busy": "maybe"}, {"busy": None}, {"ttl": 0}, {"wait": -1}):
        with pytest.raises(ConfigurationError):
            await alice.calls(report.locked(alice, "report", **settings), 5)
    assert report.calls == []


async def test_an_error_of_the_function_comes_out_and_frees_the_lock(world: World) -> None:
    alice = world.actor()

    def fail() -> None:
        raise KeyError("the function's own")

    with pytest.raises(KeyError, match="the function's own"):
        await alice.calls(alice.client.locked("report")(world.colour.function(fail)))
    assert await world.inspect("report") is None


async def test_the_decorated_function_keeps_its_name_and_text(world: World, report: Report) -> None:
    make_report = report.locked(world.actor(), "report")
    assert make_report.__name__ == "report"
    assert make_report.__doc__ == "Make a report."


async def test_methods_can_be_locked_by_what_they_are_called_with(world: World) -> None:
    alice, bob = world.actors(2)

    class Account:
        @alice.client.locked("account:{number}", wait=0, busy="skip")  # type: ignore[untyped-decorator]
        @world.colour.function
        def pay(self, number: int) -> str:
            return f"paid {number} from {type(self).__name__}"

    await bob.acquire("account:1")
    assert await alice.calls(Account().pay, 1) is None
    assert await alice.calls(Account().pay, 2) == "paid 2 from Account"


async def test_a_lease_lost_while_the_function_ran_is_told(world: World) -> None:
    alice = world.actor()

    def outlive_the_lease() -> None:
        with gripfast.connect(world.url) as onlooker:
            until(lambda: onlooker.inspect("report") is None)

    with pytest.raises(LeaseLost):
        function = world.colour.function(outlive_the_lease)
        await alice.calls(alice.client.locked("report", ttl=0.1, renew=False)(function))


async def test_a_blocking_client_locks_async_functions_too(threads: World) -> None:
    client = threads.connect()
    bob = threads.actor()

    @client.locked("report:{user_id}", wait=5)  # type: ignore[untyped-decorator]
    async def report(user_id: int) -> str:
        assert await bob.try_acquire("report:5") is None
        return f"report for {user_id}"

    lease = await bob.acquire("report:5")
    calling = asyncio.ensure_future(report(5))
    await threads.queued("report:5", 1)
    await bob.release(lease)
    assert await calling == "report for 5"


async def test_an_async_client_refuses_to_lock_plain_functions(tasks: World) -> None:
    with pytest.raises(ConfigurationError, match="async"):
        tasks.connect().locked("report")(lambda: None)
