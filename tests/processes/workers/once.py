"""Does everything that is to be done once, in an order of its own, and writes down when it begins and when it is done.

Its wall clock is hours off: nothing that it believes about the time may decide.
"""

import os
import random
import sys
import time

_hours_off = random.uniform(-12, 12) * 3600
_time, _time_ns = time.time, time.time_ns
time.time = lambda: _time() + _hours_off
time.time_ns = lambda: _time_ns() + int(_hours_off * 1e9)

import gripfast  # noqa: E402 - behind the clock


def work() -> None:
    ends = time.monotonic() + 0.02
    while time.monotonic() < ends:
        pass


def main(number: str, url: str, journal: str, keys: str, shifts_clock: str) -> None:
    if shifts_clock == "0":
        time.time, time.time_ns = _time, _time_ns
    log = os.open(journal, os.O_WRONLY | os.O_APPEND)
    left = [f"key-{key}" for key in range(int(keys))]
    client = gripfast.connect(url)
    while left:
        random.shuffle(left)
        for key in list(left):
            with client.once(key, keep=600, ttl=1) as run:
                if run:
                    os.write(log, f"begun {key}\n".encode())
                    print("begun", key)
                    work()
            if run:
                os.write(log, f"done {key}\n".encode())
            if run or run.done:
                left.remove(key)
    print("finished")
    sys.stdin.readline()


main(*sys.argv[1:])
