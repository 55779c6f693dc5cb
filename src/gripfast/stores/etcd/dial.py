"""How a connection to a member begins: its name is looked up anew, then come TCP and, if so configured, TLS.

Both happen on threads of their own (`bounded`): how long a resolver or a handshake takes is nobody's to say, and the
caller has a deadline. HTTP/2 needs no round trip of its own: the first request leaves with its preface.
"""

from __future__ import annotations

import contextlib
import logging
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gripfast.bounded import Calls
from gripfast.errors import ConfigurationError
from gripfast.stores.etcd import faults
from gripfast.stores.etcd.conversation import Conversation
from gripfast.stores.etcd.wire import Wire
from gripfast.stores.faults import LinkDown

if TYPE_CHECKING:
    import ssl

PORT = 2379
_KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
"""Seconds, seconds, probes, where the system has them."""
_log = logging.getLogger("gripfast.connection")


class Dialer:
    """To the members of one cluster."""

    def __init__(
        self,
        endpoints: Sequence[str],
        timeout: float,
        login: tuple[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`endpoints`: as `host:port`. `login`: user name and password."""
        self.endpoints = tuple(endpoints)
        self.timeout = timeout
        self.login = login
        self.tls = tls
        self.where = f"{self.url_scheme}://{','.join(endpoints)}"
        self.calls: Calls[Any] = Calls(lambda sock: sock.close())

    @property
    def url_scheme(self) -> str:
        return "etcd" if self.tls is None else "etcds"

    def where_is(self, endpoint: str) -> str:
        return f"{self.url_scheme}://{endpoint}"

    def dial(self, endpoint: str, seconds: float) -> Wire:
        """Raises LinkDown."""
        try:
            sock = self.calls.run(lambda: self.connect(endpoint, seconds), seconds)
        except (OSError, ValueError) as error:
            raise LinkDown(faults.not_connected(self.where_is(endpoint), error)) from None
        return Wire(sock, self.conversation(endpoint))

    def conversation(self, endpoint: str) -> Conversation:
        scheme = "http" if self.tls is None else "https"
        return Conversation(self.where_is(endpoint), endpoint, scheme)

    def connect(self, endpoint: str, seconds: float) -> socket.socket:
        """On any thread: whoever needs it in time does not wait for it here."""
        host, port = split(endpoint)
        sock = socket.create_connection((host, port), seconds)
        try:
            self._set_options(sock)
            sock = sock if self.tls is None else self._encrypted(sock, host)
        except BaseException:
            sock.close()
            raise
        _log.info("connected to %s", self.where_is(endpoint), extra={"gripfast_store": self.where_is(endpoint)})
        return sock

    def _encrypted(self, sock: socket.socket, host: str) -> socket.socket:
        assert self.tls is not None
        wrapped = self.tls.wrap_socket(sock, server_hostname=host)
        if wrapped.selected_alpn_protocol() != "h2":
            wrapped.close()
            raise ConnectionError("it does not speak HTTP/2 (ALPN)")
        return wrapped

    def _set_options(self, sock: socket.socket) -> None:
        with contextlib.suppress(OSError):  # they are no must, and some systems do not have all of them
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name in _KEEPALIVE.keys() & vars(socket).keys():
                sock.setsockopt(socket.IPPROTO_TCP, vars(socket)[name], _KEEPALIVE[name])


def split(endpoint: str) -> tuple[str, int]:
    host, _, port = endpoint.rpartition(":")
    return host.strip("[]"), int(port)


def tls_context(
    ca: str | None = None,
    cert: str | None = None,
    key: str | None = None,
    check_hostname: bool = True,
) -> ssl.SSLContext:
    """`ca`: whose certificates are believed, if not those that the system believes. `cert`, `key`: our own."""
    import ssl

    try:
        context = ssl.create_default_context(cafile=ca)
        if cert is not None:
            context.load_cert_chain(cert, key)
    except (OSError, ValueError) as error:
        files = ", ".join(name for name in (ca, cert, key) if name)
        raise ConfigurationError(f"the certificates can't be read ({files}): {error}") from None
    context.check_hostname = check_hostname
    context.set_alpn_protocols(["h2"])
    return context
