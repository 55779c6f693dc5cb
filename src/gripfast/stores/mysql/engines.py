"""Arguments of the drivers that SQLAlchemy uses with MariaDB and MySQL, in PyMySQL's words."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any

from gripfast.stores.sql import engines

USED = "PyMySQL"

_OF_QUERIES = {
    "allow_local_infile", "autocommit", "binary_prefix", "buffered", "charset", "client_flag", "client_flags",
    "collation", "compress", "consume_results", "conv", "converter_class", "converter_str_fallback", "cursorclass",
    "echo", "get_warnings", "local_infile", "loop", "max_allowed_packet", "no_delay", "raise_on_warnings", "raw",
    "read_timeout", "sql_mode", "time_zone", "use_pure", "use_unicode", "write_timeout",
}  # fmt: skip
"""Our sessions have settings of their own."""
_RENAMED = {"connection_timeout": "connect_timeout", "db": "database", "passwd": "password"}
_SAME = {
    "bind_address", "connect_timeout", "database", "host", "init_command", "password", "port", "program_name",
    "read_default_file", "read_default_group", "server_public_key", "ssl_ca", "ssl_cert", "ssl_disabled", "ssl_key",
    "ssl_verify_cert", "ssl_verify_identity", "unix_socket", "user",
}  # fmt: skip


def settings_of(engine: Any) -> dict[str, Any]:
    """What PyMySQL is to be told."""
    return engines.translated(engine, USED, _translate, _OF_QUERIES)


def _translate(name: str, value: Any) -> Mapping[str, Any] | None:
    keyword = _RENAMED.get(name, name)
    if keyword == "ssl":
        return {"ssl": value} if isinstance(value, dict | ssl.SSLContext) else None
    return {keyword: value} if keyword in _SAME else None
