"""Another program that locks the database file and sits on it."""

import sqlite3
import sys

connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN EXCLUSIVE")
print("locked")
sys.stdin.readline()
connection.execute("ROLLBACK")
print("unlocked")
