"""What connect() and connect_async() take for Redlock: URLs of several hosts, lists of URLs and clients. Nothing here
does any I/O."""

import itertools
import logging
import socket
from collections.abc import Callable
from typing import Any

import pytest
import redis
import redis.asyncio

import gripfast
from gripfast import ConfigurationError

CONNECTS: dict[str, Callable[..., Any]] = {"connect": gripfast.connect, "connect_async": gripfast.connect_async}


@pytest.fixture(params=CONNECTS)
def connect(request: pytest.FixtureRequest) -> Callable[..., Any]:
    return CONNECTS[request.param]


def settings_of(client: Any) -> list[dict[str, Any]]:
    """What each node's connection would be made with."""
    return [dict(node._settings) for node in client._config.factory._nodes]


def dialed(client: Any, request_timeout: float) -> list[float]:
    """The time-outs of the nodes, for a client with this one."""
    return [node.dialer(request_timeout).timeout for node in client._config.factory._nodes]


# URLs -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url, where",
    [
        ("redlock://a,b,c", "redlock://a:6379,b:6379,c:6379/0"),
        ("redlock://a:1,b:2,c:3", "redlock://a:1,b:2,c:3/0"),
        ("redlock://a:1,b:2,c:3/", "redlock://a:1,b:2,c:3/0"),
        ("redlock://a:1,b:2,c:3/7", "redlock://a:1,b:2,c:3/7"),
        ("redlock://a:1,b:2,c:3?db=7", "redlock://a:1,b:2,c:3/7"),
        ("redlock://a:1,b:2,c:3/2?db=7", "redlock://a:1,b:2,c:3/7"),
        ("redlock://:1,:2,:3", "redlock://localhost:1,localhost:2,localhost:3/0"),
        ("redlock://[::1]:1,[fe80::2]:2,[::1]:3", "redlock://[::1]:1,[fe80::2]:2,[::1]:3/0"),
        ("redlock://[fe80::1],b,[fe80::2]", "redlock://[fe80::1]:6379,b:6379,[fe80::2]:6379/0"),
        ("redlocks://a,b,c/1", "redlocks://a:6379,b:6379,c:6379/1"),
        ("REDLOCK://A,b,C", "redlock://a:6379,b:6379,c:6379/0"),
        ("redlock://u:secret@a,b,u2:secret@c", "redlock://a:6379,b:6379,c:6379/0"),
    ],
)
def test_a_url_names_its_nodes(connect: Callable[..., Any], url: str, where: str) -> None:
    client = connect(url)
    assert client.where == where
    assert where in repr(client)
    assert "secret" not in repr(client)


def test_the_login_of_the_first_host_is_that_of_all_without_one() -> None:
    told = settings_of(gripfast.connect("redlock://me:p%40ss%2C@a,b,other:word@c,:only@d,last@e"))
    assert [(each.get("username"), each.get("password")) for each in told] == [
        ("me", "p@ss,"),
        ("me", "p@ss,"),
        ("other", "word"),
        (None, "only"),
        ("last", None),
    ]
    assert all("password" not in each for each in settings_of(gripfast.connect("redlock://a,b,c")))


def test_options_of_the_driver_are_for_all_nodes() -> None:
    told = settings_of(gripfast.connect("redlock://a,b,c?client_name=worker&socket_timeout=0.5", password="secret"))
    assert [(each["client_name"], each["socket_timeout"], each["password"]) for each in told] == [
        ("worker", 0.5, "secret")
    ] * 3


@pytest.mark.parametrize(
    "url, says",
    [
        ("redlock://", "host:port,host:port"),
        ("redlock://a", "at least 3"),
        ("redlock://a,b", "at least 3 nodes, not 2"),
        ("redlock://a,b,", "host:port,host:port"),
        ("redlock://a,,b,c", "host:port,host:port"),
        ("redlock://a,b,c:port", "host:port"),
        ("redlock://a,b,c:70000", "port"),
        ("redlock://a,b,[::1", "host:port"),
        ("redlock://a,b,::1", "host:port"),
        ("redlock://a,b,c/jobs", "number of a database"),
        ("redlock://a,b,c/1/2", "number of a database"),
        ("redlock://a,b,c#x", "%23"),
        ("redlock:a,b,c", "write redlock://a,b,c"),
        ("redlock://a,b,c?bogus=1", "unknown option for redlock://a:6379,b:6379,c:6379/0: bogus"),
        ("redlock://a,b,c?ssl_ca_certs=ca.pem", "ssl_ca_certs"),
        ("redlock://a,b,c?path=/run/redis.sock", "path"),
        ("redlock://a,b,c?max_ttl=soon", "max_ttl must be a duration"),
        ("redlock://a,b,c?max_ttl=0", "max_ttl must be"),
        ("redlock://a,b,c?max_ttl=100000", "max_ttl must be"),
        ("redlock://a,b,c?restart_grace=soon", "restart_grace must be a duration"),
        ("redlock://a,b,c?restart_grace=-1", "restart_grace must be"),
        ("redlock://a,b,c?restart_grace=59", r"restart_grace must be at least max_ttl \(60 seconds\)"),
        ("redlock://a,b,c?max_ttl=10&restart_grace=9.9", r"restart_grace must be at least max_ttl \(10 seconds\)"),
        ("redlock://a,b,c?prefix=" + "x" * 600, "512"),
        ("redis://a,b,c", "redlock://host,host,host"),
    ],
)
def test_a_url_that_makes_no_sense_is_refused_in_words(connect: Callable[..., Any], url: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        connect(url)


@pytest.mark.parametrize(
    "url",
    [
        "redlock://:12/34secret@a,b,c",
        "redlock://user:1?secret@a,b,c/0",
        "redlock://user:secret#1@a,b,c/0",
        "redlock://user:1,secret@a,b,c",
        "redlock://user:x,secret@a,b,c",
        "redlock://user:secret@a,b,c:x",
        "redlock://user:secret@a,b,c:70000",
        "redlock://user:secret@a,b",
        "redlock://user:secret@a,a,b",
        "redlock://user:secret@a,b,c/x",
        "redlock://user:secret@a,b,c?bogus=1",
        "redlock://user:[secret@a,b,[c",
        "redlock://a,secret:secret@b,c",
    ],
)
def test_a_password_is_told_by_no_error(connect: Callable[..., Any], url: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        connect(url)
    assert "secret" not in str(refusal.value)


@pytest.mark.parametrize("url", ["redlock://a,b,a", "redlock://a,b:6379,b", "redlock://localhost,127.0.0.1,c"])
def test_the_same_node_twice_is_refused(connect: Callable[..., Any], url: str) -> None:
    with pytest.raises(ConfigurationError, match="occurs twice: each node must be a different server"):
        connect(url)


def test_an_even_number_of_nodes_is_warned_about(connect: Callable[..., Any], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "gripfast.client"):
        connect("redlock://a,b,c")
        connect("redlock://a,b,c,d,e")
        assert caplog.messages == []
        connect("redlock://u:secret@a,b,c,d")
        connect("redlock://a,b,c,d,e,f")
    assert caplog.messages == [
        "with 4 Redlock nodes only 1 may fail, as with 3: add one node, or remove one",
        "with 6 Redlock nodes only 2 may fail, as with 5: add one node, or remove one",
    ]


# Lists ----------------------------------------------------------------------------------------------------------------


def test_a_list_of_urls_is_the_same(connect: Callable[..., Any]) -> None:
    assert connect(["redis://a", "redis://b:1/", "redis://c/0"]).where == "redlock://a:6379,b:1,c:6379/0"
    assert connect(("rediss://a/3", "rediss://b?db=3", "rediss://c/3")).where == "redlocks://a:6379,b:6379,c:6379/3"


def test_nodes_may_be_of_different_kinds(connect: Callable[..., Any]) -> None:
    targets = ["unix:///run/redis.sock", "rediss://b", redis.Redis("c"), "redis://d/1", redis.asyncio.Redis(host="e")]
    where = connect(targets).where
    assert where == (
        "Redlock on unix:///run/redis.sock, rediss://b:6379/0, redis://c:6379/0, redis://d:6379/1, redis://e:6379/0"
    )


def test_clients_bring_their_settings_and_keep_their_passwords() -> None:
    clients = [
        redis.Redis("a", password="secret"),
        redis.Redis("b", db=2),
        redis.asyncio.Redis(host="c", username="me"),
    ]
    client = gripfast.connect(clients)
    assert [each.get("password") for each in settings_of(client)] == ["secret", None, None]
    assert settings_of(client)[2]["username"] == "me"
    assert "secret" not in repr(client)


def test_each_url_has_its_own_options_of_the_driver_and_connect_has_those_of_all() -> None:
    client = gripfast.connect(
        ["redis://a?client_name=first", "redis://b?socket_timeout=0.01", redis.Redis("c")],
        username="me",
        password="secret",
    )
    told = settings_of(client)
    assert [each.get("client_name") for each in told] == ["first", None, None]
    assert [each.get("username") for each in told] == ["me", "me", None]
    assert dialed(client, 0.05) == [0.05, 0.01, 0.05]


@pytest.mark.parametrize(
    "option", ["ttl=3", "prefix=x:", "request_timeout=1", "connect_patience=1", "max_ttl=60", "restart_grace=0"]
)
def test_options_of_gripfast_in_the_url_of_one_node_are_refused_with_advice(
    connect: Callable[..., Any], option: str
) -> None:
    name = option.partition("=")[0]
    with pytest.raises(
        ConfigurationError, match=rf"{name} must be the same for all nodes: pass it as connect\(\[…\], {name}=…"
    ):
        connect(["redis://a", f"redis://u:secret@b?{option}", "redis://c"])


@pytest.mark.parametrize(
    "targets, options, says",
    [
        ([], {}, "at least 3 nodes, not 0"),
        (["redis://a"], {}, "For one server use redis://host"),
        (["redis://a", "redis://b"], {}, "at least 3"),
        (["redis://a", "redis://b", "redlock://c,d,e"], {}, "not redlock://"),
        (["redis://a", "redis://b", "sqlite:///c.db"], {}, "not sqlite://"),
        (["redis://a", "redis://b", "c"], {}, "scheme"),
        (["redis://a", "redis://b", 3], {}, "does not know a builtins.int"),
        (["redis://a", "redis://b", ["redis://c"]], {}, "does not know a builtins.list"),
        (["redis://a", "redis://b", "redis://c/0", "redis://c/1"], {}, "two databases of one server fail together"),
        (["redis://a", "redis://b", redis.Redis("a")], {}, "a:6379 occurs twice"),
        (["redis://a", "redis://b", "rediss://b"], {}, "b:6379 occurs twice"),
        (["unix:///a", "unix:///b", "unix:///a"], {}, "/a occurs twice"),
        (["redis://a", "redis://b?bogus=1", "redis://c"], {}, "unknown option for redis://b:6379/0: bogus"),
        (["redis://a", "redis://b", "redis://c"], {"bogus": 1}, "unknown option for redlock://.*: bogus"),
        (
            [redis.Redis("a"), redis.Redis("b"), redis.Redis("c")],
            {"client_name": "x"},
            "unknown option .*: client_name",
        ),
    ],
)
def test_a_list_that_makes_no_sense_is_refused_in_words(
    connect: Callable[..., Any], targets: list[Any], options: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigurationError, match=says):
        connect(targets, **options)


@pytest.mark.parametrize(
    "bad", ["redis://u:secret@b:x", "redis://:1/secret@b", "redis://u:secret@b?bogus=1", "mysql://u:secret@b"]
)
def test_a_password_in_a_list_is_told_by_no_error(connect: Callable[..., Any], bad: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        connect(["redis://a", bad, "redis://c"])
    assert "secret" not in str(refusal.value)


# What the store is like -----------------------------------------------------------------------------------------------


def test_a_node_has_less_time_than_a_single_server_would(connect: Callable[..., Any]) -> None:
    assert connect("redlock://a,b,c")._config.patience.request_timeout == 0.05
    assert connect("redlock://a,b,c?request_timeout=0.2")._config.patience.request_timeout == 0.2
    assert connect(["redis://a", "redis://b", "redis://c"], request_timeout=1)._config.patience.request_timeout == 1
    assert connect("redis://a")._config.patience.request_timeout == 5.0


@pytest.mark.parametrize("url, ttl", [("redlock://a,b,c", 30.0), ("redlock://a,b,c?max_ttl=5", 5.0)])
def test_the_usual_ttl_is_never_too_large(connect: Callable[..., Any], url: str, ttl: float) -> None:
    assert connect(url).lock("job").ttl == ttl


@pytest.mark.parametrize("most, too_much", [(60.0, 60.1), (5.0, 6.0), (3600.0, 7200.0)])
def test_a_ttl_that_nodes_are_not_prepared_for_is_refused_before_anything_is_asked(
    connect: Callable[..., Any], most: float, too_much: float
) -> None:
    says = rf"at most max_ttl \({most:g} seconds\).*a larger max_ttl in every client"
    with pytest.raises(ConfigurationError, match=says):
        connect(f"redlock://a,b,c?max_ttl={most}&ttl={too_much}")
    client = connect(["redis://a", "redis://b", "redis://c"], max_ttl=most)
    with pytest.raises(ConfigurationError, match=says):
        client.lock("job", ttl=too_much)
    with pytest.raises(ConfigurationError, match=says):
        client.locked("job", ttl=too_much)
    assert client.lock("job", ttl=most).ttl == most


def test_connecting_does_no_io(connect: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("a socket was asked for")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    for target in (
        "redlock://a,b,c",
        "redlocks://a,b,c?ssl_ca_certs=/nowhere",
        ["redis://a", "redis://b", "unix:///c"],
    ):
        connect(target).lock("job")


def test_what_it_can_do_is_known_before_it_is_asked(connect: Callable[..., Any]) -> None:
    capabilities = connect("redlock://a,b,c").capabilities
    assert not capabilities.fair
    assert capabilities.push
    assert not capabilities.sees_death


def test_every_order_of_three_is_the_same_for_the_checks(connect: Callable[..., Any]) -> None:
    for order in itertools.permutations(["redis://a", "redis://b", redis.Redis("a")]):
        with pytest.raises(ConfigurationError, match="a:6379 occurs twice"):
            connect(list(order))
