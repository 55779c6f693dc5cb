"""A process that claims locks on etcd, and is killed before there is an answer.

Started with a URL, a ttl and names. Told to, it uses a lock, so that its client has a young lease of etcd's, and says
`warm`. Told again, it claims all of the names at once, says `claimed`, and waits to be killed.
"""

import sys
import threading

import gripfast
from gripfast.stores.etcd import leases

vars(leases).update(EARLY=0.9, OLDEST=0.9)  # as in etcd_late.py
url, ttl, *names = sys.argv[1:]
with gripfast.connect(url, ttl=float(ttl), request_timeout=30.0) as client:
    client.lock("warm").acquire().release()
    print("ready", flush=True)
    sys.stdin.readline()
    client.lock("warm").acquire().release()
    print("warm", flush=True)
    sys.stdin.readline()
    for name in names:
        threading.Thread(target=client.lock(name).try_acquire, daemon=True).start()
    print("claimed", flush=True)
    sys.stdin.readline()
