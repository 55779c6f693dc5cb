"""Benchmarks: each figure beside what it is compared with, from the same run. `python -m bench --help` tells how."""
