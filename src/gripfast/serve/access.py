"""Who may look, and which requests come from the page itself. Pure: values in, a verdict out.

A visitor shows the token once. It is in the fragment of the link that `gripfast serve` prints, and a fragment is never
sent: not to this server, its proxy or their logs, nor to another site. The page sends it in a request of its own, takes
it out of the address and has a cookie from then on. The cookie says until when it is good, signed with the token: so
nothing is remembered here, and whoever changes the token ends all sessions. Programs send the token with each request,
as `Authorization: Bearer …`.

A reverse proxy that knows its users names them in a header instead. Whoever can connect to this server can send that
header, too: so it counts only from a proxy's address.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from starlette.datastructures import Headers

TOKEN_LEAST = 24
"""Characters: a shorter one could be guessed."""
SESSION = 12 * 3600.0
"""Seconds for which a cookie is good."""
USER_MOST = 200
"""Characters of a user's name."""
OWN_HEADER = "x-gripfast"
"""No form, link or image can send it, and a script of another site only if this server allowed that."""

Network = IPv4Network | IPv6Network


@dataclass(frozen=True, slots=True)
class Access:
    """What a visitor must show. With neither a token nor a header, everybody may look."""

    token: str | None = None
    header: str | None = None
    """The one in which a proxy names its user."""
    proxies: tuple[Network, ...] = ()
    """Whose header counts. If there is none: whoever can connect, which the address must limit."""

    def user(self, headers: Headers, cookie: str | None, peer: str | None, now: float) -> str | None:
        """A name for the log; None if this visitor may not look."""
        if self.header is None and self.token is None:
            return "anybody"
        if user := self._named(headers, peer):
            return user
        bearer = headers.get("authorization", "").partition("Bearer ")[2]
        is_known = self.is_token(bearer) or self._is_signed(cookie or "", now)
        return "the bearer of the token" if is_known else None

    def _named(self, headers: Headers, peer: str | None) -> str | None:
        """Two headers are one too many: the proxy has let its client's through."""
        if self.header is None or not self._is_proxy(peer):
            return None
        names = headers.getlist(self.header)
        return names[0].strip()[:USER_MOST] if len(names) == 1 else None

    def _is_proxy(self, peer: str | None) -> bool:
        if not self.proxies:
            return True
        try:
            address = ip_address(peer or "")
        except ValueError:  # a Unix socket has no address
            return False
        mapped = getattr(address, "ipv4_mapped", None)
        return any((mapped or address) in network for network in self.proxies)

    def is_token(self, text: str) -> bool:
        """JSON can contain half a character, which no token does."""
        given = text.encode(errors="surrogatepass")
        return self.token is not None and hmac.compare_digest(given, self.token.encode())

    def cookie(self, now: float) -> str:
        """What to send to somebody who has shown the token."""
        until = str(int(now + SESSION))
        return f"{until}.{self._signature(until)}"

    def _is_signed(self, cookie: str, now: float) -> bool:
        until, _, signature = cookie.partition(".")
        if self.token is None or not (until.isascii() and until.isdecimal()):
            return False
        return hmac.compare_digest(signature.encode(), self._signature(until).encode()) and now < int(until)

    def _signature(self, until: str) -> str:
        assert self.token is not None
        return hmac.new(self.token.encode(), f"gripfast serve until {until}".encode(), hashlib.sha256).hexdigest()


@dataclass(frozen=True, slots=True)
class Site:
    """Under which names this server is known. Its page is at the first of them."""

    origins: tuple[str, ...]
    """Such as `http://127.0.0.1:8023`."""
    path: str = "/"

    @property
    def url(self) -> str:
        return self.origins[0] + self.path

    @property
    def is_secure(self) -> bool:
        return self.origins[0].startswith("https:")

    def has_host(self, host: str) -> bool:
        return host.lower() in {origin.partition("://")[2] for origin in self.origins}

    def foreign(self, headers: Mapping[str, str]) -> str | None:
        """Why a request is not the page's own and must not even be answered with what is shown; None if it may."""
        where = headers.get("sec-fetch-site", "same-origin")
        return None if where in ("same-origin", "none") else "This request comes from another site."

    def unfit(self, headers: Mapping[str, str]) -> str | None:
        """Why a request may not change anything; None if it may."""
        if headers.get("origin") not in self.origins:
            return f"This request does not come from {self.url}. Give the address of the page as --public-url."
        if headers.get(OWN_HEADER) != "1" or not headers.get("content-type", "").startswith("application/json"):
            return "This request does not come from the page: it lacks the header X-Gripfast, or is not JSON."
        return self.foreign(headers)


def site_of(public_url: str) -> Site:
    """By the address that visitors use. Raises ValueError, whose message says what may be written."""
    parts = urlsplit(public_url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment or parts.username:
        raise ValueError(f"must be the address of the page, such as https://locks.example.com/, not {public_url!r}")
    return Site((origin(parts.scheme, parts.hostname, parts.port),), parts.path.rstrip("/") + "/")


def origin(scheme: str, host: str, port: int | None) -> str:
    """As browsers write it: without a port that goes without saying."""
    name = f"[{host}]" if ":" in host else host.lower()
    usual = {"http": 80, "https": 443}[scheme]
    return f"{scheme}://{name}" if port in (None, usual) else f"{scheme}://{name}:{port}"
