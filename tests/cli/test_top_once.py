"""`gripfast top --once`, and into a pipe."""

import json
import os
import socket
from datetime import datetime

import pytest

import gripfast
from cli.commandline import GRIPFAST, Call, run_gripfast
from cli.screen import on_screen

pytestmark = pytest.mark.usefixtures("url")


def test_into_a_pipe_it_prints_twelve_words_a_line(client: gripfast.Client, call: Call) -> None:
    with client.lock("report:7", label="two words").acquire() as lease, client.semaphore("api", limit=3).acquire(n=2):
        ended = call("top", "--sort", "name")
    api, report = (line.split() for line in ended.stdout.splitlines())
    assert report[:6] == ["report:7", "lock", "1", "1", "0", "-"]
    assert report[6:9] == [r"two\x20words", socket.gethostname(), str(os.getpid())]
    assert datetime.fromisoformat(report[9]).tzinfo is not None
    assert 0 < float(report[10]) <= 30
    assert report[11:] == [str(lease.token)]
    assert api[:4] == ["api", "semaphore", "2/3", "1"]


def test_in_json_it_tells_everything(client: gripfast.Client, call: Call) -> None:
    with client.rwlock("config").read().acquire() as lease:
        told = json.loads(call("top", "--once", "--json").stdout)
    assert told["notes"] == []
    assert told["rows"][0] == {
        "kind": "rwlock",
        "name": "config",
        "mode": "read",
        "waiters": 0,
        "entries_per_second": None,
        "holders": [told["rows"][0]["holders"][0]],
    }
    assert told["rows"][0]["holders"][0]["token"] == lease.token


def test_with_an_interval_it_looks_twice_and_knows_the_rate(client: gripfast.Client, call: Call) -> None:
    with client.lock("a").acquire():
        told = json.loads(call("top", "--json", "--interval", "10ms").stdout)
    assert told["rows"][0]["entries_per_second"] == 0.0


def test_it_filters_sorts_and_picks_by_prefix(client: gripfast.Client, call: Call) -> None:
    with client.lock("b:1", label="x").acquire(), client.lock("b:2").acquire(), client.lock("a").acquire():
        names = [row["name"] for row in json.loads(call("top", "--json", "--sort", "held").stdout)["rows"]]
        assert names == ["b:1", "b:2", "a"]
        assert call("top", "--prefix", "b:", "--filter", "X").stdout.split()[0] == "b:1"
        assert len(call("top", "--prefix", "b:").stdout.splitlines()) == 2


def test_the_url_may_be_an_argument(
    client: gripfast.Client, call: Call, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GRIPFAST_URL")
    with client.lock("a").acquire():
        assert call("top", url).stdout.startswith("a ")
        assert call("top", "--url", url).stdout.startswith("a ")
        assert call("top").stdout == ""


def test_on_a_terminal_it_prints_a_table_with_headings(
    client: gripfast.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    with client.lock("a\x1b[31m").acquire(), on_screen(*GRIPFAST, "top", "--once", columns=120) as screen:
        assert screen.status() == 0
    heading, row = screen.screen().splitlines()
    assert heading.split() == ["NAME", "KIND", "LABEL", "HOLDER", "HELD", "LEFT", "WAIT", "RATE", "TOKEN"]
    assert row.startswith(r"a\x1b[31m  lock")


def test_a_terminal_that_can_not_be_drawn_on_gets_the_table(
    client: gripfast.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "dumb")
    with client.lock("a").acquire(), on_screen(*GRIPFAST, "top", columns=120) as screen:
        assert screen.status() == 0
    assert "\x1b" not in screen.screen()
    assert screen.screen().startswith("NAME")


def test_what_the_store_can_not_show_is_said(
    client: gripfast.Client, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gripfast.api.base.AnyClient.capabilities", gripfast.Capabilities(lists=True, processes=True))
    with client.lock("a").acquire():
        ended = call("top")
    assert ended.stdout.split()[4] == "-"
    assert "can't tell how many wait" in ended.stderr


def test_an_unreachable_store_is_an_error(call: Call) -> None:
    ended = run_gripfast("top", "--once", "redis://127.0.0.1:1/0?connect_patience=0.1")
    assert (ended.returncode, ended.stdout) == (69, "")


def test_nothing_held_is_an_empty_table(call: Call) -> None:
    assert call("top") == (0, "", "")
    assert json.loads(call("top", "--json").stdout)["rows"] == []
