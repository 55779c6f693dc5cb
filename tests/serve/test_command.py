"""`gripfast serve` as a process: what it prints, what it refuses, and how it ends."""

import http.client
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from cli.commandline import GRIPFAST, Call
from support.ports import HOST, closed_port

TOKEN = "0123456789abcdef0123456789abcdef"


class Served:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        self.process = process
        self.link = process.stdout.readline().strip()
        self.asked = ExitStack()

    def ask(self, path: str, **headers: str) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection(urlsplit(self.link).netloc, timeout=20)
        self.asked.callback(connection.close)
        connection.request("GET", path, headers=headers)
        return self.asked.enter_context(connection.getresponse())

    def ended(self, signum: int = signal.SIGTERM) -> tuple[int, str]:
        self.process.send_signal(signum)
        _, errors = self.process.communicate(timeout=20)
        return self.process.returncode, errors


@contextmanager
def served(*args: str) -> Iterator[Served]:
    """From the moment at which it has printed its link."""
    command = [*GRIPFAST, "serve", "--listen", "127.0.0.1:0", *args]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        page = Served(process)
        with page.asked:
            yield page
    finally:
        process.kill()
        process.communicate()


def test_it_prints_a_link_that_opens_the_page_and_ends_when_it_is_told_to(sqlite_url: str) -> None:
    with served(sqlite_url) as page:
        parts = urlsplit(page.link)
        assert parts.hostname == HOST
        token = parts.fragment.removeprefix("token=")
        assert len(token) >= 40
        assert page.ask("/").status == 200
        assert page.ask("/session").status == 401
        assert page.ask("/session", Authorization=f"Bearer {token}").status == 200
        stream = page.ask("/events", Authorization=f"Bearer {token}")
        assert stream.readline().startswith(b"retry")
        status, errors = page.ended()
    where = sqlite_url.removeprefix("sqlite:///")
    assert (status, errors) == (0, f"gripfast: shows {where}, read-only, until Ctrl-C; open this link:\n")


def test_ctrl_c_ends_it_although_the_store_does_not_answer_and_somebody_looks() -> None:
    with socket.create_server((HOST, 0)) as silent:  # it accepts, and never says a word
        with served(f"redis://{HOST}:{silent.getsockname()[1]}/0", "--open") as page:
            stream = page.ask("/events")
            assert stream.readline().startswith(b"retry")
            with silent.accept()[0]:  # the scan has begun
                assert page.ended(signal.SIGINT)[0] == 0


def test_an_unreachable_store_is_no_reason_not_to_start() -> None:
    with served(f"redis://{HOST}:{closed_port()}/0", "--open") as page:
        assert (page.ask("/healthz").status, page.ask("/readyz").status) == (200, 503)


def test_a_token_from_a_file_is_not_printed(sqlite_url: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{TOKEN}\n", encoding="utf-8")
    with served(sqlite_url, "--token-file", str(tmp_path / "token"), "--allow-break") as page:
        assert urlsplit(page.link).fragment == ""
        assert page.ask("/session", Authorization=f"Bearer {TOKEN}").status == 200
        _, errors = page.ended()
    assert "visitors may break locks" in errors
    assert "enter the token of --token-file" in errors
    assert TOKEN not in errors


def test_the_url_s_password_is_not_shown(sqlite_url: str) -> None:
    with served(f"redis://user:secret-word@{HOST}:{closed_port()}/0", "--open") as page:
        assert "secret-word" not in page.ask("/session").read().decode()
        stream = page.ask("/events")
        assert stream.readline().startswith(b"retry")
        stream.readline()
        event = stream.readline() + stream.readline()
        assert event.startswith(b"event: trouble")
        assert b"secret-word" not in event
        assert "secret-word" not in page.ended()[1]


def test_a_unix_socket_is_for_its_group_and_gone_at_the_end(sqlite_url: str, tmp_path: Path) -> None:
    path = tmp_path / "page.sock"
    with socket.socket(socket.AF_UNIX) as left_over:
        left_over.bind(str(path))  # of one that was killed
    public = ("--public-url", "https://locks.example.com/", "--trust-header", "X-User")
    with served(sqlite_url, "--listen", f"unix:{path}", *public) as page:
        assert page.link == "https://locks.example.com/"
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        with socket.socket(socket.AF_UNIX) as caller:
            caller.connect(str(path))
            caller.sendall(
                b"GET /session HTTP/1.1\r\nHost: locks.example.com\r\nX-User: al\r\nConnection: close\r\n\r\n"
            )
            assert b'"user":"al"' in caller.makefile("rb").read()
        assert page.ended()[0] == 0
    assert not path.exists()


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--listen", "0.0.0.0:0", "--open"), "leave --open out"),
        (("--listen", "0.0.0.0:0"), "--public-url"),
        (("--listen", "0.0.0.0:0", "--trust-header", "X-User", "--public-url", "https://x.example/"), "--proxy"),
        (("--listen", "8023"), "must be an IP address and a port"),
        (("--public-url", "locks.example.com"), "must be the address of the page"),
        (("--token-file", "/no/such/file"), "can't be read"),
        (("--token-file", os.devnull), "openssl rand -hex 32"),
        (("--proxy", "10.0.0.0/8"), "--trust-header"),
        (("--proxy", "10.0.0.1/8", "--trust-header", "X-User"), "such as 10.1.0.0/16"),
        (("--open", "--trust-header", "X-User"), "leave --token-file and --trust-header out"),
        (("--every", "0.1"), "at least 0.2s"),
    ],
    ids=str,
)
def test_what_can_t_be_served_safely_is_refused_with_what_to_do(
    call: Call, sqlite_url: str, args: tuple[str, ...], says: str
) -> None:
    ended = call("serve", sqlite_url, *args)
    assert (ended.returncode, ended.stdout) == (64, "")
    assert says in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_without_the_extra_it_says_what_to_install(sqlite_url: str) -> None:
    calling = "import sys, gripfast.cli as cli; sys.modules['uvicorn'] = None; sys.exit(cli.main(sys.argv[1:]))"
    ended = subprocess.run([sys.executable, "-c", calling, "serve", sqlite_url], capture_output=True, text=True)
    assert ended.returncode == 64
    assert "gripfast[serve]" in ended.stderr
