"""It holds its lock for as long as it may."""

from .count import LockedForLong


class Command(LockedForLong):
    pass
