"""What `gripfast doctor` finds at a Valkey server: as for Redis."""

from gripfast.stores.redis.doctor import examine

__all__ = ["examine"]
