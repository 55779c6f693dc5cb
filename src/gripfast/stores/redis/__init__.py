"""Locks on one Redis server: a plain key that every Redis lock respects, and a line of waiters beside it who are handed
the lock directly."""
