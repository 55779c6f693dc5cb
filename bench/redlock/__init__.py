"""Redlock on five nodes beside other libraries and five bare sockets; the benchmarks start the nodes themselves."""
