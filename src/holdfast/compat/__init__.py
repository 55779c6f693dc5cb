"""Locks in the shape the standard library has, for code that takes one: `compat.threading` and `compat.asyncio`."""
