"""As `nursery.py`, for clients of SQL servers, which take long to import. An order `bug NAME` is for all children that
follow: they have this one planted."""

import faulthandler
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import gripfast.stores.mysql.factory
import gripfast.stores.postgres.factory  # noqa: F401 - here, so that no child has to
from chaos.actors import Play
from chaos.nursery import perform, safely
from chaos.sql_bugs import BUGS


def act(order: str, bug: str) -> None:
    told: dict[str, Any] = json.loads(order)
    given: Any = {name: tuple(value) if isinstance(value, list) else value for name, value in told.items()}
    if bug:
        BUGS[bug]()
    faulthandler.register(signal.SIGUSR1)  # a child that hangs is asked where
    perform(Play(**given))


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # killed children leave no zombies
    bug = ""
    for order in sys.stdin:
        if order.startswith("bug "):
            bug = order.removeprefix("bug ").strip()
        elif os.fork() == 0:
            safely(lambda order=order, bug=bug: act(order, bug))()
            os._exit(0)


main()
