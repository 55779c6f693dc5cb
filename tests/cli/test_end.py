"""How a command's process ends: at once, but not before all that was to happen has happened."""

import subprocess
import sys

END = """
import atexit, sys, threading
{before}
from gripfast.cli import main
sys.argv[1:] = ["--url", "memory://", {arguments}]
sys.exit(main())
"""


def ended(before: str, arguments: str = "'ls', '--json'") -> subprocess.CompletedProcess[str]:
    code = END.format(before=before, arguments=arguments)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)


def test_what_was_registered_for_the_end_runs_and_is_written() -> None:
    done = ended("atexit.register(print, 'bye')")
    assert (done.returncode, done.stdout) == (0, "[]\nbye\n"), done.stderr


def test_a_thread_that_the_process_must_wait_for_is_waited_for() -> None:
    thread = "def late(): threading.main_thread().join(); print('late')\nthreading.Thread(target=late).start()"
    done = ended(thread)
    assert (done.returncode, done.stdout) == (0, "[]\nlate\n"), done.stderr


def test_the_status_is_that_of_the_command() -> None:
    assert ended("", "'show', 'nothing'").returncode == 66
    assert ended("", "'run', 'job', '--', 'false'").returncode == 1
    assert ended("", "'no-such-command'").returncode == 64
