"""The setting `GRIPFAST`: what its entries may say, and which store an entry means. No I/O.

An entry has a `URL` (whatever `gripfast.connect()` takes), or a `DATABASE` (an alias of `DATABASES`) with a `MODE`, and
`OPTIONS`. Without the setting there is one entry, `default`, which is what `connect()` without a URL means:
$GRIPFAST_URL, or a file in the home directory.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from gripfast.api.config import Config, configure
from gripfast.contrib.django.databases import Place, address_of, place_of

SETTING = "GRIPFAST"
DEFAULT = "default"
KEYS = ("URL", "DATABASE", "MODE", "OPTIONS")
MODES = ("lease", "row", "advisory")


class Entry(NamedTuple):
    """What the setting says about one alias; checked, as far as it can be without another setting."""

    alias: str
    url: object = None
    database: str | None = None
    mode: str | None = None
    options: Mapping[str, Any] = {}

    @property
    def place(self) -> Place:
        """Where its locks are now."""
        return place_of(self.database, self.mode) if self.database else Place(self.url)

    @property
    def address(self) -> tuple[object, ...]:
        """As long as it stays the same, so does the place. That of a database changes while a test runner works."""
        return address_of(self.database) if self.database else ()


def entries() -> dict[str, Entry]:
    """All of them, by their aliases."""
    given = getattr(settings, SETTING, None)
    if given is None:
        return {DEFAULT: Entry(DEFAULT)}
    if not isinstance(given, Mapping) or DEFAULT not in given:
        raise ImproperlyConfigured(f"{SETTING} must be a dict with the key '{DEFAULT}': {SETTING} = {_EXAMPLE}")
    return {alias: _entry(alias, each) for alias, each in given.items()}


_EXAMPLE = '{"default": {"URL": "redis://localhost:6379/0"}}'


def entry(alias: str) -> Entry:
    known = entries()
    if alias not in known:
        raise ImproperlyConfigured(f"{SETTING} has no entry {alias!r}: add it, or use one of {', '.join(known)}")
    return known[alias]


def config_of(entry: Entry) -> Config:
    """ConfigurationError or ImproperlyConfigured if that makes no store."""
    place = entry.place
    return configure(place.target, {**place.options, **entry.options})


def _entry(alias: str, given: object) -> Entry:
    where = f"{SETTING}[{alias!r}]"
    if not isinstance(given, Mapping):
        raise ImproperlyConfigured(f"{where} must be a dict with some of the keys {', '.join(KEYS)}")
    if unknown := [key for key in given if key not in KEYS]:
        raise ImproperlyConfigured(
            f"{where} has an unknown key {unknown[0]!r}: the keys are {', '.join(KEYS)}. What connect() takes as a "
            "keyword, such as ttl or prefix, goes into OPTIONS"
        )
    for key in ("URL", "DATABASE"):
        if key in given and not given[key]:
            raise ImproperlyConfigured(
                f"{where} has an empty {key}, as from a variable of the environment that is not set. Without that key, "
                "the locks are where $GRIPFAST_URL says, or in a file in the home directory"
            )
    url, database, mode, options = (given.get(key) for key in KEYS)
    if database is not None and not isinstance(database, str):
        raise ImproperlyConfigured(f"{where}: DATABASE must be an alias of DATABASES, such as 'default'")
    if url and database:
        raise ImproperlyConfigured(f"{where} has a URL and a DATABASE: leave one of them out")
    if mode is not None and (not database or mode not in MODES):
        raise ImproperlyConfigured(
            f"{where}: MODE goes with a DATABASE, and is one of {', '.join(MODES)}. In a URL, write ?mode=… instead"
        )
    if not isinstance(options or {}, Mapping):
        raise ImproperlyConfigured(f"{where}: OPTIONS must be a dict, such as {{'ttl': 60}}")
    return Entry(alias, url, database, mode, dict(options or {}))
