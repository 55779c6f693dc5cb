"""A set-up that all workers of a test run share: with real workers of pytest-xdist, one of them killed in the middle.

Every worker says that it asks before it asks, and whoever makes something waits until two have said so. So a run
without the lock makes it twice, each time.
"""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

import gripfast
from gripfast.testing import OncePerRun
from gripfast.testing.waiting import until
from testing.runs import Ended, run_pytest, write

CONFTEST = """
import os, signal
from pathlib import Path
import pytest
from gripfast.testing.waiting import until

HERE = Path(__file__).parent

def note(what):
    with open(HERE / "log", "a") as log:
        log.write(f"{what}\\n")

def notes():
    return (HERE / "log").read_text().split("\\n")

def make():
    until(lambda: notes().count("asked") >= WORKERS, within=60)
    note("begun")
    if KILLS and not os.path.exists(HERE / "killed"):
        (HERE / "killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    note("made")
    return {"number": notes().count("made")}

@pytest.fixture(scope="session")
def thing(once_per_run):
    note("asked")
    return once_per_run("thing", make, cleanup=lambda thing: note(f"cleaned {thing['number']}"))
"""

WITHOUT_THE_LOCK = """
@pytest.fixture(scope="session")
def once_per_run():
    return lambda name, make, cleanup: make()
"""

ANOTHER_WORKER = """
import sys
from gripfast.testing import OncePerRun
once = OncePerRun(sys.argv[1], "other")  # kept: it holds the lock of this worker
once("thing", lambda: "another")
print("ready", flush=True)
sys.stdin.read()
"""

TESTS = """
import pytest
from conftest import note

@pytest.mark.parametrize("number", range(12))
def test_it(thing, number):
    note("used")
    assert thing == {"number": 1}
"""


def run(folder: Path, workers: int, kills: bool = False, more: str = "", tests: str = TESTS) -> tuple[Ended, list[str]]:
    settings = f"WORKERS, KILLS = {max(1, workers)}, {kills}\n"
    write(folder, conftest=settings + CONFTEST + more, test_it=tests)
    ended = run_pytest(folder, *(["-n", str(workers)] if workers else []))
    return ended, (folder / "log").read_text(encoding="utf-8").split()


def test_one_worker_makes_it_and_all_use_it(tmp_path: Path) -> None:
    ended, log = run(tmp_path, workers=2)
    assert ended.counts == {"passed": 12}, ended.output
    assert (log.count("asked"), log.count("begun"), log.count("made"), log.count("used")) == (2, 1, 1, 12)
    assert log[-2:] == ["cleaned", "1"]


def test_without_the_lock_both_workers_make_it(tmp_path: Path) -> None:
    ended, log = run(tmp_path, workers=2, more=WITHOUT_THE_LOCK)
    assert log.count("made") == 2
    assert ended.counts.get("failed", 0) > 0, ended.output


def test_if_the_worker_that_makes_it_is_killed_another_one_makes_it(tmp_path: Path) -> None:
    ended, log = run(tmp_path, workers=2, kills=True)
    assert ended.counts == {"failed": 1, "passed": 11}, ended.output  # the test that the killed worker was in
    assert "crashed" in ended.output
    assert (log.count("begun"), log.count("made"), log.count("used")) == (2, 1, 11)
    assert log[-2:] == ["cleaned", "1"]
    assert log.count("cleaned") == 1


def test_it_works_without_xdist_and_each_run_makes_it_anew(tmp_path: Path) -> None:
    ended, log = run(tmp_path, workers=0)
    assert ended.counts == {"passed": 12}, ended.output
    assert (log.count("made"), log[-2:]) == (1, ["cleaned", "1"])
    _, log = run(tmp_path, workers=0)
    assert (log.count("made"), log.count("cleaned")) == (2, 2)


# -- without pytest ---------------------------------------------------------------------------------------------------


def test_nobody_cleans_up_while_another_worker_is_there(tmp_path: Path) -> None:
    """Nor does anybody wait for one that was killed."""
    done: list[str] = []
    mine = OncePerRun(tmp_path, "mine")
    assert mine("thing", lambda: "made", cleanup=done.append) == "made"
    command = [sys.executable, "-c", ANOTHER_WORKER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"ready\n"
        closing = threading.Thread(target=mine.close)
        closing.start()
        with gripfast.connect(f"sqlite:///{tmp_path}/locks.db") as client:
            until(lambda: any(info.waiters for info in client.list("worker:other")), within=60)
        assert done == []
        other.kill()
    closing.join(60)
    assert done == ["made"]


def test_what_another_worker_has_made_is_read(tmp_path: Path) -> None:
    first, second = OncePerRun(tmp_path, "first"), OncePerRun(tmp_path, "second")
    assert first("thing", lambda: [1, {"two": None}]) == [1, {"two": None}]
    assert second("thing", list) == [1, {"two": None}]
    assert second("another/thing", lambda: 2) == 2
    first.close()
    second.close()


def test_what_failed_is_tried_again(tmp_path: Path) -> None:
    once = OncePerRun(tmp_path)
    with pytest.raises(ZeroDivisionError):
        once("thing", lambda: 1 // 0)
    assert once("thing", lambda: 1) == 1
    once.close()


@pytest.mark.parametrize("result", [object(), (1, 2), {1: 2}, float("nan")])
def test_what_json_does_not_have_is_refused(tmp_path: Path, result: object) -> None:
    once = OncePerRun(tmp_path)
    with pytest.raises(gripfast.ConfigurationError, match="can't be passed to other workers"):
        once("thing", lambda: result)
    once.close()


def test_every_clean_up_is_tried(tmp_path: Path) -> None:
    done: list[int] = []
    once = OncePerRun(tmp_path)
    once("first", lambda: 1, cleanup=done.append)
    once("second", lambda: 0, cleanup=lambda number: 1 // number)
    once("third", lambda: 3, cleanup=done.append)
    with pytest.raises(ZeroDivisionError):
        once.close()
    assert done == [3, 1]
