"""The plugin, in test runs of users: it is found by itself, and loads nothing until it is asked for something."""

import subprocess
import sys
from pathlib import Path

from testing.runs import run_pytest, write

USES = """
import asyncio
import gripfast

def test_each_test_has_a_world_of_its_own(gripfast_world, gripfast_client, gripfast_async_client, gripfast_clock):
    assert gripfast_client is gripfast_world.client
    assert gripfast_async_client is gripfast_world.async_client
    assert gripfast_clock is gripfast_world.clock
    gripfast_world.may_stay_held("job")
    test_each_test_has_a_world_of_its_own.lease = gripfast.lock("job").acquire()

def test_what_another_test_has_left_is_not_here(gripfast_world):
    assert gripfast_world.held() == []
    gripfast.lock("job").acquire(wait=0).release()

def test_an_async_client_works_in_any_loop(gripfast_async_client):
    async def main():
        async with gripfast_async_client.lock("job") as lease:
            assert lease.held
    asyncio.run(main())
"""

LEAKS = """
import gripfast

leases = []

def test_that_leaves_a_lock_held(gripfast_client):
    leases.append(gripfast_client.lock("job").acquire())

def test_that_drops_a_lease(gripfast_world):
    gripfast.lock("another").acquire()
"""

LOADS_LITTLE = """
import sys

def test_it():
    loaded = {name for name in sys.modules if name.startswith("gripfast")}
    assert loaded == {"gripfast", "gripfast.errors", "gripfast.testing", "gripfast.testing.pytest_plugin"}, loaded
    assert "sqlite3" not in sys.modules
"""


HAS_ANOTHER = """
import sys
import pytest

@pytest.fixture
def once_per_run():
    return 5

def test_it(once_per_run):
    assert once_per_run == 5
    assert "gripfast.testing.once" not in sys.modules
"""


def test_the_fixtures_are_found_by_themselves(tmp_path: Path) -> None:
    write(tmp_path, test_uses=USES)
    ended = run_pytest(tmp_path)
    assert ended.counts == {"passed": 3}, ended.output


def test_a_test_that_leaves_a_lock_held_fails_and_names_it(tmp_path: Path) -> None:
    write(tmp_path, test_leaks=LEAKS)
    ended = run_pytest(tmp_path)
    assert ended.counts == {"passed": 2, "error": 2}, ended.output
    assert "- 'job' is still held (it was acquired in" in ended.output
    assert "lease on 'another' was dropped" in ended.output


def test_a_run_that_does_not_use_it_loads_next_to_nothing(tmp_path: Path) -> None:
    write(tmp_path, test_loads=LOADS_LITTLE)
    ended = run_pytest(tmp_path)
    assert ended.counts == {"passed": 1}, ended.output


def test_a_fixture_of_somebody_elses_may_have_the_same_name(tmp_path: Path) -> None:
    write(tmp_path, test_another=HAS_ANOTHER)
    ended = run_pytest(tmp_path)
    assert ended.counts == {"passed": 1}, ended.output


def test_a_program_may_import_gripfast_before_it_starts_pytest(tmp_path: Path) -> None:
    """pytest would rewrite each package that has a plugin, and says so if it comes too late. It knows the package by
    the list of files of an installed wheel."""
    installed = tmp_path / "gripfast-9.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: gripfast\nVersion: 9\n")
    (installed / "entry_points.txt").write_text("[pytest11]\ngripfast = gripfast.testing.pytest_plugin\n")
    (installed / "RECORD").write_text("gripfast/__init__.py,,\ngripfast-9.dist-info/METADATA,,\n")
    main = "import gripfast, pytest\nraise SystemExit(pytest.main(['-W', 'error']))"
    write(tmp_path, test_it="def test_it(): pass", run=main)
    done = subprocess.run([sys.executable, "run.py"], cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_world_needs_no_pytest() -> None:
    code = "import sys; from gripfast.testing import World\nwith World(): assert 'pytest' not in sys.modules"
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)
