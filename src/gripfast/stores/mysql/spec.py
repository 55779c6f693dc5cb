"""What Gripfast knows about this engine before it is used."""

from __future__ import annotations

from collections.abc import Mapping

from gripfast.stores import StoreSpec
from gripfast.stores.options import Option
from gripfast.stores.sql.spec import OPTIONS

OF_THE_DRIVER: Mapping[str, Option] = {
    "bind_address": Option("text", "the local address to connect from"),
    "connect_timeout": Option("seconds", "how long connecting may take"),
    "program_name": Option("text", "what the server shows as the program"),
    "read_default_file": Option("text", "a file of MySQL's options"),
    "read_default_group": Option("text", "the group to read in `read_default_file`"),
    "server_public_key": Option("text", "the server's public key (PEM), to encrypt the password without TLS"),
    "ssl": Option("text", "an SSLContext or a dict of TLS settings; only as a keyword of `connect()`"),
    "ssl_ca": Option("text", "a file of certificates to trust"),
    "ssl_cert": Option("text", "a file with the client's own certificate"),
    "ssl_disabled": Option("bool", "connect without TLS"),
    "ssl_key": Option("text", "a file with the private key of the client's certificate"),
    "ssl_key_password": Option("text", "the password of the private key"),
    "ssl_verify_cert": Option("bool", "the server's certificate must be trusted"),
    "ssl_verify_identity": Option("bool", "the server's certificate must be valid for its host name"),
    "unix_socket": Option("text", "the path of a socket, instead of a host"),
}
"""Those of PyMySQL that are about how a connection is made; what is about queries is not needed here."""
SPEC = StoreSpec(
    "mysql",
    "gripfast.stores.mysql.factory",
    schemes=("mysql", "mariadb"),
    names_driver=True,
    extra="mysql",
    options={**OPTIONS, **OF_THE_DRIVER, "charset": Option("text", "only utf8mb4 is accepted")},
    builds_on="sql",
    doctor="gripfast.stores.mysql.doctor",
)
