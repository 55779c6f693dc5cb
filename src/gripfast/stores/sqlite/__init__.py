"""The embedded store: one SQLite file on this machine, shared by its processes; the default if no engine is
configured."""
