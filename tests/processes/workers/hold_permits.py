"""Holds permits of the semaphore "api" for an hour. Arguments: URL, limit."""

import sys
import threading

import gripfast

url, limit = sys.argv[1:]
lease = gripfast.connect(url).semaphore("api", int(limit), ttl=3600).acquire(int(limit))
print("held")
threading.Event().wait()
