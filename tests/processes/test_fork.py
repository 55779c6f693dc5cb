"""Fork: the child owns nothing, the inherited client works anew in it, and the parent goes on."""

import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import gripfast
from support.processes import Worker

FORKS = 20


@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_a_fork_under_load_leaves_the_child_with_nothing_and_the_parent_with_everything(
    store: str, tmp_path: Path
) -> None:
    url = "memory://forked" if store == "memory" else f"sqlite:///{tmp_path / 'locks.db'}"
    journal = tmp_path / "owners"
    with Worker("fork.py", url, FORKS, journal) as parent:
        line = parent.line(within=55.0)
        assert line == " ".join(["children"] + ["0"] * FORKS), parent.errors
        assert parent.expect("parent") == ["True", "False", "True"], "held, not lost, and the threads went on"
        parent.expect("closed")
        assert parent.ended() == 0
    owners = journal.read_text().split()
    assert len(owners) == len(set(owners)) > FORKS


TELLING = """
import asyncio, os, sys, gripfast

def told_in_a_child(lease):
    if os.fork() == 0:
        try:
            lease.ensure_held()
        except gripfast.LeaseLost as error:
            print(error.reason, os.getppid(), error, sep="|", flush=True)
        os._exit(0)
    os.wait()

async def tell_of_a_task(url):
    async with gripfast.connect_async(url) as client, client.lock("task") as lease:
        told_in_a_child(lease)

with gripfast.connect(sys.argv[1]) as client, client.lock("job") as lease:
    told_in_a_child(lease)
asyncio.run(tell_of_a_task(sys.argv[1]))
"""


def test_a_child_is_told_that_the_lease_is_its_parents_who_may_well_live(sqlite_url: str) -> None:
    command = [sys.executable, "-W", "ignore", "-c", TELLING, sqlite_url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    for line in done.stdout.splitlines():
        reason, parent, message = line.split("|")
        assert reason == "session"
        assert f"it belongs to the parent process {parent}, not to this forked child" in message
        assert "gone" not in message
    assert len(done.stdout.splitlines()) == 2, done.stderr


def test_what_a_loss_says_is_still_said_by_a_copy() -> None:
    error = gripfast.LeaseLost("job", "session", "it is the parent's")
    assert str(pickle.loads(pickle.dumps(error))) == "lease on 'job' lost (session): it is the parent's"
    assert "it was released by force" in str(pickle.loads(pickle.dumps(gripfast.LeaseLost("job", "broken"))))


def test_no_process_is_forked_while_a_thread_loads_a_part_of_gripfast() -> None:
    """The child would wait for a thread that it does not have."""
    loading = threading.Event()

    def load() -> None:
        with gripfast._loading:
            loading.set()
            closing.wait(0.3)

    closing = threading.Event()
    thread = threading.Thread(target=load)
    thread.start()
    assert loading.wait(5)
    pid = os.fork()
    if pid == 0:
        os._exit(0 if gripfast._loading.acquire(blocking=False) else 1)
    thread.join()
    assert os.waitpid(pid, 0)[1] == 0
