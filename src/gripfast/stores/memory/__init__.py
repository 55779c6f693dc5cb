"""Locks in the memory of this process, first come first served; for tests and for code that may run without any
engine."""
