"""`gripfast doctor`: what it says, in which words, and its exit codes. The engines' own checks: `tests/stores/`."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

import gripfast
from cli.commandline import GRIPFAST, Call, run_gripfast
from cli.terminal import on_terminal
from gripfast.api.doctor import SCRATCH, told
from gripfast.errors import ConfigurationError, StoreUnavailable
from gripfast.stores.doctor import (
    Examination,
    Finding,
    Latency,
    Terms,
    advice,
    judge_clock,
    judge_latency,
    latency_of,
    merged,
    version_in,
)
from gripfast.stores.memory import doctor as memory_doctor
from quality.test_layering import ENGINE_CLIENTS
from quality.test_start import loaded_by
from support.ports import closed_port
from support.proxy import Proxy
from support.redis_server import HOST, RedisServer
from support.sql_servers import postgres_server

KEYS = ["where", "store", "summary", "usable", "problems", "ttl", "latency", "clock_difference", "findings"]


@pytest.fixture(scope="module")
def evicting() -> Iterator[RedisServer]:
    """One problem, one piece of advice."""
    with RedisServer("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru") as server:
        yield server


@pytest.fixture(scope="module")
def sound() -> Iterator[RedisServer]:
    with RedisServer("--appendonly", "yes", "--appendfsync", "always") as server:
        yield server


def test_a_problem_is_told_with_what_why_and_what_to_do_and_is_1(evicting: RedisServer, call: Call) -> None:
    ended = call("doctor", evicting.url)
    assert (ended.returncode, ended.stderr) == (1, "")
    first, usable, _, what, why, todo, *rest = ended.stdout.splitlines()
    assert re.fullmatch(rf"{evicting.url}  Redis \S+, primary, nothing on disk", first)
    assert usable.startswith("usable    a lock was acquired, waited for, renewed and released; ")
    assert what == "PROBLEM   maxmemory-policy is allkeys-lru, and maxmemory is 100 MB [redis-evicts]"
    assert why.startswith("          why   Locks have a time to live")
    assert todo.startswith("          to do CONFIG SET maxmemory-policy noeviction")
    assert rest[1].startswith("advice    the server keeps nothing on disk")
    assert rest[-1].startswith("1 problem, 1 piece of advice;")


def test_advice_alone_is_0(call: Call) -> None:
    ended = call("doctor", "memory://")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "memory-one-process" in ended.stdout
    assert ended.stdout.splitlines()[-1].startswith("no problem, 1 piece of advice;")


def test_nothing_to_say_is_said(sound: RedisServer, call: Call) -> None:
    ended = call("doctor", sound.url)
    assert (ended.returncode, ended.stdout.splitlines()[-1]) == (0, "nothing to say: no problem, no advice")


def test_json_has_all_of_it(evicting: RedisServer, call: Call) -> None:
    ended = call("doctor", "--json", evicting.url_with(ttl=20))
    report = json.loads(ended.stdout)
    assert (ended.returncode, list(report)) == (1, KEYS)
    assert [report[name] for name in ("store", "usable", "problems", "ttl")] == ["redis", True, 1, 20.0]
    assert list(report["latency"]) == ["pairs", "median", "tail", "slowest"]
    assert 0 < report["latency"]["median"] <= report["latency"]["tail"] <= report["latency"]["slowest"]
    assert abs(report["clock_difference"]) < 1
    assert {(each["name"], each["kind"]) for each in report["findings"]} == {
        ("redis-evicts", "problem"),
        ("redis-not-durable", "advice"),
    }
    assert all(list(each) == list(Finding._fields) for each in report["findings"])


def test_quick_says_only_whether_it_can_be_used(evicting: RedisServer, call: Call) -> None:
    ended = call("doctor", "--quick", evicting.url)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.splitlines() == [
        evicting.url,
        "usable    a lock was acquired, waited for, renewed and released",
    ]
    report = json.loads(call("doctor", "--quick", "--json", evicting.url).stdout)
    assert (list(report), report["findings"], report["latency"]) == (KEYS, [], None)


@pytest.mark.parametrize("options", [[], ["--quick"], ["--json"]])
@pytest.mark.parametrize("scheme", ["redis", "postgresql", "mysql", "zookeeper", "etcd"])
def test_a_server_that_can_not_be_reached_is_a_problem(scheme: str, options: list[str], call: Call) -> None:
    path = {"redis": "0", "etcd": ""}.get(scheme, "db")
    url = f"{scheme}://me:the-secret@{HOST}:{closed_port()}/{path}"
    ended = call("doctor", *options, url)
    assert (ended.returncode, ended.stderr) == (1, "")
    assert "refused" in ended.stdout
    assert "the-secret" not in ended.stdout
    if options == ["--json"]:
        report = json.loads(ended.stdout)
        assert (report["usable"], report["findings"][0]["name"]) == (False, "unusable")
        assert report["findings"][0]["todo"].startswith("Check that the server")
    else:
        assert "usable    " not in ended.stdout


def test_a_wrong_password_is_told_and_not_shown(call: Call) -> None:
    with RedisServer("--requirepass", "the-right-one") as server:
        ended = call("doctor", f"redis://:the-wrong-one@{HOST}:{server.port}")
    assert ended.returncode == 1
    assert "the store refuses the user name or password" in ended.stdout
    assert "to do Check them in the URL" in ended.stdout
    assert "-one" not in ended.stdout + ended.stderr


def test_a_right_password_is_not_shown(call: Call) -> None:
    with RedisServer("--requirepass", "the-right-one") as server:
        for option in ([], ["--json"]):
            ended = call("doctor", *option, f"redis://:the-right-one@{HOST}:{server.port}")
            assert ended.returncode == 0
            assert "the-right-one" not in ended.stdout + ended.stderr


@pytest.mark.parametrize("url", ["gopher://nowhere", "redis://localhost:6379/?bogus=1", "nonsense"])
def test_a_url_that_makes_no_sense_is_64(url: str, call: Call) -> None:
    ended = call("doctor", url)
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (64, "", 1)


def test_without_a_url_the_default_store_is_judged(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path), "XDG_STATE_HOME": "", "GRIPFAST_URL": ""}
    ended = run_gripfast("doctor", env=home)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert f"no URL is configured, so the locks are in {tmp_path}/.local/state/gripfast/locks.db" in ended.stdout
    other = run_gripfast("doctor", "--json", env={**home, "GRIPFAST_URL": "memory://here"})
    assert json.loads(other.stdout)["where"] == "memory://here"


def test_the_option_works_as_everywhere_and_the_argument_wins(call: Call) -> None:
    assert json.loads(call("--url", "memory://a", "doctor", "--json").stdout)["where"] == "memory://a"
    assert json.loads(call("doctor", "--url", "memory://a", "memory://b", "--json").stdout)["where"] == "memory://b"


def test_it_fits_a_terminal_and_has_colours(evicting: RedisServer) -> None:
    with on_terminal(*GRIPFAST, "doctor", evicting.url, columns=80) as terminal:
        assert terminal.status() == 1
    screen = terminal.screen()
    assert "\x1b[31m\x1b[1mPROBLEM" in screen
    plain = re.sub(r"\x1b\[\d*m", "", screen).splitlines()
    assert max(map(len, plain)) <= 80
    assert "CONFIG SET maxmemory-policy noeviction" in " ".join(" ".join(plain).split())


def test_a_name_of_a_host_can_not_write_on_the_terminal(call: Call) -> None:
    ended = call("doctor", f"unix:///tmp/{quote(chr(27))}[2Jnowhere.sock")
    assert ended.returncode == 1
    assert "\x1b[2J" not in ended.stdout


def test_what_it_used_is_released(evicting: RedisServer, call: Call) -> None:
    call("doctor", evicting.url)
    with gripfast.connect(evicting.url) as client:
        held = [info for kind in ("lock", "semaphore", "rwlock") for info in client.list(SCRATCH, kind=kind)]
    assert held == []


def test_a_server_that_is_too_slow_for_the_ttl_is_a_problem(sound: RedisServer, call: Call) -> None:
    with Proxy((HOST, sound.port)) as proxy:
        proxy.delay(requests=0.1)
        ended = call("doctor", "--json", f"redis://{HOST}:{proxy.port}/0?ttl=1")
        slow = {each["name"]: each for each in json.loads(ended.stdout)["findings"]}
        milder = json.loads(call("doctor", "--json", f"redis://{HOST}:{proxy.port}/0?ttl=4").stdout)
    assert ended.returncode == 1
    assert "?ttl=" in slow["too-slow"]["todo"]
    assert [each["name"] for each in milder["findings"]] == ["slow"]


def test_a_shared_server_of_the_tests_has_its_fsync_named(call: Call) -> None:
    report = json.loads(call("doctor", "--json", postgres_server().lock_space()).stdout)
    assert "postgres-fsync" in [each["name"] for each in report["findings"]]
    assert "p@ss" not in str(report)


def test_a_store_that_can_be_used_but_not_examined_is_told(monkeypatch: pytest.MonkeyPatch, call: Call) -> None:
    def examine(factory: object, terms: Terms) -> Examination:
        raise StoreUnavailable("memory:// closed the connection; look at its log")

    monkeypatch.setattr(memory_doctor, "examine", examine)
    report = json.loads(call("doctor", "--json", "memory://").stdout)
    assert [(each["name"], each["todo"]) for each in report["findings"]] == [("not-examined", "Look at its log")]


def test_it_loads_the_checks_of_its_own_engine_alone() -> None:
    loaded = loaded_by("from gripfast.cli import main; assert main(['doctor', 'memory://']) == 0")
    parts = ("api", "cli", "stores", "stores.memory")
    assert {name for name in loaded if name.endswith(".doctor")} == {f"gripfast.{part}.doctor" for part in parts}
    assert loaded & ENGINE_CLIENTS == set()


# By plain values ------------------------------------------------------------------------------------------------------

TERMS = Terms(ttl=30.0, request_timeout=5.0)


@pytest.mark.parametrize(
    "tail, names",
    [(0.5, []), (1.1, ["slow"]), (1.8, ["slow", "near-timeout"]), (6.0, ["too-slow", "near-timeout"])],
)
def test_latency_is_judged_beside_the_ttl_and_the_time_out(tail: float, names: list[str]) -> None:
    assert [each.name for each in judge_latency(Latency(100, 0.1, tail, tail), TERMS)] == names


def test_the_tail_is_what_99_of_100_stay_below() -> None:
    hundred = [index / 100 for index in range(100)]
    assert latency_of(hundred) == Latency(100, 0.5, 0.98, 0.99)
    assert latency_of([3.0, 1.0]) == Latency(2, 3.0, 3.0, 3.0)


@pytest.mark.parametrize(
    "difference, words", [(None, []), (1.5, []), (3700.0, ["1h 01m ahead of"]), (-9, ["9s behind"])]
)
def test_clocks_are_judged(difference: float | None, words: list[str]) -> None:
    found = [each.what for each in judge_clock(difference)]
    assert len(found) == len(words)
    assert all(word in what for word, what in zip(words, found, strict=True))


def test_what_several_servers_have_in_common_is_told_once() -> None:
    check = advice("a", "it is {value}", why="because", todo="change it")
    found = merged([check("one", value=1), check("two", value=1), check("three", value=2)])
    assert [(each.where, each.what) for each in found] == [("one, two", "it is 1"), ("three", "it is 2")]


@pytest.mark.parametrize(
    "message, said, todo",
    [
        (
            "redis://h can't be reached: Connection refused; check that the server runs",
            "the store can't be reached: Connection refused",
            "Check that the server runs",
        ),
        (
            "redis://h refuses the login: check the user (FATAL: no; no (again))",
            "the store refuses the login (FATAL: no; no (again))",
            "Check the user",
        ),
        ("redis://h: no connection (a: refused): check the address", "no connection (a: refused)", "Check the address"),
        ("redis://h broke", "the store broke", "Look at the server's log"),
    ],
)
def test_an_error_is_told_as_what_it_says_and_what_it_advises(message: str, said: str, todo: str) -> None:
    assert told("redis://h", StoreUnavailable(message)) == {"said": said, "advice": todo}
    assert told("redis://h", ConfigurationError(message)) == {"said": said, "advice": todo}


@pytest.mark.parametrize("text, version", [("10.11.6-MariaDB-log", (10, 11, 6)), ("7.0.15", (7, 0, 15)), ("?", ())])
def test_versions_are_read(text: str, version: tuple[int, ...]) -> None:
    assert version_in(text) == version
