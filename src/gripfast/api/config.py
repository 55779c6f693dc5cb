"""From a URL and options to a checked configuration, without any I/O."""

from __future__ import annotations

import os
import re
from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, parse_qsl, urlsplit

from gripfast.api.fallback import default_url
from gripfast.core import rules
from gripfast.errors import ConfigurationError
from gripfast.runtime.parts import Patience
from gripfast.stores import (
    SEVERAL_HOSTS,
    Address,
    StoreFactory,
    factory_for,
    factory_of,
    factory_of_several,
    without_driver,
)

_PATIENCE = ("request_timeout", "connect_patience")
_SECONDS = {"ttl", "max_ttl", "restart_grace", *_PATIENCE}
_END_OF_HOSTS = re.compile(r"(?=[/?#])|$")


@dataclass(frozen=True, slots=True)
class Config:
    factory: StoreFactory
    ttl: float
    patience: Patience


def configure(target: object, options: dict[str, Any]) -> Config:
    """Gripfast's own options first, then the store's; what nobody knows is an error."""
    if target is None:
        target = os.environ.get("GRIPFAST_URL") or default_url()
    address = _address(target) if isinstance(target, str) else None
    rest = options if address is None else address.options | options
    own = {name: rest.pop(name) for name in ("ttl", *_PATIENCE) if name in rest}
    patience = _patience(own)
    factory = _factory(target, rest) if address is None else factory_for(address.url, rest)
    if rest:
        raise ConfigurationError(f"unknown option for {factory.where}: {', '.join(sorted(rest))}{_hint(rest)}")
    ttl = rules.checked_ttl(own.get("ttl", min(rules.TTL_DEFAULT, factory.max_ttl)), factory.max_ttl)
    return Config(factory, ttl, Patience(**{"request_timeout": factory.request_timeout} | patience))


def _patience(own: Mapping[str, object]) -> dict[str, float]:
    patience: dict[str, float] = {}
    if "request_timeout" in own:
        patience["request_timeout"] = rules.checked_request_timeout("request_timeout", own["request_timeout"])
    if "connect_patience" in own:
        patience["connect_patience"] = rules.checked_connect_patience(own["connect_patience"])
    return patience


def _hint(unknown: Container[str]) -> str:
    """Many a library calls it so, and means one or the other."""
    if "timeout" not in unknown:
        return ""
    return (
        "; request_timeout is how long one request may take, connect_patience how long a silent server is waited for, "
        "acquire(wait=…) how long somebody else's lock is"
    )


def _factory(target: object, options: dict[str, Any]) -> StoreFactory:
    if not isinstance(target, list | tuple):
        return factory_of(target, options)
    return factory_of_several([_address(each) if isinstance(each, str) else each for each in target], options)


def _address(target: str) -> Address:
    url = _split(target)
    return Address(url, _query(url))


def _split(target: str) -> SplitResult:
    try:
        scheme, _, rest = target.partition("://")
        if without_driver(scheme) in SEVERAL_HOSTS:
            hosts, rest = _END_OF_HOSTS.split(rest, 1)
            url = urlsplit(f"{scheme}://{rest}")._replace(netloc=hosts)
        else:
            url = urlsplit(target)
            url.port  # noqa: B018 - reading it is what checks it
    except ValueError:
        raise ConfigurationError("the URL can't be read: check its brackets and its port") from None
    if url.fragment or target.endswith("#"):
        raise ConfigurationError("a URL of Gripfast has no '#': write it as %23")
    if not url.scheme or "://" not in target:
        raise ConfigurationError("a URL starts with a scheme, such as sqlite:///locks.db or memory://")
    return url


def _query(url: SplitResult) -> dict[str, Any]:
    pairs = parse_qsl(url.query, keep_blank_values=True)
    query: dict[str, Any] = dict(pairs)
    if len(query) < len(pairs):
        raise ConfigurationError("an option occurs twice in the URL")
    for name in query.keys() & _SECONDS:
        query[name] = _number(name, query[name])
    return query


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigurationError(f"{name} must be a number of seconds, not {text!r}") from None
