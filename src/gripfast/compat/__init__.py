"""Locks in the shape that other code expects: the standard library's in `compat.threading` and `compat.asyncio`,
redis-py's in `compat.redis`."""
