"""Forks while other threads hammer the same client: a child owns nothing, and the inherited client works anew in it."""

import contextlib
import faulthandler
import os
import signal
import sys
import threading

import gripfast

CHILD_SECONDS = 10


def note(lease: gripfast.Lease) -> None:
    """An owner id that comes up twice would let two processes in at once."""
    os.write(OWNERS, f"{lease.owner}\n".encode())


def hammer(client: gripfast.Client, number: int, stop: threading.Event, rounds: list[int]) -> None:
    while not stop.is_set():
        with client.lock("contended") as lease:
            note(lease)
            rounds[number] += 1
        client.lock(f"own-{number}").acquire().release()


def child(client: gripfast.Client, inherited: gripfast.Lease, number: int) -> None:
    """Raises on the first thing that is wrong."""
    assert not inherited.held
    assert inherited.remaining() == 0.0
    with contextlib.suppress(gripfast.LeaseLost):
        inherited.ensure_held()
        raise AssertionError("ensure_held() let the child in")
    inherited.release()
    with client.lock(f"child-{number}").acquire(wait=5) as lease:
        note(lease)
        lease.ensure_held()
        lease.extend(20)
    if client.capabilities.sees_death:
        assert client.lock("parent").try_acquire() is None, "the child took what the parent holds"
    client.close()


def run_child(client: gripfast.Client, inherited: gripfast.Lease, number: int) -> None:
    faulthandler.dump_traceback_later(CHILD_SECONDS - 1, exit=False)
    signal.alarm(CHILD_SECONDS)
    try:
        child(client, inherited, number)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        os._exit(1)
    os._exit(0)


def main(url: str, forks: int) -> None:
    client = gripfast.connect(url)
    lease = client.lock("parent").acquire()
    stop = threading.Event()
    rounds = [0, 0, 0]
    threads = [threading.Thread(target=hammer, args=(client, number, stop, rounds)) for number in range(3)]
    for thread in threads:
        thread.start()
    statuses = []
    for number in range(forks):
        pid = os.fork()
        if pid == 0:
            run_child(client, lease, number)
        statuses.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    stop.set()
    for thread in threads:
        thread.join()
    lease.extend(20)
    print("children", *statuses)
    print("parent", lease.held, lease.lost.is_set(), min(rounds) > 0)
    lease.release()
    client.close()
    print("closed")


OWNERS = os.open(sys.argv[3], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
main(sys.argv[1], int(sys.argv[2]))
