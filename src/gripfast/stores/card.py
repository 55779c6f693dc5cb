"""The card a holder or waiter leaves at an engine on this machine: who it is, for people and for the check that it
still lives."""

from __future__ import annotations

import functools
import json
from typing import Any, NamedTuple

from gripfast import machine
from gripfast.machine import Process


class Card(NamedTuple):
    host: str
    label: str | None
    processes: tuple[Process, ...]
    """The holder's own process first, then those that were vouched for: it is gone when all of them are."""

    @property
    def pid(self) -> int:
        return self.processes[0].pid if self.processes else 0


def write_card(label: str | None) -> str:
    """The card of this process."""
    return _dump(Card(machine.hostname(), label, (machine.this_process(),)))


def vouched_for(text: str, pid: int) -> str:
    """The same card with another process of this machine on it."""
    card = read_card(text)
    here = machine.this_process()
    other = Process(here.machine, here.boot, here.namespace, pid, machine.start_time(pid) or "")
    return _dump(card._replace(processes=(*card.processes, other)))


def is_gone(text: str) -> bool:
    """Whether every process on the card is provably dead."""
    processes = read_card(text).processes
    return bool(processes) and all(machine.is_gone(process) for process in processes)


@functools.lru_cache(maxsize=1024)
def read_card(text: str) -> Card:
    if not text:
        return Card("", None, ())
    data: dict[str, Any] = json.loads(text)
    return Card(data["host"], data["label"], tuple(Process(*process) for process in data["processes"]))


def _dump(card: Card) -> str:
    processes = [[p.machine, p.boot, p.namespace, p.pid, p.started] for p in card.processes]
    return json.dumps({"host": card.host, "label": card.label, "processes": processes})
