"""`gripfast top` on a real Redis: ten thousand locks, a server that hangs or is gone, keys of other software."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

import gripfast
from cli.commandline import GRIPFAST
from cli.screen import on_screen
from support.proxy import Proxy
from support.redis_server import HOST, RedisServer
from support.waiting import until

MANY = 10_000


@pytest.fixture(autouse=True)
def terminal_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


HOLD_MANY = """
import asyncio, os, sys
import gripfast

async def hold(client, name):
    return await client.lock(name, ttl=3600, renew=False, label=f"job {name[-1]}").acquire()

async def hold_all(url, many):
    client, leases = gripfast.connect_async(url), []
    for first in range(0, many, 500):
        names = [f"report:{number:05}" for number in range(first, first + 500)]
        leases += await asyncio.gather(*(hold(client, name) for name in names))
    os._exit(0)

asyncio.run(hold_all(sys.argv[1], int(sys.argv[2])))
"""


def hold_many(url: str) -> None:
    """By a process that is gone then, and has released nothing."""
    subprocess.run([sys.executable, "-c", HOLD_MANY, url, str(MANY)], check=True, timeout=120)


@pytest.mark.parametrize("columns", [80, 40])
@pytest.mark.in_turn(2)
def test_ten_thousand_locks(server: RedisServer, columns: int) -> None:
    hold_many(server.url)
    with on_screen(*GRIPFAST, "top", server.url, "--sort", "name", columns=columns) as screen:
        screen.sees("^10,000 held", within=60)
        screen.sees("^▸report:00000")
        screen.type("\x1b[6~")
        screen.sees("^▸report:00019")
        screen.type("G")
        screen.sees("^▸report:09999")
        screen.sees("rows 9,982–10,000 of 10,000" if columns == 80 else "rows 9,98")
        screen.type("/job report:0777")
        screen.sees("^Filter: job report:0777")
        screen.sees("^▸report:07779")
        screen.type("\r")
        screen.sees("^10 match")
        screen.type("bn\x1b")
        screen.sees("^▸report:0777")
        screen.type("q")
        assert screen.status() == 0


def test_keys_work_while_the_server_hangs(server: RedisServer) -> None:
    with gripfast.connect(server.url) as client, client.lock("a", ttl=300).acquire(), client.lock("b").acquire():
        with on_screen(*GRIPFAST, "top", f"{server.url}?request_timeout=6s", "--interval", "100ms") as screen:
            screen.sees("^▸a")
            server.pause()
            try:
                screen.sees(r"The store has not answered for \ds")
                screen.type("j")
                screen.sees("^▸b", within=2.5)
                screen.sees("^Unreachable for .*, retrying: ", within=40)
                screen.type("q")
                until(lambda: screen.screen() and screen.process.poll() is not None, within=4.0)
            finally:
                server.resume()
            assert screen.status() == 0


def test_the_last_rows_stay_grey_until_the_server_is_back(server: RedisServer) -> None:
    with Proxy((HOST, server.port)) as proxy, gripfast.connect(server.url) as client:
        url = server.url.replace(str(server.port), str(proxy.port))
        with client.lock("first").acquire(), on_screen(*GRIPFAST, "top", url, "--interval", "100ms") as screen:
            screen.sees("^▸first")
            assert screen.style_of("first").fg != "brightblack"
            proxy.refuse()
            proxy.cut()
            screen.sees("^Unreachable for ", within=40)
            assert screen.style_of("first").fg == "brightblack"
            with client.lock("second").acquire():
                proxy.accept()
                screen.sees("^ second", within=40)
                screen.never_sees("Unreachable")
                assert screen.style_of("second").fg != "brightblack"


def test_a_server_that_is_not_there_at_first_may_come_later() -> None:
    with RedisServer() as server:
        url, port = server.url, server.port
        server.stop()
        with on_screen(*GRIPFAST, "top", url, "--interval", "100ms") as screen:
            screen.sees("^Unreachable for ", within=40)
            screen.sees(f"^gripfast top  redis://{HOST}:{port}")
            server.restart()
            screen.sees("Nothing is held", within=40)


def test_other_software_is_shown_but_not_obeyed(server: RedisServer) -> None:
    with server.client() as redis:
        redis.set("lock:theirs\x1b[2J", "\x1b]0;pwned\x07", px=600_000)
    with on_screen(*GRIPFAST, "top", server.url, columns=120) as screen:
        screen.sees(r"^▸theirs\\x1b\[2J +lock +- +other software")
        screen.type("\r")
        screen.sees(r"^owner +\\x1b\]0;pwned\\x07")
        assert "pwned\x07" not in screen.screen()
        assert screen.emulated().title == ""
