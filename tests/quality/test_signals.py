"""Tests mean the same in the foreground, in the background and under nohup."""

import subprocess
import sys

from quality.tree import ROOT

CHILD = "import signal; print(*(signal.getsignal(each).name for each in (signal.SIGHUP, signal.SIGQUIT)))"
RUN = f"""
import os, signal, subprocess, sys
for each in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
    signal.signal(each, signal.SIG_IGN)
from support.signals import pass_on_defaults
pass_on_defaults()
signal.raise_signal(signal.SIGHUP)
try:
    signal.raise_signal(signal.SIGINT)
except KeyboardInterrupt:
    print("interrupted", flush=True)
subprocess.run([sys.executable, "-c", {CHILD!r}], check=True)
"""


def test_what_a_test_run_was_told_to_ignore_its_children_do_not_ignore() -> None:
    ran = subprocess.run([sys.executable, "-c", RUN], cwd=ROOT / "tests", capture_output=True, text=True, timeout=30)
    assert ran.stdout.splitlines() == ["interrupted", "SIG_DFL SIG_DFL"], ran.stderr
