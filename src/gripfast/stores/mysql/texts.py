"""How the texts for MariaDB and MySQL are written: the server's time in them, and stretches of names."""

from __future__ import annotations

from gripfast.stores.sql.statement import Statement, Value

NOW = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"

Values = dict[str, Value]


def statement(sql: str) -> Statement:
    return Statement(" ".join(sql.replace("{now}", NOW).split()))


def stretch_of(after: str, prefix: str, count: int) -> Values:
    return {"after": after, "prefix": prefix, "prefix_end": _prefix_end(prefix), "count": count}


def _prefix_end(prefix: str) -> bytes | None:
    """What comes after all names with this prefix. UTF-8 has no byte that could not be counted up."""
    text = prefix.encode()
    return text[:-1] + bytes([text[-1] + 1]) if text else None
