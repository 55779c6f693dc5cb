"""What happens around the code under test: others who hold locks, outages, losses. And what is left at the end."""

import asyncio
import contextlib
import os
from collections.abc import Iterator
from typing import Any

import pytest

import gripfast
from gripfast.api.default import default_client
from gripfast.errors import Reason
from gripfast.testing import World


@pytest.fixture
def world() -> Iterator[World]:
    with World() as world:
        yield world


def test_the_default_client_and_the_environment_are_in_the_world(world: World) -> None:
    with gripfast.lock("job"), gripfast.connect() as another:
        assert world.held() == ["job"]
        assert world.client.lock("job").try_acquire() is None
        assert another.lock("job").try_acquire() is None


def test_two_worlds_do_not_meet(world: World) -> None:
    with World() as inner, world.client.lock("job"):
        assert inner.held() == []
        inner.client.lock("job").acquire(wait=0).release()


def test_after_it_everything_is_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRIPFAST_URL", "memory://before")
    gripfast.configure()
    before = default_client()
    with World() as world:
        assert default_client().where == world.url == os.environ["GRIPFAST_URL"]
    assert default_client() is before
    assert os.environ["GRIPFAST_URL"] == "memory://before"
    gripfast.configure()


def test_a_closed_world_can_not_be_used(world: World) -> None:
    with World() as closed:
        pass
    with pytest.raises(gripfast.ClientClosed):
        closed.client.lock("job").acquire()


def test_somebody_else_holds_it_and_can_be_seen(world: World) -> None:
    with world.hold("job", label="cron", host="web7", pid=12) as held:
        with pytest.raises(gripfast.LockTimeout, match="pid 12 on web7 \\(cron\\)"):
            gripfast.lock("job").acquire(wait=0)
        assert world.client.inspect("job").token == held.token
        assert world.held() == []
    with gripfast.lock("job") as lease:
        assert lease.token > held.token


def test_somebody_else_goes_on_holding_it_while_this_process_is_suspended(world: World) -> None:
    with world.hold("job"):
        world.clock.suspend(3600)
        assert gripfast.lock("job").try_acquire() is None


def test_what_is_held_can_not_be_held_by_somebody_else(world: World) -> None:
    with gripfast.lock("job"), pytest.raises(gripfast.LockTimeout):
        world.hold("job")


def test_somebody_else_holds_it_for_a_while(world: World) -> None:
    began = world.clock.now()
    world.hold("job", seconds=5)
    with world.clock.fast_forward(), gripfast.lock("job").acquire(wait=10):
        assert 4.9 < world.clock.now() - began < 9.0


@pytest.mark.parametrize("wait", [0, 10, None])
def test_an_outage_is_an_error_when_patience_is_over(world: World, wait: float | None) -> None:
    with (
        world.outage(),
        world.clock.fast_forward(),
        pytest.raises(gripfast.StoreUnavailable, match="refused") as raised,
    ):
        gripfast.lock("job").acquire(wait=wait)
    assert list(raised.value.nodes) == [world.url]
    gripfast.lock("job").acquire(wait=0).release()


def test_a_waiter_survives_an_outage_that_ends(world: World) -> None:
    with world.outage(seconds=3), world.clock.fast_forward(), gripfast.lock("job").acquire(wait=10) as lease:
        assert lease.held


def test_a_lease_survives_an_outage_shorter_than_its_ttl(world: World) -> None:
    lease = gripfast.lock("job").acquire()
    with world.outage():
        world.clock.advance(15)
    world.clock.advance(20)
    assert lease.held
    with world.outage():
        world.clock.advance(31)
    with pytest.raises(gripfast.LeaseLost, match="expired"):
        lease.release()


@pytest.mark.parametrize("reason", ["expired", "taken", "broken", "session", "max_hold"])
@pytest.mark.parametrize("by_name", [True, False])
def test_a_lease_is_lost_on_demand(world: World, reason: Reason, by_name: bool) -> None:
    told: list[str] = []
    lease = gripfast.lock("job", on_lost=lambda _, reason: told.append(reason)).acquire()
    world.lose("job" if by_name else lease, reason)
    assert told == [reason]
    assert (world.client.inspect("job") is not None) == (reason == "taken")
    with pytest.raises(gripfast.LeaseLost) as raised:
        lease.release()
    assert raised.value.reason == reason


def test_the_operators_note_is_told(world: World) -> None:
    with pytest.raises(gripfast.LeaseLost, match="maintenance"), gripfast.lock("job"):
        world.lose("job", "broken", note="maintenance")


def test_permits_are_lost_on_demand(world: World) -> None:
    with pytest.raises(gripfast.LeaseLost), world.client.semaphore("jobs", 2):
        world.lose("jobs")
    assert world.client.inspect("jobs", "semaphore") is None


def test_what_is_lost_goes_to_a_client_that_waits(world: World) -> None:
    lease = gripfast.lock("job").acquire()
    world.lose(lease)
    gripfast.lock("job").acquire(wait=0).release()


def test_what_nobody_holds_can_not_be_lost(world: World) -> None:
    with gripfast.lock("job"), pytest.raises(gripfast.ConfigurationError, match="holds 'job', not 'jobs'"):
        world.lose("jobs")


@pytest.mark.parametrize(("reason", "note"), [("released", None), ("expired", "a note"), ("stolen", None)])
def test_a_loss_that_can_not_be_is_refused(world: World, reason: Reason, note: str | None) -> None:
    with gripfast.lock("job"), pytest.raises(gripfast.ConfigurationError):
        world.lose("job", reason, note=note)


client_of_a_module = gripfast.connect("redis://localhost:1", prefix="shop:", ttl=7)


@client_of_a_module.locked("decorated")
def decorated() -> float:
    return gripfast.current_lease().ttl


def test_a_client_that_was_made_before_is_redirected(world: World) -> None:
    before = dict(vars(client_of_a_module))
    with World() as inner:
        inner.redirect(client_of_a_module)
        assert decorated() == 7
        with client_of_a_module.lock("job"):
            assert inner.held() == ["job"]
            assert [info.name for info in inner.client.list()] == ["shop:job"]
    assert vars(client_of_a_module) == before


client_with_the_prefix_of_redis = gripfast.connect("redis://localhost:1")


def test_a_prefix_that_nobody_chose_is_left_behind(world: World) -> None:
    """Otherwise `hold()` would hold another name than the code under test locks."""
    world.redirect(client_with_the_prefix_of_redis)
    with world.hold("job"):
        assert client_with_the_prefix_of_redis.lock("job").try_acquire() is None


lock_of_a_module = client_with_the_prefix_of_redis.lock("job", ttl=7)
MADE_BEFORE: dict[str, Any] = {
    "lock": lock_of_a_module,
    "semaphore": gripfast.connect("redis://localhost:1").semaphore("job", 1),
    "election": gripfast.connect("redis://localhost:1").election("job"),
    "reader": gripfast.connect("redis://localhost:1").rwlock("job").read(),
}


def test_a_lock_that_was_made_before_is_redirected(world: World) -> None:
    key = lock_of_a_module._settings.want.key
    with World() as inner:
        inner.redirect(lock_of_a_module)
        inner.redirect(lock_of_a_module)
        with lock_of_a_module as lease:
            assert inner.held() == ["job"]
            assert lease.ttl == 7
        with inner.hold("job"):
            assert lock_of_a_module.try_acquire() is None
    assert lock_of_a_module._settings.want.key == key == "lock:job"


def test_a_lock_of_the_default_client_that_was_made_before_is_redirected() -> None:
    gripfast.configure("redis://localhost:1")
    try:
        lock, other = gripfast.lock("job"), gripfast.lock("other")
        with World() as world:
            world.redirect(lock)
            world.redirect(other)
            with world.hold("job"), other:
                assert world.held() == ["other"]
                assert lock.try_acquire() is None
            assert gripfast.lock("job")._client is not lock._client
    finally:
        gripfast.configure()


@pytest.mark.parametrize("kind", MADE_BEFORE)
def test_so_is_whatever_has_a_name(world: World, kind: str) -> None:
    made = MADE_BEFORE[kind]
    world.redirect(made)
    lease = made.try_lead() if kind == "election" else made.try_acquire()
    assert world.held() == ["job"]
    lease.release()


def made_by(client: Any) -> dict[str, Any]:
    return {
        "lock": client.lock("job"),
        "locks": client.locks("job", "more"),
        "semaphore": client.semaphore("permits", 1),
        "rwlock": client.rwlock("permits"),
        "reader": client.rwlock("permits").read(),
        "election": client.election("job"),
        "once": client.once("job", keep=60),
    }


class _Refused(Exception):
    pass


def enter(kind: str, made: Any) -> None:
    if kind == "once":
        with made as run:
            if not run:
                raise _Refused
        return
    lease = made.try_lead() if kind == "election" else (made.write() if kind == "rwlock" else made).try_acquire()
    if lease is None:
        raise _Refused
    lease.release()


def hold_all(world: World) -> contextlib.ExitStack:
    """What `made_by` makes."""
    stack = contextlib.ExitStack()
    other = stack.enter_context(gripfast.connect(world.url))
    stack.enter_context(world.hold("job"))
    stack.enter_context(other.semaphore("permits", 1))
    stack.enter_context(other.rwlock("permits").write())
    return stack


KINDS = list(made_by(client_with_the_prefix_of_redis))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("passed", ["client", *KINDS])
def test_all_that_its_client_has_made_moves_with_it(passed: str, kind: str) -> None:
    client = gripfast.connect("redis://localhost:1")
    made = made_by(client)
    with World() as world:
        world.redirect(client if passed == "client" else made[passed])
        with hold_all(world):
            for each in (made[kind], made_by(client)[kind]):
                with pytest.raises(_Refused):
                    enter(kind, each)
            world.may_stay_held("permits")
        enter(kind, made[kind])


def test_what_async_clients_have_made_moves_too() -> None:
    async def main(world: World, made: dict[str, Any]) -> None:
        with hold_all(world):
            for each in (made["lock"], made["locks"], made["semaphore"], made["reader"], made["rwlock"].write()):
                assert await each.try_acquire() is None
            async with made["once"] as run:
                assert run.busy
            assert await made["election"].try_lead() is None
            world.may_stay_held("permits")
        async with made["locks"]:
            assert world.held() == ["job", "more"]

    made = made_by(gripfast.connect_async("redis://localhost:1"))
    with World() as world:
        world.redirect(made["rwlock"])
        asyncio.run(main(world, made))


def test_a_redirected_client_shows_the_names_of_its_callers(world: World) -> None:
    client = gripfast.connect("redis://localhost:1")
    names = ["job", "lock:job", "lock:lock:job"]
    locks, semaphore = client.locks(*names), client.semaphore("lock:s", 3)
    with World() as inner:
        inner.redirect(locks)
        with locks, semaphore:
            assert [info.name for info in client.list()] == [info.name for info in inner.client.list()] == names
            assert [info.name for info in client.list("lock:")] == names[1:]
            assert [info.name for info in client.list(kind="semaphore")] == ["lock:s"]
            for name in names:
                info = client.inspect(name)
                assert info is not None
                assert info.name == name
            semaphore.resize(4)
            permits = client.inspect("lock:s", kind="semaphore")
            assert permits is not None
            assert (permits.name, permits.limit) == ("lock:s", 4)
        with inner.hold("lock:job"):
            with pytest.raises(gripfast.LockTimeout) as busy:
                client.lock("lock:job").acquire(wait=0)
            assert busy.value.holder is not None
            assert busy.value.holder.name == "lock:job"
            client.lock("job").acquire(wait=0).release()
            assert client.force_release("lock:job", reason="lock: a note")


def test_a_lease_of_a_redirected_lock_is_lost(world: World) -> None:
    lock = gripfast.connect("redis://localhost:1").lock("job")
    with World() as inner:
        inner.redirect(lock)
        lease = lock.acquire()
        inner.lose(lease, "taken")
        assert lease.lost.is_set()
        assert lock.try_acquire() is None
        assert inner.client.lock("job").try_acquire() is None


def test_a_redirected_lock_is_renewed_and_waited_for(world: World) -> None:
    lock = gripfast.connect("redis://localhost:1").lock("job")
    with World() as inner:
        inner.redirect(lock)
        with lock as lease:
            inner.clock.advance(600)
            lease.ensure_held()
        with inner.hold("job", seconds=20), inner.clock.fast_forward():
            lock.acquire(wait=60).release()
        with (
            inner.hold("job"),
            inner.clock.fast_forward(),
            pytest.raises(AssertionError, match="waits for 'job' without"),
        ):
            lock.acquire()


def test_an_async_lock_that_was_made_before_is_redirected(world: World) -> None:
    async def main() -> None:
        lock = gripfast.connect_async("redis://localhost:1").lock("job")
        with World() as inner:
            inner.redirect(lock)
            async with lock:
                assert inner.held() == ["job"]

    asyncio.run(main())


@pytest.mark.parametrize("what", ["redis://localhost:1", None, print, client_of_a_module.locked("job")])
def test_what_can_not_be_redirected_is_told_what_to_pass(world: World, what: Any) -> None:
    with pytest.raises(gripfast.ConfigurationError, match=r"redirect\(\) takes a client, or a lock.*: pass the client"):
        world.redirect(what)


def test_a_prefix_that_the_program_chose_is_part_of_the_name(world: World) -> None:
    world.redirect(client_of_a_module)
    with world.hold("shop:job"):
        assert client_of_a_module.lock("job").try_acquire() is None


def test_a_loss_that_is_noticed_late_says_why(world: World, caplog: pytest.LogCaptureFixture) -> None:
    lease = world.client.lock("job").acquire()
    world.clock.suspend(600)
    assert not lease.held
    assert "noticed 570 s late: this process was paused, or its code blocked the event loop" in caplog.text


def test_a_loss_that_is_noticed_in_time_does_not(world: World, caplog: pytest.LogCaptureFixture) -> None:
    lease = world.client.lock("job", renew=False).acquire()
    world.clock.advance(600)
    assert not lease.held
    assert "lost (expired)" in caplog.text
    assert "late" not in caplog.text


# -- what is left at the end -----------------------------------------------------------------------------------------


def test_a_lock_that_is_still_held_is_named_with_its_line() -> None:
    with pytest.raises(AssertionError, match=r"'job' is still held \(it was acquired in .*test_world.py, line \d+\)"):
        with World():
            lease = gripfast.lock("job").acquire()
    assert not lease.held  # the world is closed


@pytest.mark.parametrize("kind", ["semaphore", "rwlock"])
def test_permits_that_are_still_held_are_named(kind: str) -> None:
    with pytest.raises(AssertionError, match="'jobs' is still held"), World() as world:
        lock = world.client.semaphore("jobs", 2) if kind == "semaphore" else world.client.rwlock("jobs").write()
        lease = lock.acquire()
    assert not lease.held


def test_a_lease_that_was_dropped_is_named() -> None:
    with pytest.raises(AssertionError, match="lease on 'job' was dropped while it was held"), World():
        gripfast.lock("job").acquire()


def test_a_lease_of_another_client_is_named() -> None:
    with pytest.raises(AssertionError, match="'job' is still held"), World() as world:
        client = gripfast.connect(world.url)
        lease = client.lock("job").acquire()
    client.close()
    del lease


def test_what_may_stay_held_is_not_named() -> None:
    with World() as world:
        world.may_stay_held("job", "another")
        lease = gripfast.lock("job").acquire()
        gripfast.lock("another").acquire()
        world.check()
    assert not lease.held


def test_neither_a_min_hold_nor_what_is_done_nor_a_holder_elsewhere_is_left_held() -> None:
    with World() as world:
        with world.client.lock("job", min_hold=60), world.client.once("digest", keep=60):
            pass
        world.hold("another")


def test_a_test_that_failed_is_not_told_what_it_has_left() -> None:
    with pytest.raises(ZeroDivisionError), World():
        lease = gripfast.lock("job").acquire()
        _ = 1 / 0
    assert not lease.held
