"""Actors in sync and async code, as Gripfast's shipped tests have them."""

from gripfast.testing.colours import COLOURS, World, open_files, play, renewal_of

__all__ = ["COLOURS", "World", "open_files", "play", "renewal_of"]
