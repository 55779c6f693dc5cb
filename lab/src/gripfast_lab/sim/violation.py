"""A rule that was broken, and how."""

from typing import NamedTuple


class Violation(NamedTuple):
    rule: str
    name: str
    what: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.name!r}, {self.what}"
