"""From a URL and options to a checked configuration, without any I/O."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, parse_qsl, urlsplit

from holdfast.api.fallback import default_url
from holdfast.core import rules
from holdfast.errors import ConfigurationError
from holdfast.runtime.parts import Patience
from holdfast.stores import StoreFactory, factory_for, factory_of

_PATIENCE = ("request_timeout", "connect_patience")
_SECONDS = {"ttl", *_PATIENCE}


@dataclass(frozen=True, slots=True)
class Config:
    factory: StoreFactory
    ttl: float
    patience: Patience


def configure(target: object, options: dict[str, Any]) -> Config:
    """Holdfast's own options first, then the store's; what nobody knows is an error."""
    if target is None:
        target = os.environ.get("HOLDFAST_URL") or default_url()
    url = _split(target) if isinstance(target, str) else None
    rest = options if url is None else _query(url) | options
    ttl = rules.checked_ttl(rest.pop("ttl", rules.TTL_DEFAULT))
    patience = Patience(**{name: rules.checked_patience(name, rest.pop(name)) for name in _PATIENCE if name in rest})
    factory = factory_of(target, rest) if url is None else factory_for(url, rest)
    if rest:
        raise ConfigurationError(f"unknown option for {factory.where}: {', '.join(sorted(rest))}")
    return Config(factory, ttl, patience)


def _split(target: str) -> SplitResult:
    try:
        url = urlsplit(target)
        url.port  # noqa: B018 - reading it is what checks it
    except ValueError:
        raise ConfigurationError("the URL can't be read: check its brackets and its port") from None
    if url.fragment or target.endswith("#"):
        raise ConfigurationError("a URL of Holdfast has no '#': write it as %23")
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
