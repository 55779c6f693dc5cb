"""From a URL and options to a checked configuration, without any I/O."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import SplitResult, parse_qsl, urlsplit

from gripfast.api.fallback import default_url
from gripfast.core import rules
from gripfast.errors import ConfigurationError
from gripfast.runtime.parts import Patience
from gripfast.stores import Address, StoreFactory, StoreSpec, schemes, spec_for, spec_of, spec_of_lists
from gripfast.stores.options import COMMON, check, from_url, hint

if TYPE_CHECKING:
    from gripfast.core.events import Observer

_PATIENCE = ("request_timeout", "connect_patience")
_SCHEME = re.compile(r"\s*([a-z][a-z0-9+.-]*)://", re.IGNORECASE)
_NO_SLASHES = re.compile(r"\s*([a-z][a-z0-9+.-]*):(?!//)(.*)", re.IGNORECASE | re.DOTALL)
_OF_PATHS = {"sqlite": ":///", "unix": "://"}
"""How a URL begins whose scheme is followed by a path. That path may begin with a slash of its own."""
_PORT = re.compile(r"\d{1,5}(?=[/,]|\Z)", re.ASCII)
_HOST = r"(?:(?!\d+(?![\w.-]))[\w.-]+|\[[\da-f:.]+\])(?::\d{1,5})?"
_HOSTS = re.compile(rf"{_HOST}(?:,{_HOST})*(?:/[\w./-]*)?", re.ASCII | re.IGNORECASE)
_PATH = re.compile(r"[\w.:/~+-]+", re.ASCII)
"""What can be shown of a URL that can't be read: it has no user, no password and no line break."""
_END_OF_HOSTS = r"(?=[/?#])|$"


class Config(NamedTuple):
    factory: StoreFactory
    prefix: str
    """Of all names, at the engine."""
    ttl: float
    patience: Patience
    observers: tuple[Observer, ...] = ()
    kind: str = ""
    """Of the store."""


def configure(target: object, options: dict[str, Any]) -> Config:
    """Gripfast's own options first, then the store's; what nobody knows is an error."""
    if "observers" in options:
        from gripfast.api.observing import checked_observers

        observers = checked_observers(options.pop("observers"))
        return configure(target, options)._replace(observers=observers)
    if target is None:
        target = options.pop("url", None)
    if target is None:
        _refuse_parts_of_a_url(options)
        target = os.environ.get("GRIPFAST_URL") or default_url()
    if isinstance(target, str):
        spec, (url, in_url) = _address(target)
        return _configured(spec, "factory", url, in_url | options)
    if isinstance(target, list | tuple):
        several = cast(Sequence[object], target)
        targets = [_address(each)[1] if isinstance(each, str) else each for each in several]
        return _configured(spec_of_lists(), "factory_of_several", targets, options)
    return _configured(spec_of(target), "factory_of", target, options)


def _refuse_parts_of_a_url(options: Mapping[str, object]) -> None:
    """redis.Redis(host=…, port=…, db=…), say."""
    if found := sorted({"host", "port", "db", "password"} & options.keys()):
        raise ConfigurationError(
            f"{found[0]!r} is part of a URL: write connect('redis://:password@host:6379/0'), with your own values"
        )


def _configured(spec: StoreSpec, make: str, target: object, options: dict[str, Any]) -> Config:
    known = {**COMMON, **spec.options}
    own = {name: options.pop(name) for name in ("ttl", "prefix", *_PATIENCE) if name in options}
    patience = _patience(own)
    check(options, known)
    factory: StoreFactory = getattr(spec.load(), make)(target, options)
    if options:
        _refuse_settings_of_a_lock(options)
        raise ConfigurationError(
            f"unknown option for {factory.where}: {', '.join(sorted(options))}{hint(options, known)}"
        )
    ttl = rules.checked_ttl(own.get("ttl", min(rules.TTL_DEFAULT, factory.max_ttl)), factory.max_ttl)
    prefix = rules.checked_prefix(own.get("prefix", factory.prefix))
    patience = {"request_timeout": factory.request_timeout} | patience
    return Config(factory, prefix, ttl, Patience(**patience), kind=spec.name)


def _refuse_settings_of_a_lock(options: Mapping[str, object]) -> None:
    from gripfast.api.misuse import as_here  # only for an error
    from gripfast.api.words import OF_A_LOCK

    for name in OF_A_LOCK:
        if name in options:
            value = as_here(options[name]) if isinstance(options[name], int | float) else "…"
            raise ConfigurationError(f"{name!r} belongs to a lock: write client.lock(name, {name}={value})")


def _patience(own: Mapping[str, object]) -> dict[str, float]:
    patience: dict[str, float] = {}
    if "request_timeout" in own:
        patience["request_timeout"] = rules.checked_request_timeout("request_timeout", own["request_timeout"])
    if "connect_patience" in own:
        patience["connect_patience"] = rules.checked_connect_patience(own["connect_patience"])
    return patience


def _address(target: str) -> tuple[StoreSpec, Address]:
    found = _SCHEME.match(target)
    if found is None:
        _refuse_missing_slashes(target)
        raise ConfigurationError(
            "a URL must start with a scheme, such as redis://localhost:6379, sqlite:///locks.db or memory://name"
        )
    spec = spec_for(found[1])
    url = _split(target, spec)
    return spec, Address(url, from_url(_query(url), {**COMMON, **spec.options}))


def _refuse_missing_slashes(target: str) -> None:
    """What may be a password is not shown, nor are options, which may have one. Docker Compose, say, names a host after
    what runs there: redis:6379."""
    found = _NO_SLASHES.match(target)
    if found is None or f"{found[1].lower()}://" not in schemes():
        return
    scheme, rest = found[1], "@" if "@" in found[2] else re.split(r"[?#]", found[2])[0]
    kind = scheme.lower()
    if kind in _OF_PATHS:
        right = f"{scheme}{_OF_PATHS[kind]}{_shown(rest, _PATH)}"
    elif _PORT.match(rest) and kind != "memory":
        right = f"{scheme}://{_shown(f'{scheme}:{rest}', _HOSTS)}"
        raise ConfigurationError(f"a URL must start with a scheme: if {scheme!r} is the host here, write {right}")
    else:
        right = f"{scheme}://{_shown(rest.lstrip('/'), _HOSTS)}"
    raise ConfigurationError(f"this URL lacks slashes behind {scheme + ':'!r}: write {right}")


def _shown(part: str, safe: re.Pattern[str]) -> str:
    return part if safe.fullmatch(part) else "…"


def _split(target: str, spec: StoreSpec) -> SplitResult:
    try:
        if spec.several_hosts:
            scheme, _, rest = target.partition("://")
            hosts, rest = re.split(_END_OF_HOSTS, rest, maxsplit=1)
            url = urlsplit(f"{scheme}://{rest}")._replace(netloc=hosts)
        else:
            url = urlsplit(target)
            url.port  # noqa: B018 - reading it is what checks it
    except ValueError:
        raise ConfigurationError("the URL can't be read: check its port, and the brackets of an IPv6 address") from None
    if url.fragment or target.endswith("#"):
        raise ConfigurationError("write '#' in a URL as %23")
    return url


def _query(url: SplitResult) -> dict[str, str]:
    query: dict[str, str] = {}
    for name, value in parse_qsl(url.query, keep_blank_values=True):
        if name in query:
            raise ConfigurationError(f"the URL has the option {name} twice: write it once")
        query[name] = value
    if "observers" in query:
        raise ConfigurationError("observers are objects, so they can't be in a URL: use connect(url, observers=[…])")
    return query
