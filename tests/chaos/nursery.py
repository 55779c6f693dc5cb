"""A process that has children, each with the actors of one play. Forked, because starting interpreters takes longer.

Orders, one line each: a play as JSON. A child says `born PID`; told to end by SIGTERM, it lets everyone finish, closes
its clients and says `over PID`. If the stage itself breaks, it says so.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import gripfast
import gripfast.stores.redlock.factory  # here, so that no child has to; it brings all of Redis
from chaos.actors import Keeper, Play, Thread, act_together
from gripfast_lab.verify.journal import Journal


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def safely(action: Callable[[], None]) -> Callable[[], None]:
    def run() -> None:
        try:
            action()
        except BaseException:
            say("broken", traceback.format_exc().replace("\n", " | "))

    return run


def perform(play: Play) -> None:
    """Until SIGTERM."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    journal, stop = Journal(Path(play.folder) / "journal"), threading.Event()
    with contextlib.ExitStack() as stack:
        clients = [
            stack.enter_context(gripfast.connect(play.url, request_timeout=play.request_timeout)) for _ in range(2)
        ]
        roles = [Thread] * play.threads + [Keeper] * play.keepers
        actors = [
            role(clients[number % 2], f"thread {number}", play, journal, stop) for number, role in enumerate(roles)
        ]
        actions = [actor.act for actor in actors]
        if play.tasks:
            actions.append(lambda: asyncio.run(act_together(play, journal, stop)))
        threads = [threading.Thread(target=safely(action)) for action in actions]
        for thread in threads:
            thread.start()
        say("born", os.getpid())
        signal.sigwait({signal.SIGTERM})
        stop.set()
        for thread in threads:
            thread.join()
    say("over", os.getpid())


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # killed children leave no zombies
    for order in sys.stdin:
        given = {name: tuple(value) if isinstance(value, list) else value for name, value in json.loads(order).items()}
        if os.fork() == 0:
            safely(lambda given=given: perform(Play(**given)))()
            os._exit(0)


if __name__ == "__main__":
    main()
