"""What a connection without redis-py begins with, and what a server may answer to it."""

import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

import hiredis
import pytest

from gripfast.stores.redis import plain
from gripfast.stores.redis.wire import would_block


@contextmanager
def server_that_says(answer: bytes) -> Iterator[dict[str, object]]:
    """The settings that lead to it. It says so to CLIENT, and OK to the rest."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        serving = threading.Thread(target=_serve, args=(listening, answer))
        serving.start()
        yield {"host": "127.0.0.1", "port": listening.getsockname()[1]} | dict.fromkeys(
            ("socket_timeout", "socket_connect_timeout"), 5.0
        )
        serving.join()


def _serve(listening: socket.socket, answer: bytes) -> None:
    connection, _ = listening.accept()
    reader = hiredis.Reader()
    with connection:
        while data := connection.recv(65536):
            reader.feed(data)
            while isinstance(words := reader.gets(), list):
                connection.sendall(answer if words[0] == b"CLIENT" else b"+OK\r\n")


@pytest.mark.parametrize(
    "answer",
    [
        b"-ERR unknown subcommand 'SETINFO'. Try CLIENT HELP.\r\n",
        b"-ERR Syntax error, try CLIENT (LIST | KILL | GETNAME | SETNAME)\r\n",
        b"-NOPERM this user has no permissions to run the 'client|setinfo' command\r\n",
    ],
)
def test_a_server_need_not_know_what_it_is_told_about_the_library(answer: bytes) -> None:
    with server_that_says(answer) as settings:
        plain.connect(settings | {"db": 3}).close()


@pytest.mark.parametrize("answer", [b"-NOAUTH Authentication required.\r\n", b"-ERR max number of clients reached\r\n"])
def test_a_server_that_takes_no_request_at_all_is_told_as_such(answer: bytes) -> None:
    with server_that_says(answer) as settings, pytest.raises(hiredis.ReplyError):
        plain.connect(settings)


def test_a_module_that_another_thread_is_just_loading_has_not_all_its_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ssl", ModuleType("ssl"))
    assert would_block(TimeoutError())
    assert not would_block(ConnectionResetError())
