"""Standard streams that are closed, in all combinations: a command runs as if they were closed without us."""

import itertools
import subprocess

import pytest

from cli.commandline import GRIPFAST

pytestmark = pytest.mark.usefixtures("url")

COMBINATIONS = [set(each) for count in (1, 2, 3) for each in itertools.combinations(("<&-", ">&-", "2>&-"), count)]
CLOSED = pytest.mark.parametrize("closed", COMBINATIONS, ids=lambda closed: " ".join(sorted(closed)))

# Exits with 4 if its stdin is closed, 2 more if its stdout is, 1 more if its stderr is.
LOOK = "n=0; for i in 0 1 2; do n=$((n * 2)); [ -e /proc/$$/fd/$i ] || n=$((n + 1)); done; exit $n"
WORTH = {"<&-": 4, ">&-": 2, "2>&-": 1}


def gripfast_with(closed: set[str], *args: str) -> subprocess.CompletedProcess[str]:
    through = ["sh", "-c", f'exec "$@" {" ".join(closed)}', "sh"]
    return subprocess.run([*through, *GRIPFAST, *args], capture_output=True, text=True, timeout=30)


@CLOSED
def test_the_command_runs_with_the_same_streams_closed(closed: set[str]) -> None:
    ended = gripfast_with(closed, "run", "nightly", "--", "sh", "-c", LOOK)
    assert (ended.returncode, ended.stderr) == (sum(WORTH[each] for each in closed), "")


def test_what_goes_wrong_has_the_same_exit_code_with_everything_closed() -> None:
    everything = set(WORTH)
    assert gripfast_with(everything, "run", "nightly", "--", "no-such-command").returncode == 127
    assert gripfast_with(everything, "show", "nightly").returncode == 66
    assert gripfast_with(everything, "ls").returncode == 0
    assert gripfast_with(everything, "break", "--yes", "nightly").returncode == 66
