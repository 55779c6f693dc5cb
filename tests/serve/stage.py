"""A page, served by a thread of the test's own process, and visitors who say exactly what a test wants them to say."""

import asyncio
import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import gripfast
from gripfast.serve import server
from gripfast.serve.access import Access
from gripfast.serve.app import Settings
from gripfast.serve.listening import Address, bind, site_at

TOKEN = "a token of the tests, which nobody else knows"
PATIENCE = 20.0
BEARER = {"Authorization": f"Bearer {TOKEN}"}


class Answer:
    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.headers = response.headers
        self.body = response.read()

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def cookie(self) -> dict[str, str]:
        """To send it back."""
        return {"Cookie": self.headers["Set-Cookie"].partition(";")[0]}


class Stage:
    """The page of one store. Who asks is a program that shows the token, unless a test says otherwise."""

    def __init__(
        self,
        url: str,
        *,
        access: Access = Access(TOKEN),  # noqa: B008 (it can't change)
        may_break: bool = False,
        every: float = 0.2,
        public_url: str | None = None,
        prefix: str = "",
    ) -> None:
        self.client = gripfast.connect(url)
        address = Address("127.0.0.1")
        self._bound = bind(address)
        self.port = self._bound.getsockname()[1]
        self.site = site_at(address, self._bound, public_url)
        self.link = f"http://127.0.0.1:{self.port}/#token={TOKEN}"
        self._opened = threading.Event()
        settings = Settings(access, self.site, f"gripfast_{self.port}", may_break, prefix)
        self.page = server.Page(settings, self.client, every, self._opened.set)
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        self._loop = asyncio.new_event_loop()
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self.page.run(self._bound))

    def __enter__(self) -> "Stage":
        self._thread.start()
        assert self._opened.wait(PATIENCE)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._loop.call_soon_threadsafe(self.page.end)
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        self._bound.close()
        self.client.close()

    # -- visitors ------------------------------------------------------------------------------------------------------

    def get(self, path: str, headers: dict[str, str] = BEARER) -> Answer:
        return self.ask("GET", path, headers)

    def ask(self, method: str, path: str, headers: dict[str, str], body: str | None = None) -> Answer:
        with self._asked(method, path, headers, body) as response:
            return Answer(response)

    def order(self, path: str, body: object, headers: dict[str, str] = BEARER, method: str = "POST") -> Answer:
        """As the page sends it."""
        own = {"Origin": self.site.origins[0], "X-Gripfast": "1", "Content-Type": "application/json"}
        return self.ask(method, path, {**own, **headers}, json.dumps(body))

    @contextmanager
    def events(self, headers: dict[str, str] = BEARER) -> Iterator["Events"]:
        with self._asked("GET", "/events", headers, None) as response:
            assert response.status == 200
            yield Events(response)

    @contextmanager
    def _asked(
        self, method: str, path: str, headers: dict[str, str], body: str | None
    ) -> Iterator[http.client.HTTPResponse]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request(method, path, body, headers)
            with connection.getresponse() as response:
                yield response
        finally:
            connection.close()


class Events:
    """The stream as a page has it: the rows that it knows by now."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self._response = response
        self.rows: dict[int, dict[str, Any]] = {}

    def next(self) -> tuple[str, Any]:
        """The next event; what it changes is in `rows`."""
        name, data = "", ""
        while line := self._response.readline().decode().rstrip("\n"):
            name = line.removeprefix("event: ") if line.startswith("event: ") else name
            data = line.removeprefix("data: ") if line.startswith("data: ") else data
        if self._response.isclosed():
            raise EOFError
        if not name:  # a comment, or when to come again
            return self.next()
        self._apply(name, json.loads(data))
        return name, json.loads(data)

    def _apply(self, name: str, data: dict[str, Any]) -> None:
        if name == "rows":
            self.rows = {} if data["whole"] else self.rows
            for number in data["gone"]:
                del self.rows[number]
            for patch in data["rows"]:
                self.rows[patch["id"]] = {**self.rows.get(patch["id"], {}), **patch}

    @property
    def names(self) -> set[str]:
        return {row["name"] for row in self.rows.values()}

    def until(self, name: str) -> Any:
        """The data of the next event of this name."""
        while True:
            found, data = self.next()
            if found == name:
                return data

    def until_names(self, *names: str) -> None:
        while self.names != set(names):
            self.next()
