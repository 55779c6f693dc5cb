"""What `connect()` refuses, whatever the store, and that neither it nor a lock does any I/O."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gripfast
from gripfast import ConfigurationError
from gripfast.api.words import OF_A_LOCK
from support.both_colours import staged
from support.colours import COLOURS, World


@pytest.mark.parametrize("connect", [gripfast.connect, gripfast.connect_async])
@pytest.mark.parametrize("target", ["", "nonsense", "gopher://localhost/locks", "/just/a/path", 5, b"memory://", []])
def test_an_unknown_target_is_refused(connect: Any, target: Any) -> None:
    with pytest.raises(ConfigurationError):
        connect(target)


@pytest.mark.parametrize("connect", [gripfast.connect, gripfast.connect_async])
def test_an_unknown_scheme_is_refused_with_the_known_ones(connect: Any) -> None:
    with pytest.raises(ConfigurationError, match="gopher") as caught:
        connect("gopher://localhost/locks")
    assert "memory://" in str(caught.value)
    assert "sqlite://" in str(caught.value)


@pytest.mark.parametrize("colour", COLOURS)
@staged
async def test_connecting_and_making_a_lock_does_no_io(tmp_path: Path, colour: str) -> None:
    world = World(f"sqlite:///{tmp_path}/locks.db", COLOURS[colour])
    client = world.connect()
    client.lock("job")
    assert client.capabilities is not None
    await world.close()
    assert list(tmp_path.iterdir()) == []


SECRET = "hunter2"
TARGETS_WITH_A_PASSWORD = [
    f"memory://user:{SECRET}@name",
    f"sqlite://user:{SECRET}@/tmp/never-made.db",
    f"gopher://user:{SECRET}@localhost/0",
    f"redis://user:{SECRET}@localhost:6379/0",
    f"gopher://localhost/0?password={SECRET}",
    f"memory://name?password={SECRET}",
    f"user:{SECRET}@localhost",
]


@pytest.mark.parametrize("connect", [gripfast.connect, gripfast.connect_async])
@pytest.mark.parametrize("target", TARGETS_WITH_A_PASSWORD)
def test_a_password_is_never_shown(connect: Any, target: str) -> None:
    try:
        shown = repr(connect(target))
    except ConfigurationError as error:
        shown = f"{error} {error!r} {error.__cause__!r} {error.__dict__!r}"
    assert SECRET not in shown


@pytest.mark.parametrize("colour", COLOURS)
@staged
async def test_a_bad_name_is_refused_before_any_io(tmp_path: Path, colour: str) -> None:
    world = World(f"sqlite:///{tmp_path}/locks.db", COLOURS[colour])
    alice = world.actor()
    for refusing in (alice.client.lock, alice.client.inspect, alice.client.force_release):
        with pytest.raises(ConfigurationError):
            await alice.calls(refusing, "a\0b")
    await world.close()
    assert list(tmp_path.iterdir()) == []


def test_an_option_that_a_url_has_twice_is_named() -> None:
    with pytest.raises(ConfigurationError, match="the option ttl twice"):
        gripfast.connect("memory://?ttl=5&prefix=a&ttl=5")


def test_an_option_like_no_other_is_told_with_those_there_are() -> None:
    with pytest.raises(
        ConfigurationError, match=r"unknown option for memory://: colour; known options: .*request_timeout"
    ):
        gripfast.connect("memory://?colour=red")


@pytest.mark.parametrize(
    ("url", "instead"),
    [
        ("redis:/host", "write redis://host"),
        ("redis:host:6379/1?ttl=5", "write redis://host:6379/1"),
        ("REDIS:/host", "write REDIS://host"),
        ("sqlite:/tmp/x.db", "write sqlite:////tmp/x.db"),
        ("sqlite:x.db", "write sqlite:///x.db"),
        ("unix:/run/redis.sock", "write unix:///run/redis.sock"),
        ("postgresql:/user:secret?word@host/db", "write postgresql://…"),
        ("redis:/host?password=secret", "write redis://host"),
        ("redis:[::1]:6379", "write redis://[::1]:6379"),
        ("redis:a:1,b:2/0", "write redis://a:1,b:2/0"),
        ("memory:5a", "write memory://5a"),
        ("redis:user:secret", "write redis://…"),
        ("redis::secret", "write redis://…"),
        ("redis:123456", "write redis://…"),
        ("redis:6379,secret@host", "write redis://…"),
        ("redis:user:secret%40host", "write redis://…"),
        ("redis:/host\nsecret", "write redis://…"),
        ("redis:/host?a=b@c", "write redis://…"),
        ("sqlite:/tmp/x\n.db", "write sqlite:///…"),
    ],
)
@pytest.mark.parametrize("connect", [gripfast.connect, gripfast.connect_async, gripfast.configure])
def test_a_url_that_lacks_slashes_is_told_where(connect: Callable[[str], Any], url: str, instead: str) -> None:
    with pytest.raises(gripfast.ConfigurationError, match="lacks slashes behind") as refused:
        connect(url)
    assert str(refused.value).endswith(instead)


@pytest.mark.parametrize(
    ("url", "instead"),
    [
        ("redis:6379", "write redis://redis:6379"),
        ("postgres:5432/app", "write postgres://postgres:5432/app"),
        ("etcd:2379", "write etcd://etcd:2379"),
        ("redis:6379,redis2:6379", "write redis://redis:6379,redis2:6379"),
        ("zookeeper:2181", "write zookeeper://zookeeper:2181"),
        ("redis:6379/0?password=secret", "write redis://redis:6379/0"),
        ("redis:6379?password=secret", "write redis://redis:6379"),
        ("redis:6379,user:secret", "write redis://…"),
        ("redis:6379/\nsecret", "write redis://…"),
    ],
)
@pytest.mark.parametrize("connect", [gripfast.connect, gripfast.connect_async, gripfast.configure])
def test_a_host_and_port_are_told_their_scheme(connect: Callable[[str], Any], url: str, instead: str) -> None:
    """As Docker Compose and Kubernetes call hosts: after what runs there."""
    with pytest.raises(gripfast.ConfigurationError, match=r"must start with a scheme: if '\w+' is the host") as refused:
        connect(url)
    assert str(refused.value).endswith(instead)


@pytest.mark.parametrize("connect", [gripfast.connect, gripfast.connect_async, gripfast.configure])
def test_a_setting_of_a_lock_is_no_option_of_a_client(connect: Callable[..., Any]) -> None:
    for name, value in (("wait", 3), ("renew", False), ("max_hold", 60.5)):
        told = rf"^'{name}' belongs to a lock: write client\.lock\(name, {name}={value}\)$"
        with pytest.raises(gripfast.ConfigurationError, match=told):
            connect("memory://", **{name: value})
    with pytest.raises(gripfast.ConfigurationError, match=r"wait=10{79}\)$"):
        connect("memory://", wait=10**400)
    unseen: list[tuple[str, dict[str, Any]]] = [
        ("memory://?wait=3", {}),
        ("memory://", {"on_lost": print}),
        ("memory://", {"label": "me"}),
    ]
    for url, options in unseen:
        with pytest.raises(gripfast.ConfigurationError, match=r"belongs to a lock: write client\.lock\(name, \w+=…\)$"):
            connect(url, **options)


def test_the_settings_of_a_lock_are_all_known() -> None:
    assert {"name", "ttl", "self", *OF_A_LOCK} == set(inspect.signature(gripfast.Client.lock).parameters)
