"""The options of `connect()`: which kinds there are, and what a URL's text becomes. A store's spec names its own.

A keyword argument has a type already, and is checked by the rule that uses it. A switch or a choice is checked here,
wherever it came from: `verify_certs="0"` must not count as true.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any, Literal, NamedTuple

from gripfast import durations
from gripfast.errors import ConfigurationError


class Option(NamedTuple):
    kind: Literal["seconds", "number", "text", "bool", "choice"]
    meaning: str
    """In one line."""
    choices: tuple[str, ...] = ()


COMMON: Mapping[str, Option] = {
    "ttl": Option("seconds", "how long a lease lasts unless it is renewed; `lock(ttl=…)` overrides it"),
    "prefix": Option("text", "text that is put before each name in the store"),
    "request_timeout": Option("seconds", "how long one request may take"),
    "connect_patience": Option("seconds", "how long `acquire()` retries a store that can't be reached"),
}
"""What every store takes."""

_BOOLS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
_TIMEOUT = (
    "; did you mean request_timeout (for one request), connect_patience (for reaching the server) or acquire(wait=…) "
    "(for the lock)?"
)


def from_url(query: Mapping[str, str], known: Mapping[str, Option]) -> dict[str, Any]:
    """The options in a URL, their numbers read."""
    return {name: _number(name, text, known[name].kind) if name in known else text for name, text in query.items()}


def check(options: dict[str, Any], known: Mapping[str, Option]) -> None:
    """Switches become True or False; a choice is one of those there are."""
    for name in options.keys() & known.keys():
        if known[name].kind == "bool":
            options[name] = _truth(name, options[name])
        elif known[name].kind == "choice" and options[name] not in known[name].choices:
            raise ConfigurationError(f"{name} must be one of {', '.join(known[name].choices)}, not {options[name]!r}")


def hint(unknown: Container[str], known: Mapping[str, Option]) -> str:
    """What somebody may have meant; `timeout` is what many a library calls it, and means one or the other."""
    if "timeout" in unknown:
        return _TIMEOUT
    import difflib  # only for an error

    near = [name for each in sorted(unknown) for name in difflib.get_close_matches(each, known, n=1)]  # type: ignore[call-overload]
    return f"; did you mean {' and '.join(near)}?" if near else f"; known options: {', '.join(sorted(known))}"


def _number(name: str, text: str, kind: str) -> Any:
    try:
        return durations.read(text) if kind == "seconds" else int(text) if kind == "number" else text
    except ValueError as error:
        what = error if kind == "seconds" else f"must be a whole number, not {text!r}"
        raise ConfigurationError(f"{name} {what}") from None


def _truth(name: str, value: object) -> bool:
    if isinstance(value, bool):
        return value
    found = _BOOLS.get(str(value).lower())
    if found is None:
        raise ConfigurationError(f"{name} must be true or false, not {value!r}")
    return found
