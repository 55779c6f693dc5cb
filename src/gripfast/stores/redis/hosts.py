"""The servers that a URL with several hosts names: `scheme://user:password@host:port,host,[::1]:port`."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import SplitResult, unquote

from gripfast.errors import ConfigurationError

PORT_MOST = 65535
_HOST = re.compile(r"(\[[^\[\]@]+\]|[^\[\]:@,]+)(?::([0-9]{,5}))?")


def login_and_hosts(url: SplitResult, port: int) -> tuple[dict[str, Any], list[tuple[str, int]]]:
    """User name and password, which are for all of them; the hosts, with this port unless they have their own."""
    login, _, netloc = url.netloc.rpartition("@")
    found = [_HOST.fullmatch(host) for host in netloc.split(",")]
    hosts = [(each[1].strip("[]"), int(each[2] or port)) for each in found if each is not None]
    if len(hosts) < len(found) or "," in login or any(port > PORT_MOST for _, port in hosts):
        raise ConfigurationError(
            f"the URL can't be read: write it as {url.scheme}://host:{port},host,[::1]:{port}, with user:password@ "
            "before the first host (it applies to all); write a comma in these two as %2C"
        )
    user, _, password = login.partition(":")
    given = {"username": unquote(user), "password": unquote(password)}
    return {name: value for name, value in given.items() if value}, hosts
