"""Real uvicorn processes that serve `shop.py`, and visitors."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import gripfast
from support.ports import HOST, give_back_port, reserved_port
from support.waiting import until

HERE = Path(__file__).parent
PATIENCE = 60.0


class Answer(NamedTuple):
    status: int
    headers: Any
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


class Server:
    """One uvicorn."""

    def __init__(self, folder: Path, url: str, name: str, *words: str) -> None:
        self.name = name
        self.port = reserved_port()
        self._log = folder / f"log-{name}"
        environment = {**os.environ, "GRIPFAST_URL": url, "SHOP": str(folder), "ME": name}
        command = [sys.executable, "-m", "uvicorn", "shop:app", "--port", str(self.port), *words]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, cwd=HERE, env=environment, stdout=log, stderr=log, process_group=0
            )
        self.pid = self._process.pid

    @property
    def log(self) -> str:
        return self._log.read_text(encoding="utf-8")

    def is_up(self) -> bool:
        """uvicorn says that the application has started before it listens."""
        assert self._process.poll() is None, self.log
        return "Application startup complete" in self.log and self._listens()

    def _listens(self) -> bool:
        with socket.socket() as visitor:
            return visitor.connect_ex((HOST, self.port)) == 0

    def kill(self) -> None:
        """SIGKILL for all of its processes, and gone on return."""
        os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()

    def end(self) -> None:
        """As a deployment ends it."""
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(PATIENCE) in (0, -signal.SIGTERM), self.log

    def close(self) -> None:
        if self._process.poll() is None:
            self.kill()
        give_back_port(self.port)

    # -- visitors ------------------------------------------------------------------------------------------------------

    @contextmanager
    def opened(self, path: str, method: str = "GET") -> Iterator[http.client.HTTPResponse]:
        """An answer that is read bit by bit; its connection is cut afterwards."""
        connection = http.client.HTTPConnection(HOST, self.port, timeout=PATIENCE)
        try:
            connection.request(method, path)
            yield connection.getresponse()
        finally:
            connection.close()

    def post(self, path: str, **headers: str) -> Answer:
        return self.ask("POST", path, headers)

    def get(self, path: str) -> Answer:
        return self.ask("GET", path, {})

    def ask(self, method: str, path: str, headers: dict[str, str]) -> Answer:
        connection = http.client.HTTPConnection(HOST, self.port, timeout=PATIENCE)
        try:
            connection.request(method, path, headers=headers)
            response = connection.getresponse()
            return Answer(response.status, response.headers, response.read().decode())
        finally:
            connection.close()


class Stage:
    """Two servers, A and B, with the same locks."""

    def __init__(self, folder: Path, url: str, stack: ExitStack) -> None:
        self.folder = folder
        self.url = url
        self._diary = folder / "diary"
        self._diary.touch()
        self._stack = stack
        self._threads = stack.enter_context(ThreadPoolExecutor(16))
        self.client = stack.enter_context(gripfast.connect(url))

    def serve(self, *names: str, words: tuple[str, ...] = ()) -> list[Server]:
        servers = []
        for name in names:
            servers.append(Server(self.folder, self.url, name, *words))
            self._stack.callback(servers[-1].close)
        for server in servers:
            until(server.is_up, within=PATIENCE)
        return servers

    def later(self, server: Server, path: str, **headers: str) -> "Future[Answer]":
        """A POST that takes its time."""
        return self._threads.submit(server.post, path, **headers)

    def open(self, gate: str) -> None:
        (self.folder / gate).touch()

    @property
    def diary(self) -> list[str]:
        return self._diary.read_text(encoding="utf-8").splitlines()

    def until_noted(self, text: str, times: int = 1) -> None:
        until(lambda: self.noted(text) >= times, within=PATIENCE)

    def noted(self, text: str) -> int:
        return sum(line.startswith(f"{text} ") for line in self.diary)


@contextmanager
def staged(folder: Path, url: str) -> Iterator[Stage]:
    with ExitStack() as stack:
        yield Stage(folder, url, stack)
