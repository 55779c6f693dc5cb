"""Takes locks until no more can be written, then is given room again; tells what came of each step."""

import json
import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path

import gripfast

Limit = Callable[[], Callable[[], object]]


def small_files(folder: Path) -> Callable[[], object]:
    """No file may grow beyond 64 KiB; Python ignores the signal, so writing fails."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 * 1024, before[1]))
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, before)


def full_disk(folder: Path) -> Callable[[], object]:
    """A file takes all the room that is left."""
    ballast = os.open(folder / "ballast", os.O_WRONLY | os.O_CREAT)
    size = 64 * 1024
    while size:
        try:
            os.write(ballast, b"x" * size)
        except OSError:
            size //= 2
    os.close(ballast)
    return (folder / "ballast").unlink


def take_until_refused(client: gripfast.Client) -> tuple[list[gripfast.Lease], Exception | None]:
    taken: list[gripfast.Lease] = []
    for number in range(20_000):
        try:
            taken.append(client.lock(f"job-{number}-" + "x" * 200).acquire(wait=0))
        except Exception as error:
            return taken, error
    return taken, None


def main(how: str, folder: Path) -> None:
    client = gripfast.connect(f"sqlite:///{folder}/locks.db", request_timeout=0.3)
    kept = client.lock("kept").acquire()
    make_room = (small_files if how == "small files" else full_disk)(folder)
    taken, error = take_until_refused(client)
    print("refused", json.dumps([type(error).__name__, str(error)]))
    print("kept", kept.held, all(lease.held for lease in taken))
    make_room()
    again = client.lock("afterwards").acquire(wait=5)
    kept.extend(20)
    print("again", kept.held, again.token > kept.token)
    kept.release()
    client.close()
    print("closed")


main(sys.argv[1], Path(sys.argv[2]))
