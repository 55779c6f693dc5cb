"""The same with the decorator on `handle()`."""

from .count import Locked


class Command(Locked):
    pass
