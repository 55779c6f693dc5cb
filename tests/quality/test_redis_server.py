"""The redis-server of the tests: it answers, does what it is told, and never outlives the tests."""

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from quality.tree import ROOT
from support.redis_server import RedisServer, lock_space, shared_server
from support.run_wide import RUN
from support.waiting import until

PATH = os.pathsep.join([str(ROOT / "tests"), *filter(None, [os.environ.get("PYTHONPATH")])])


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


def alive(pid: int) -> bool:
    """Whether a process runs under this id; a zombie does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


@pytest.mark.parametrize("kind", [{}, {"unix": True}, {"tls": True}], ids=["tcp", "unix", "tls"])
def test_it_answers_at_its_url(kind: dict[str, Any]) -> None:
    with RedisServer(**kind) as server:
        with redis.Redis.from_url(server.url) as client:
            assert client.info("server")["process_id"] == server.pid
    assert not alive(server.pid)
    assert not server.folder.exists()


def test_two_servers_are_two(server: RedisServer) -> None:
    with RedisServer() as other, server.client() as here, other.client() as there:
        here.set("key", "value")
        assert there.get("key") is None


def test_a_restarted_server_is_empty_and_at_the_same_address(server: RedisServer) -> None:
    before = server.url, server.pid
    with server.client() as client:
        client.set("key", "value")
    server.restart()
    with server.client() as client:
        assert client.get("key") is None
    assert server.url == before[0]
    assert server.pid != before[1]


def test_arguments_reach_the_server() -> None:
    with RedisServer("--appendonly", "yes", "--appendfsync", "always", "--requirepass", "secret") as server:
        with server.client(password="secret") as client:
            client.set("key", "value")
        server.restart()
        with server.client(password="secret") as client:
            assert client.get("key") == b"value"


def test_a_server_that_keeps_its_data_can_be_made_to_forget() -> None:
    with RedisServer("--appendonly", "yes") as server:
        with server.client() as client:
            client.set("key", "value")
        server.restart_empty()
        with server.client() as client:
            assert client.get("key") is None


def test_a_stopped_server_can_be_started_again(server: RedisServer) -> None:
    server.stop()
    assert not server.running
    with server.client() as client, pytest.raises(redis.ConnectionError):
        client.ping()
    server.restart()
    with server.client() as client:
        assert client.ping()


def test_a_paused_server_is_silent_until_it_goes_on(server: RedisServer) -> None:
    with server.client(socket_timeout=0.05) as client:
        client.ping()
        server.pause()
        with pytest.raises(redis.TimeoutError):
            client.ping()
    server.resume()
    with server.client() as client:
        assert client.ping()


def test_a_paused_server_can_be_ended() -> None:
    with RedisServer() as server:
        server.pause()
    assert not alive(server.pid)


def test_arguments_that_are_wrong_fail_with_the_words_of_the_server() -> None:
    with pytest.raises(AssertionError, match="no-such-option"):
        RedisServer("--no-such-option", "1")


def script(text: str, run: str = "") -> "subprocess.Popen[str]":
    """Another process, of this run or of none, that starts a shared server."""
    return subprocess.Popen(
        [sys.executable, "-c", f"import os\nfrom support.redis_server import GraceServer, shared_server\n{text}"],
        env={**os.environ, "PYTHONPATH": PATH, RUN: run},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_killed_test_process_leaves_no_server() -> None:
    with script("print(shared_server().pid, shared_server().folder, flush=True)\ninput()") as process:
        assert process.stdout is not None
        pid, folder = process.stdout.readline().split()
        assert alive(int(pid))
        process.send_signal(signal.SIGKILL)
    until(lambda: not alive(int(pid)))
    until(lambda: not Path(folder).exists())


def test_a_test_process_that_ends_leaves_no_server() -> None:
    with script("print(shared_server().pid, shared_server().folder, flush=True)") as process:
        pid, folder = process.communicate()[0].split()
    assert process.returncode == 0
    assert not alive(int(pid))
    assert not Path(folder).exists()


FORK = """
server = shared_server()
if child := os.fork():
    os.waitpid(child, 0)
    with server.client() as client:
        print(client.ping())
"""


def test_a_forked_child_that_exits_leaves_the_server_alone() -> None:
    with script(FORK) as process:
        assert process.communicate()[0] == "True\n"


TELL = "server = shared_server(GraceServer)\nprint(server.pid, server.folder, server.running, flush=True)\ninput()"


def test_all_processes_of_a_run_share_a_server_with_a_level_until_the_last_has_ended() -> None:
    run = uuid.uuid4().hex
    with script(TELL, run) as one, script(TELL, run) as other:
        assert one.stdout is not None
        assert other.stdout is not None
        told = one.stdout.readline()
        assert other.stdout.readline() == told
        pid, folder, is_running = told.split()
        assert is_running == "True"
        one.send_signal(signal.SIGKILL)
        one.wait()
        assert alive(int(pid))
        other.communicate("\n")
    until(lambda: not alive(int(pid)))
    until(lambda: not Path(folder).exists())


def test_the_keys_of_a_lock_space_are_gone_after_it() -> None:
    with shared_server().client() as client:
        with lock_space("one:") as url:
            assert url == f"{shared_server().url}?prefix=one:"
            client.mset({"one:job": 1, "{one:job}\0gripfast:token": 2, "{7}\0gripfast:line:one:a}b": 3, "two:job": 4})
        assert client.exists("one:job", "{one:job}\0gripfast:token", "{7}\0gripfast:line:one:a}b", "two:job") == 1
        client.delete("two:job")


RESERVE = """
import random
from support import ports
given = iter([{port}, {port} - 1, {port} + 1])
random.choice = lambda _: next(given)
print(ports.reserved_port())
"""


def test_nobody_else_gets_its_port_while_it_is_down(server: RedisServer) -> None:
    """The server of another test would answer in its place."""
    server.kill()
    code = RESERVE.format(port=server.port)
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT / "tests", capture_output=True, text=True, check=True)
    assert int(ran.stdout) != server.port
    server.restart()
    server.close()
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT / "tests", capture_output=True, text=True, check=True)
    assert int(ran.stdout) == server.port
