"""The semaphores and read/write locks that the benchmarks measure are what their names say: a wrong ruler measures
nothing."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from threading import Thread
from typing import Any

import pytest

from bench.locks import Make
from bench.permits import LIMIT, can, read_lock, semaphore, write_lock
from bench.redis.peers import redis_client
from bench.redis.permit_peers import RECIPE, RW_LOCKS, SEMAPHORES, Recipe
from bench.redis.server import redis_server
from bench.runner import is_installed
from bench.zookeeper.permits import KAZOO_READ, KAZOO_SEMAPHORE, KAZOO_WRITE, rwlock_makes, semaphore_makes
from bench.zookeeper.server import hasty_server
from support.waiting import until


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with redis_server(tmp_path_factory.mktemp("redis")) as url:
        yield url


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with hasty_server(tmp_path_factory.mktemp("zookeeper")) as url:
        yield url


def needed(make: Make) -> None:
    if missing := [package for package in make.needs if not is_installed(package)]:
        pytest.skip(f"not installed: {missing[0]}")


class Entering:
    """Somebody else, who enters on a thread and a connection of its own."""

    def __init__(self, make: Make, url: str, name: str) -> None:
        self.is_in = False
        self._make, self._url, self._name = make, url, name
        self._thread = Thread(target=self._enter)

    def _enter(self) -> None:
        with self._make.locks(self._url) as lock_of, lock_of(self._name):
            self.is_in = True

    def __enter__(self) -> "Entering":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join(30)
        assert self.is_in


@contextmanager
def holding(make: Make, url: str, name: str, count: int) -> Iterator[None]:
    """So many at the same time, each with a connection of its own."""
    with ExitStack() as stack:
        for _ in range(count):
            lock: Any = stack.enter_context(make.locks(url))(name)
            stack.enter_context(lock)
        yield


def is_kept_out(inside: AbstractContextManager[None], make: Make, url: str, name: str) -> None:
    """Someone who comes meanwhile enters only afterwards. That it does not enter can't be waited for: it is given the
    time that it takes to enter another one."""
    with inside:
        late = Entering(make, url, name)
        late._thread.start()
        with Entering(make, url, f"{name}, another"):
            pass
        assert not late.is_in
    until(lambda: late.is_in, within=10)
    late._thread.join(30)


@pytest.mark.parametrize("make", [semaphore("redis"), *SEMAPHORES], ids=lambda make: make.name)
def test_as_many_enter_as_the_limit_says_on_redis(redis: str, make: Make) -> None:
    needed(make)
    with holding(make, redis, make.name, LIMIT - 1), Entering(make, redis, make.name):
        pass
    is_kept_out(holding(make, redis, make.name, LIMIT), make, redis, make.name)


def test_the_recipe_leaves_nothing_behind_and_refuses_at_once(redis: str) -> None:
    with closing(redis_client(redis)) as client:
        holders = [Recipe(client, "planted", 2) for _ in range(3)]
        assert [each.try_acquire() for each in holders] == [True, True, False]
        for each in holders[:2]:
            each.__exit__()
        assert client.exists("planted") == 0
    assert RECIPE.name.startswith("recipe")


@pytest.mark.parametrize(
    ("read", "write"), [(read_lock("redis"), write_lock("redis")), RW_LOCKS], ids=lambda make: make.name
)
def test_readers_enter_together_and_no_writer_with_them_on_redis(redis: str, read: Make, write: Make) -> None:
    needed(read)
    reads_and_writes(redis, read, write)


def test_kazoos_are_what_they_say(zookeeper: str) -> None:
    is_kept_out(holding(KAZOO_SEMAPHORE, zookeeper, "bench", LIMIT), KAZOO_SEMAPHORE, zookeeper, "bench")
    reads_and_writes(zookeeper, KAZOO_READ, KAZOO_WRITE)


def reads_and_writes(url: str, read: Make, write: Make) -> None:
    with holding(read, url, "index", 1), Entering(read, url, "index"):
        pass
    is_kept_out(holding(read, url, "index", 1), write, url, "index")
    is_kept_out(holding(write, url, "index", 1), read, url, "index")


@pytest.mark.parametrize("makes", [semaphore_makes, rwlock_makes])
def test_gripfasts_own_take_part_where_the_store_has_them(makes: Callable[[str], tuple[Make, ...]]) -> None:
    def own(url: str) -> list[Any]:
        return [make.name for make in makes(url) if make.name.startswith("gripfast")]

    assert len(own("memory://")) > 1
    assert own("redlock://a,b,c") == ["gripfast lock"]
    assert not can("nonsense://", "semaphores")
