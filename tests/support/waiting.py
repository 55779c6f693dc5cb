"""Waiting for a condition, as Gripfast's shipped tests do it."""

from gripfast.testing.waiting import auntil, until

__all__ = ["auntil", "until"]
