"""A visitor without a network: calls a real application as a server does."""

import asyncio
import json
from typing import Any, NamedTuple

SCOPE = {
    "asgi": {"version": "3.0", "spec_version": "2.4"},
    "http_version": "1.1",
    "query_string": b"",
    "headers": [],
    "server": ("shop", 80),
    "client": ("visitor", 1),
    "root_path": "",
    "extensions": {"websocket.http.response": {}},
}
LEFT_OUT = "websocket.http.response.body"


class Got(NamedTuple):
    status: int
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


async def get(app: Any, path: str) -> Got:
    """What is raised in the application is raised here, too."""
    sent: list[dict[str, Any]] = []
    incoming = [{"type": "http.request", "body": b"", "more_body": False}]
    await _call(app, {"type": "http", "method": "GET", "scheme": "http"}, path, incoming, sent)
    body = b"".join(message.get("body", b"") for message in sent)
    return Got(sent[0]["status"], body.decode())


async def connect(app: Any, path: str) -> list[tuple[str, Any]]:
    """What a websocket is told: each message, with its text, its code or its status."""
    sent: list[dict[str, Any]] = []
    kind = {"type": "websocket", "scheme": "ws", "subprotocols": []}
    await _call(app, kind, path, [{"type": "websocket.connect"}], sent)
    kinds = [message for message in sent if message["type"] != LEFT_OUT]
    return [(message["type"], message.get("text") or message.get("code") or message.get("status")) for message in kinds]


async def _call(app: Any, kind: dict[str, Any], path: str, incoming: list[Any], sent: list[Any]) -> None:
    async def receive() -> Any:
        if not incoming:
            await asyncio.Event().wait()
        return incoming.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    await app({**SCOPE, **kind, "path": path, "raw_path": path.encode(), "state": {}}, receive, send)
