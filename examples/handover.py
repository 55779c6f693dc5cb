"""A web process acquires a lock, and a worker does the work that needs it. The lock is never free in between.

Prints:
    held by the web process: True
    the worker got: export of order 42
    free afterwards: True
"""

import os
import subprocess
import sys
import tempfile

import gripfast

WORKER = """
import os, sys
import gripfast

with gripfast.connect(os.environ["LOCKS"]).adopt(sys.stdin.read()) as lease:
    lease.ensure_held()
    print("export of order 42")
"""

with tempfile.TemporaryDirectory() as folder:
    url = f"sqlite:///{folder}/locks.db"
    with gripfast.connect(url) as client:
        lease = client.lock("export:42").acquire(wait=0)
        print("held by the web process:", lease.held)
        text = lease.detach(ttl=60)  # until the worker has begun
        command = [sys.executable, "-c", WORKER]
        ended = subprocess.run(
            command, input=text, env={**os.environ, "LOCKS": url}, capture_output=True, text=True, check=True
        )
        print("the worker got:", ended.stdout.strip())
        print("free afterwards:", client.inspect("export:42") is None)
