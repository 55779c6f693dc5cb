"""A command for tests: writes down the signals it gets and when, and ends only by those it was told to end by.

puppet.py LOG [SIGNAL…]      exits with 40 on one of these; logs "ready PID", then "SIGNAL MOMENT" for each one
"""

import os
import signal
import sys
import time

HEARD = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU}


def main(log: str, *ends: str) -> int:
    signal.pthread_sigmask(signal.SIG_BLOCK, HEARD)
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, f"ready {os.getpid()}\n".encode())
    while True:
        name = signal.Signals(signal.sigwaitinfo(HEARD).si_signo).name
        os.write(file, f"{name} {time.monotonic()}\n".encode())
        if name in ends:
            return 40


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
