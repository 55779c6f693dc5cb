"""A forked child inherits the lock object, not the lock."""

import subprocess
import sys

import pytest

PROGRAM = """
import os, sys, gripfast
from gripfast.compat import threading as compat

def raised(call):
    try:
        return call()
    except Exception as error:
        return type(error).__name__

client = gripfast.connect(sys.argv[1])
lock = getattr(compat, sys.argv[2])(client, "job")
lock.acquire()
if os.fork() == 0:
    print(raised(lock._is_owned), raised(lambda: lock.acquire(False)), raised(lock.release), raised(lock.release))
    os._exit(bool(sys.stdout.flush()))
os.wait()
print(lock._is_owned(), lock.locked())
lock.release()
print(lock.locked())
client.close()
"""


@pytest.mark.parametrize("kind", ["Lock", "RLock"])
def test_the_child_neither_has_the_lock_nor_frees_it(kind: str, sqlite_url: str) -> None:
    command = [sys.executable, "-c", PROGRAM, sqlite_url, kind]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.splitlines() == ["LeaseLost False None RuntimeError", "True True", "False"]
