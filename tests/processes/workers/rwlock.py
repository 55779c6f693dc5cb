"""Reads or writes "index" for an hour. Arguments: URL, read or write."""

import sys
import threading

import gripfast

url, how = sys.argv[1:]
rwlock = gripfast.connect(url).rwlock("index", ttl=3600)
print("begins")
lease = (rwlock.read() if how == "read" else rwlock.write()).acquire()
print("held")
threading.Event().wait()
