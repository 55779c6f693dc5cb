"""Locks on one Redis server: a plain key that every Redis lock respects, and beside it a queue of waiters. The server
hands the lock to the first of them."""
