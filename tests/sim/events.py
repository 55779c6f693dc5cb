"""Histories to judge, in few words. A lease asks for TTL, and is granted a second less."""

from typing import Any

from gripfast_lab.sim.checks import violations
from gripfast_lab.sim.history import ANY, WORLD, Event, Kind

TTL = 10.0


def event(at: float, who: str, kind: Kind, **more: Any) -> Event:
    return Event(at, who, more.pop("name", "job"), kind, **more)


def asked(at: float, who: str, **more: Any) -> Event:
    return event(at, who, "asked", **{"until": at, "ttl": TTL, **more})


def granted(at: float, who: str, token: int, **more: Any) -> Event:
    return event(at, who, "granted", token=token, **{"until": at + 9.0, **more})


def held(at: float, who: str, token: int, **more: Any) -> Event:
    return event(at, who, "held", token=token, **{"until": at + 9.0, "ttl": TTL, **more})


def over(at: float, who: str) -> list[Event]:
    """Released."""
    return [event(at, who, "releasing"), event(at + 0.1, who, "released")]


def lost(at: float, who: str) -> Event:
    return event(at, who, "lost", note="expired")


def life(start: float, who: str, token: int, end: float, **more: Any) -> list[Event]:
    """Asked, granted a second later, released at the end."""
    return [asked(start, who, **more), granted(start + 1.0, who, token), *over(end, who)]


def wrote(at: float, who: str, token: int, read: int, written: int) -> Event:
    return event(at, who, "wrote", token=token, note=f"{read} {written}")


def world(at: float, kind: Kind, **more: Any) -> Event:
    return event(at, more.pop("who", WORLD), kind, **{"name": ANY, **more})


def rules(history: list[Event], **options: Any) -> list[str]:
    return [violation.rule for violation in violations(history, **options)]
