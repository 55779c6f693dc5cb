"""What may be a token and what may be a resource: bad ones are refused before anything is compared or sent."""

from __future__ import annotations

from gripfast.errors import ConfigurationError

SHARED = 2**63 - 1
"""The largest integer that every engine's integer column holds. It is no token: `fencing/shared.py` says what it is."""
MAX_TOKEN = SHARED - 1

MAX_RESOURCE_BYTES = 512
"""The limit lock names have too: it fits into every engine's primary key."""


def checked_token(token: object) -> int:
    """The token as a plain int. True is refused although it is an int: it is never what was meant."""
    if isinstance(token, bool) or not isinstance(token, int):
        raise ConfigurationError(f"a fencing token must be an int, such as lease.token, not {type(token).__name__}")
    if not 0 <= token <= MAX_TOKEN:
        raise ConfigurationError(f"a fencing token must be between 0 and 2**63 - 2, not {token}")
    return int(token)


def checked_resource(resource: object) -> str:
    """The resource, if every engine can store it and compare it byte by byte."""
    if not isinstance(resource, str) or not resource:
        raise ConfigurationError(f"the name of a resource must be non-empty text, not {resource!r}")
    try:
        size = len(resource.encode())
    except UnicodeEncodeError:
        raise ConfigurationError(f"the name of a resource must be valid Unicode text, not {resource!r}") from None
    if size > MAX_RESOURCE_BYTES or "\0" in resource:
        raise ConfigurationError(
            f"the name of a resource must have at most {MAX_RESOURCE_BYTES} UTF-8 bytes (this one has {size}) and must "
            "not contain NUL"
        )
    return resource
