"""What is answered under which path, and the headers of every answer."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Any

from anyio import Lock, to_thread
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import gripfast
from gripfast.api.client import Client
from gripfast.api.rows import Holder, Row, break_holders, look_up
from gripfast.errors import ConfigurationError, GripfastError, visible
from gripfast.serve import metrics
from gripfast.serve.access import SESSION, Access, Site
from gripfast.serve.feed import Feed

log = logging.getLogger("gripfast.serve")

POLICY = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self'",
    "connect-src": "'self'",
    "base-uri": "'none'",
    "form-action": "'none'",
    "frame-ancestors": "'none'",
    "require-trusted-types-for": "'script'",
    "trusted-types": "'none'",
}
HEADERS = {
    "Content-Security-Policy": "; ".join(f"{name} {value}" for name, value in POLICY.items()),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
PROBES = ("/healthz", "/readyz")
"""They tell nothing but yes or no. Those who probe use addresses, not names, and have no token."""
BODY_MOST = 16 * 1024
BODY_WITHIN = 10.0
"""Seconds for what a request says to arrive."""
STREAMS_MOST = 300
"""Open pages: fewer than connections, so that others are still answered."""
READY_FOR = 1.0
"""Seconds for which one look at the store answers all probes."""
PROBED = "gripfast-serve:readyz"
"""A name that nobody needs to hold."""


@dataclass(frozen=True, slots=True)
class Settings:
    access: Access
    site: Site
    cookie: str
    """Its name: two servers on one host need two, because cookies do not know ports."""
    may_break: bool = False
    prefix: str = ""
    """Of the names that are shown, and may be broken."""


def application(settings: Settings, client: Client, feed: Feed) -> ASGIApp:
    return Guard(Starlette(routes=list(Answers(settings, client, feed).routes())), settings.site)


class Guard:
    """Around everything: the headers of every answer, and who is asked for."""

    def __init__(self, app: ASGIApp, site: Site) -> None:
        self._app = app
        self._site = site

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        host = Headers(scope=scope).get("host", "")
        if scope["path"] in PROBES or self._site.has_host(host):
            await self._app(scope, receive, send_guarded)
        else:
            await _unknown(host)(scope, receive, send_guarded)


def _unknown(host: str) -> Response:
    return PlainTextResponse(
        f"This server is not known as {host!r}. If it should be, name it with gripfast serve --public-url.\n", 421
    )


class Refused(Exception):
    """Carries its answer."""

    def __init__(self, status: int, why: str) -> None:
        self.status = status
        super().__init__(why)


Handler = Callable[[Request], Awaitable[Response]]


def _answering(handler: Handler) -> Handler:
    async def answer(request: Request) -> Response:
        try:
            return await handler(request)
        except Refused as refused:
            return JSONResponse({"why": str(refused)}, refused.status)

    return answer


class Answers:
    def __init__(self, settings: Settings, client: Client, feed: Feed) -> None:
        self._settings = settings
        self._client = client
        self._feed = feed
        self._probing = Lock()
        self._probed = (-math.inf, True)

    def routes(self) -> Iterator[Route]:
        for name, response in _files():
            yield Route("/" if name == "index.html" else f"/{name}", response)
        for path, method, handler in (
            ("/session", "GET", self.session),
            ("/session", "POST", self.sign_in),
            ("/session", "DELETE", self.sign_out),
            ("/events", "GET", self.events),
            ("/break", "POST", self.break_),
            ("/metrics", "GET", self.metrics),
            ("/healthz", "GET", self.health),
            ("/readyz", "GET", self.readiness),
        ):
            yield Route(path, _answering(handler), methods=[method])

    # -- who -----------------------------------------------------------------------------------------------------------

    def _visitor(self, request: Request) -> str:
        """Whoever may look. The request must come from the page, or from a program that shows the token."""
        if why := self._settings.site.foreign(request.headers):
            raise Refused(403, why)
        peer = request.client.host if request.client else None
        cookie = request.cookies.get(self._settings.cookie)
        user = self._settings.access.user(request.headers, cookie, peer, time.time())
        if user is None:
            raise Refused(401, self._how_to_enter())
        return user

    def _how_to_enter(self) -> str:
        if self._settings.access.token is None:
            return f"The reverse proxy did not say who you are: it must send the header {self._settings.access.header}."
        return "Open the link that gripfast serve has printed, or enter its token."

    async def _order(self, request: Request) -> dict[str, Any]:
        """What a request that changes something says."""
        if why := self._settings.site.unfit(request.headers):
            raise Refused(403, why)
        try:
            async with asyncio.timeout(BODY_WITHIN):
                order = json.loads(await _body(request))
        except TimeoutError:
            raise Refused(408, "This request took too long to arrive.") from None
        except (ValueError, RecursionError):  # a RecursionError: thousands of brackets
            order = None
        if not isinstance(order, dict):
            raise Refused(400, "This request is not a JSON object.")
        return order

    async def session(self, request: Request) -> Response:
        """What the page must know before it begins."""
        user = self._visitor(request)
        return JSONResponse(
            {
                "user": user,
                "where": self._client.where,
                "version": gripfast.__version__,
                "every": self._feed.interval,
                "may_break": self._settings.may_break,
                "tells_reason": self._client.capabilities.tells_reason,
                "can_sign_out": self._settings.access.token is not None,
            }
        )

    async def sign_in(self, request: Request) -> Response:
        order = await self._order(request)
        if not self._settings.access.is_token(str(order.get("token", ""))):
            raise Refused(401, "This is not the token. It changes with each start, unless there is a --token-file.")
        return self._with_cookie(self._settings.access.cookie(time.time()), int(SESSION))

    async def sign_out(self, request: Request) -> Response:
        await self._order(request)
        return self._with_cookie("", 0)

    def _with_cookie(self, value: str, seconds: int) -> Response:
        site, response = self._settings.site, Response(status_code=204)
        response.set_cookie(
            self._settings.cookie, value, seconds, path=site.path, secure=site.is_secure, httponly=True,
            samesite="strict",
        )  # fmt: skip
        return response

    # -- what ----------------------------------------------------------------------------------------------------------

    async def events(self, request: Request) -> Response:
        self._visitor(request)
        if self._feed.viewers >= STREAMS_MOST:
            raise Refused(503, f"{STREAMS_MOST} pages are open already. Close some of them.")
        headers = {"X-Accel-Buffering": "no"}  # nginx passes each event on as it comes
        return StreamingResponse(self._feed.stream(), media_type="text/event-stream", headers=headers)

    async def break_(self, request: Request) -> Response:
        user = self._visitor(request)
        order = await self._order(request)
        if not self._settings.may_break:
            raise Refused(403, "This page is read-only. gripfast serve --allow-break lets it break locks.")
        try:
            row = await to_thread.run_sync(self._broken, order, abandon_on_cancel=True)
        except GripfastError as error:
            raise Refused(400 if isinstance(error, ConfigurationError) else 503, str(error)) from None
        self._note(user, row, order.get("reason"))
        self._feed.refresh()
        return JSONResponse({"broken": len(row.holders)})

    def _broken(self, order: dict[str, Any]) -> Row:
        """On a thread. Only those holders that the visitor was shown."""
        kind, name, owners = order.get("kind"), order.get("name"), order.get("owners")
        if kind not in ("lock", "semaphore", "rwlock") or not isinstance(name, str) or not isinstance(owners, list):
            raise Refused(400, "A break needs kind, name and owners.")
        if not name.startswith(self._settings.prefix):
            raise Refused(403, "This page does not show that name, so it does not break it.")
        row = look_up(self._client, kind, name)
        meant = [each for each in row.holders if each.owner in owners] if row else []
        if row is None or not meant:
            raise Refused(409, "Nothing was changed: those holders do not hold it any more. Look again.")
        if any(each.state == "done" for each in meant):
            raise Refused(409, "Nothing was changed: it is recorded as done. gripfast forget removes the record.")
        hit = break_holders(self._client, replace(row, holders=tuple(meant)), order.get("reason") or None)
        if not hit:
            raise Refused(409, "Nothing was changed: those holders do not hold it any more. Look again.")
        return replace(row, holders=hit)

    def _note(self, user: str, row: Row, reason: object) -> None:
        extra = {"gripfast_user": user, "gripfast_name": row.name, "gripfast_kind": row.kind}
        who = ", ".join(map(_told, row.holders))
        told = row.name, visible(user), reason or "-", visible(who)
        log.warning("%r broken by %s, reason %r; it was held by %s", *told, extra=extra)

    # -- for machines --------------------------------------------------------------------------------------------------

    async def metrics(self, request: Request) -> Response:
        self._visitor(request)
        viewers = self._feed.viewers
        text = metrics.exposition(await self._feed.view(), viewers)
        if text is None:
            raise Refused(501, metrics.MISSING)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    async def health(self, request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readiness(self, request: Request) -> Response:
        async with self._probing:
            at, was_ready = self._probed
            is_ready = was_ready
            if time.monotonic() - at > READY_FOR:
                is_ready = await to_thread.run_sync(self._reaches, was_ready, abandon_on_cancel=True)
                self._probed = time.monotonic(), is_ready
        return PlainTextResponse("ok\n") if is_ready else PlainTextResponse("the store can't be reached\n", 503)

    def _reaches(self, did: bool) -> bool:
        """On a thread. Probes come often, so only a change is logged."""
        try:
            self._client.inspect(PROBED)
        except GripfastError as error:
            if did:
                log.warning("not ready: %s", error)
            return False
        return True


async def _body(request: Request) -> bytes:
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > BODY_MOST:
            raise Refused(413, "This request is too long.")
    return body


def _told(holder: Holder) -> str:
    return f"pid {holder.pid} on {holder.host or '?'} (owner {holder.owner}, token {holder.token})"


def _files() -> Iterator[tuple[str, Handler]]:
    """Read once: nothing but these can be asked for."""
    for file in sorted(files("gripfast.serve").joinpath("static").iterdir(), key=lambda each: each.name):
        media_type = TYPES.get(file.name[file.name.rfind(".") :])
        if media_type is not None:
            yield file.name, _sending(file.read_bytes(), media_type)


def _sending(content: bytes, media_type: str) -> Handler:
    async def send(_: Request) -> Response:
        return Response(content, media_type=media_type)

    return send
