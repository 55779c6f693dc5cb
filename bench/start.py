"""How long a process takes until it has something from Gripfast: what `import` costs, and what a shell command does.

Each run is an interpreter of its own. The least of a round counts: whatever else the machine does only adds to it.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bench.embedded import url as embedded
from bench.gripfast_pair import Address
from bench.redis.pair import url as served
from bench.redis.server import redis_server
from bench.scenario import Contestant, Place, Sample, Scenario

RUNS = (5, 1)
"""In a full and in a quick round."""

MILLISECONDS = "ms"
ALONE = "python alone"
DONE = "; import os; os.write(1, b'.')"

IMPORT = "import gripfast"
LEASE = "import gripfast; gripfast.connect({url!r}).lock('bench').acquire().release()"
RUN = (
    "import sys; sys.argv[1:] = ['run', '--url', {url!r}, 'bench', '--', 'true']; "
    "from gripfast.cli import main; sys.exit(main())"
)
"""As the installed script does it."""
REDIS_PY = (
    "import redis; lock = redis.Redis.from_url({url!r}).lock('redis-py', timeout=30); lock.acquire(); lock.release()"
)


def interpreter(name: str, code: str, address: Address = lambda _: "", needs: tuple[str, ...] = ()) -> Contestant:
    """From the start of a process until it says that it has done that, or has ended."""

    @contextmanager
    def opened(place: Place) -> Iterator[Callable[[], Sample]]:
        command = [sys.executable, "-c", code.format(url=address(place))]
        yield lambda: _least(command, place.size(*RUNS))

    return Contestant(name, opened, needs)


def _least(command: list[str], runs: int) -> Sample:
    before = _cpu_of_children()
    took = [_until_it_speaks(command) for _ in range(runs)]
    return {MILLISECONDS: min(took) * 1e3, "cpu ms": (_cpu_of_children() - before) / runs * 1e3}


def _until_it_speaks(command: list[str]) -> float:
    started = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=_compiling()) as process:
        assert process.stdout is not None
        process.stdout.read(1)
        took = time.perf_counter() - started
    if process.returncode:
        raise RuntimeError(f"exit status {process.returncode}: {command}")
    return took


def _compiling() -> dict[str, str]:
    """Modules are compiled once, not by every process."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


PYTHON = interpreter(ALONE, "import os; os.write(1, b'.')")

START_IMPORT = Scenario(
    name="start, import",
    about="from the start of an interpreter until gripfast is imported, beside the interpreter alone",
    contestants=(interpreter("gripfast import", IMPORT + DONE), PYTHON),
    figure=MILLISECONDS,
    against=ALONE,
)

START_EMBEDDED = Scenario(
    name="start, embedded",
    about="until a lock of the embedded store was acquired and released, and a whole `gripfast run`",
    contestants=(
        interpreter("gripfast first lease", LEASE + DONE, embedded),
        interpreter("gripfast run", RUN, embedded),
        PYTHON,
    ),
    figure=MILLISECONDS,
    against=ALONE,
)

START_REDIS = Scenario(
    name="start, redis",
    about="the same on Redis, beside redis-py's own lock",
    contestants=(
        interpreter("gripfast first lease", LEASE + DONE, served, ("redis",)),
        interpreter("gripfast run", RUN, served, ("redis",)),
        interpreter("redis-py Lock", REDIS_PY + DONE, served, ("redis",)),
        PYTHON,
    ),
    figure=MILLISECONDS,
    against=ALONE,
    server=redis_server,
)
