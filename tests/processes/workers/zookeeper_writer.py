"""Writes the read/write lock "index" until it is killed. Arguments: URL, ttl."""

import sys
import threading

import gripfast

url, ttl = sys.argv[1:]
lease = gripfast.connect(url).rwlock("index", ttl=float(ttl)).write().acquire()
print("held")
threading.Event().wait()
