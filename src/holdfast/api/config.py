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
from holdfast.stores import StoreFactory, factory_for


@dataclass(frozen=True, slots=True)
class Config:
    factory: StoreFactory
    ttl: float
    patience: Patience


def configure(target: object, options: dict[str, Any]) -> Config:
    """Holdfast's own options first, then the store's; what nobody knows is an error."""
    if target is None:
        target = os.environ.get("HOLDFAST_URL") or default_url()
    if not isinstance(target, str):
        raise ConfigurationError(f"can't connect to {type(target).__name__}: give a URL such as sqlite:///locks.db")
    url = _split(target)
    rest = _query(url)
    rest.update({name: str(value) for name, value in options.items()})
    ttl = rules.checked_ttl(_seconds(rest, "ttl", rules.TTL_DEFAULT))
    patience = Patience(
        rules.checked_patience("request_timeout", _seconds(rest, "request_timeout", Patience().request_timeout)),
        rules.checked_patience("connect_patience", _seconds(rest, "connect_patience", Patience().connect_patience)),
    )
    factory = factory_for(url, rest)
    if rest:
        raise ConfigurationError(f"unknown option for {factory.where}: {', '.join(sorted(rest))}")
    return Config(factory, ttl, patience)


def _split(target: str) -> SplitResult:
    try:
        url = urlsplit(target)
        url.port  # noqa: B018 - reading it is what checks it
    except ValueError:
        raise ConfigurationError("the URL can't be read: check its brackets and its port") from None
    if not url.scheme or "://" not in target:
        raise ConfigurationError("a URL starts with a scheme, such as sqlite:///locks.db or memory://")
    return url


def _query(url: SplitResult) -> dict[str, str]:
    pairs = parse_qsl(url.query, keep_blank_values=True)
    query = dict(pairs)
    if len(query) < len(pairs):
        raise ConfigurationError("an option occurs twice in the URL")
    return query


def _seconds(options: dict[str, str], name: str, default: float) -> float:
    text = options.pop(name, None)
    if text is None:
        return default
    try:
        return float(text)
    except ValueError:
        raise ConfigurationError(f"{name} must be a number of seconds, not {text!r}") from None
