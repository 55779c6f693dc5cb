"""What a test run was told to ignore: nothing that its children should ignore, too.

A job in the background is started with SIGINT and SIGQUIT ignored, one under nohup with SIGHUP. A process that is
executed inherits that, and tests are about what signals do. A handler is not inherited: with one that does nothing the
run itself goes on ignoring the signal, and whatever it starts has the default.
"""

from __future__ import annotations

import signal

OF_PYTHON = {signal.SIGPIPE, signal.SIGXFSZ}
"""Ignored by the interpreter; `subprocess` gives the default back by itself."""


def pass_on_defaults() -> None:
    """SIGINT becomes a KeyboardInterrupt again, as tests that raise it in their own process expect."""
    for signum in signal.valid_signals() - OF_PYTHON:
        if signal.getsignal(signum) is signal.SIG_IGN:
            signal.signal(signum, signal.default_int_handler if signum == signal.SIGINT else lambda *_: None)
