"""`valkey://`, `valkeys://` (TLS), or a client of valkey-py: as for Redis."""

from gripfast.stores.redis.factory import factory, factory_of

__all__ = ["factory", "factory_of"]
