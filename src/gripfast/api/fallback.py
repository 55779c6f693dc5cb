"""The embedded default: used when nothing is configured, and never silently where it would surprise."""

from __future__ import annotations

import logging
import os

from gripfast.errors import ConfigurationError

_log = logging.getLogger("gripfast.default")

_MANAGED = ("INVOCATION_ID", "JOURNAL_STREAM", "KUBERNETES_SERVICE_HOST", "container", "SUPERVISOR_ENABLED")
_CONTAINER_FILES = ("/.dockerenv", "/run/.containerenv")

_to_tell: list[None] = [None]
"""Popped by the one who tells it."""


def default_url() -> str:
    if os.environ.get("GRIPFAST_REQUIRE_URL", "") not in ("", "0"):
        raise ConfigurationError(
            "GRIPFAST_REQUIRE_URL forbids the default file: set GRIPFAST_URL, or pass a URL: in Python to connect(), "
            "in the shell with --url"
        )
    from gripfast.stores.sqlite import factory

    url = factory.default_url()
    if _to_tell and _is_managed():
        _tell_once(url)
    return url


def _tell_once(url: str) -> None:
    try:
        _to_tell.pop()
    except IndexError:
        return  # another thread was quicker
    _log.warning(
        "GRIPFAST_URL is not set, so locks are in a file that other containers and services may not see. Set it to a "
        "store that they share; to silence this line, set GRIPFAST_URL=%s",
        url,
    )


def _is_managed() -> bool:
    return any(name in os.environ for name in _MANAGED) or any(os.path.exists(path) for path in _CONTAINER_FILES)
