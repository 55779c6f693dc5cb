"""The address that the page is served at: which may be used, and its socket.

On a loopback address only users of this machine can connect. Elsewhere everybody can who reaches the machine, and the
names under which it is known are not ours to guess: so there must be a public URL, and a token or a proxy's header. A
header that names the user counts from whoever can connect, so elsewhere than on this machine the proxy must be named.
"""

from __future__ import annotations

import os
import socket
import stat
from dataclasses import dataclass
from ipaddress import ip_address

from gripfast.errors import ConfigurationError
from gripfast.serve.access import Access, Site, origin, site_of

UNIX = "unix:"
MODE = 0o660
"""Of a Unix socket: its user and group, so that a proxy in the group can connect and nobody else."""
NAMES_OF_LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen: a host and a port, or the path of a Unix socket."""

    host: str
    port: int = 0
    path: str | None = None

    @property
    def is_local(self) -> bool:
        """Whether only this machine can connect."""
        return self.path is not None or self.host == "localhost" or ip_address(self.host).is_loopback

    def __str__(self) -> str:
        return f"{UNIX}{self.path}" if self.path else origin("http", self.host, self.port).partition("://")[2]


def address_of(text: str) -> Address:
    """`127.0.0.1:8023`, `[::1]:8023`, `localhost:8023`, `unix:/run/gripfast.sock`. Raises ValueError."""
    if text.startswith(UNIX) and len(text) > len(UNIX):
        return Address("", path=text.removeprefix(UNIX))
    host, _, port = text.rpartition(":")
    try:
        name = host if host == "localhost" else str(ip_address(host.removeprefix("[").removesuffix("]")))
        number = int(port) if port.isascii() and port.isdecimal() else -1
        if 0 <= number < 65536:
            return Address(name, number)
    except ValueError:
        pass
    raise ValueError(f"must be an IP address and a port, such as 127.0.0.1:8023, or unix:/PATH, not {text!r}")


def check(address: Address, access: Access, public_url: str | None) -> None:
    """Raises ConfigurationError if what is shown would be open to people who have no business with it."""
    if not address.is_local and access.token is None and access.header is None:
        raise ConfigurationError(
            f"{address} can be reached from other machines, and --open shows everything to everybody there: leave "
            "--open out, and the page asks for a token, or name the header of your reverse proxy with --trust-header"
        )
    if not address.is_local and access.header is not None and not access.proxies:
        raise ConfigurationError(
            f"{address} can be reached from other machines, and each of them could send the header {access.header}: "
            "name the network of your reverse proxy with --proxy, or listen on 127.0.0.1 or a Unix socket"
        )
    if public_url is None and (address.path or not address.is_local):
        raise ConfigurationError(
            f"visitors can't open {address} by that name: give the address that they use, such as --public-url "
            "https://locks.example.com/. Requests that name another host are refused"
        )


def bind(address: Address) -> socket.socket:
    """Raises ConfigurationError if it can't be had."""
    try:
        return _unix_socket(address.path) if address.path else _tcp_socket(address)
    except OSError as error:
        raise ConfigurationError(
            f"can't listen on {address}: {error.strerror or error}. Choose another address with --listen"
        ) from error


def _tcp_socket(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    bound = socket.socket(family)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((address.host, address.port))
    except OSError:
        bound.close()
        raise
    return bound


def _unix_socket(path: str) -> socket.socket:
    """A socket that nobody listens on any more is in the way; nothing else is removed."""
    bound = socket.socket(socket.AF_UNIX)
    before = os.umask(0o777 & ~MODE)
    try:
        if _is_left_over(path):
            os.unlink(path)
        bound.bind(path)
    except OSError:
        bound.close()
        raise
    finally:
        os.umask(before)
    return bound


def _is_left_over(path: str) -> bool:
    try:
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            return False
        with socket.socket(socket.AF_UNIX) as caller:
            caller.connect(path)
    except FileNotFoundError:
        return False
    except ConnectionRefusedError:
        return True
    return False


def site_at(address: Address, bound: socket.socket, public_url: str | None) -> Site:
    """The public URL first. A proxy on this machine may pass the name by which it connects."""
    if address.path:
        here: tuple[str, ...] = ("http://localhost",)
    else:
        port = bound.getsockname()[1]
        here = tuple(origin("http", name, port) for name in dict.fromkeys((address.host, *NAMES_OF_LOOPBACK)))
    if public_url is None:
        return Site(here)
    public = site_of(public_url)
    return Site((*public.origins, *(here if address.is_local else ())), public.path)
