"""The default client: $GRIPFAST_URL, else the embedded store in the state directory. Each case in a new process."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TAKE = """
import gripfast
with gripfast.lock("nightly") as lease:
    print(lease.held, lease.name)
"""

TAKE_BOTH_WAYS = """
import asyncio, gripfast
with gripfast.lock("nightly") as lease:
    print(lease.held, lease.name)
async def main():
    async with gripfast.async_lock("nightly") as lease:
        print(lease.held, lease.name)
asyncio.run(main())
asyncio.run(main())  # a client per event loop: the second loop is served as well
"""

TAKE_AWAITING = """
import asyncio, gripfast
async def main():
    async with gripfast.async_lock("nightly"): pass
asyncio.run(main())
"""

BOTH = """
import asyncio, gripfast
async def refused():
    return await gripfast.async_lock("nightly").try_acquire()
with gripfast.lock("nightly"):
    print(gripfast.lock("nightly").try_acquire(), asyncio.run(refused()))
"""

WARNED = """
import logging, gripfast
records = []
class Note(logging.Handler):
    def emit(self, record): records.append(record)
logging.getLogger("gripfast").addHandler(Note(logging.WARNING))
for name in ("one", "two"):
    with gripfast.lock(name): pass
for record in records:
    print(record.getMessage())
"""


def run(script: str, home: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run a script as a user with this home and nothing of Gripfast's in the environment but the settings."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("GRIPFAST", "XDG_", "INVOCATION_ID"))}
    environment = kept | {"HOME": str(home)} | settings
    command = [sys.executable, "-W", "error", "-c", script]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30, cwd=home, check=False)


def files_below(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file()]


def test_the_url_of_the_environment_is_used(tmp_path: Path) -> None:
    ran = run(TAKE_BOTH_WAYS, tmp_path, GRIPFAST_URL=f"sqlite:///{tmp_path}/here.db")
    assert (ran.returncode, ran.stdout) == (0, "True nightly\n" * 3), ran.stderr
    assert (tmp_path / "here.db").exists()
    assert not (tmp_path / ".local").exists()


def test_without_a_url_the_embedded_store_works_at_once(tmp_path: Path) -> None:
    state = tmp_path / "state"
    ran = run(TAKE_BOTH_WAYS, tmp_path, XDG_STATE_HOME=str(state))
    assert (ran.returncode, ran.stdout) == (0, "True nightly\n" * 3), ran.stderr
    assert files_below(state)
    assert files_below(tmp_path) == files_below(state)


def test_the_state_directory_is_below_the_home_unless_set(tmp_path: Path) -> None:
    ran = run(TAKE, tmp_path)
    assert (ran.returncode, ran.stdout) == (0, "True nightly\n"), ran.stderr
    assert files_below(tmp_path)


@pytest.mark.skipif(sys.platform == "win32", reason="no file modes")
def test_the_embedded_store_is_the_users_alone(tmp_path: Path) -> None:
    run(TAKE, tmp_path, XDG_STATE_HOME=str(tmp_path / "state"))
    assert {path.stat().st_mode & 0o777 for path in files_below(tmp_path)} == {0o600}


def test_both_colours_of_the_default_client_share_one_lock_space(tmp_path: Path) -> None:
    ran = run(BOTH, tmp_path)
    assert (ran.returncode, ran.stdout) == (0, "None None\n"), ran.stderr


@pytest.mark.parametrize("script", [TAKE, TAKE_AWAITING])
def test_the_fallback_can_be_refused(tmp_path: Path, script: str) -> None:
    ran = run(script, tmp_path, GRIPFAST_REQUIRE_URL="1")
    assert ran.returncode != 0
    assert "ConfigurationError" in ran.stderr
    assert "set GRIPFAST_URL, or pass a URL: in Python to connect(), in the shell with --url" in ran.stderr
    assert files_below(tmp_path) == []


def test_a_required_url_that_is_there_is_used(tmp_path: Path) -> None:
    ran = run(TAKE, tmp_path, GRIPFAST_REQUIRE_URL="1", GRIPFAST_URL="memory://here")
    assert (ran.returncode, ran.stdout) == (0, "True nightly\n"), ran.stderr


def test_a_bad_url_in_the_environment_is_told_without_its_password(tmp_path: Path) -> None:
    ran = run(TAKE, tmp_path, GRIPFAST_URL="gopher://user:hunter2@localhost")
    assert "ConfigurationError" in ran.stderr
    assert "hunter2" not in ran.stderr


def test_falling_back_under_a_service_manager_is_told_once_with_how_to_silence_it(tmp_path: Path) -> None:
    ran = run(WARNED, tmp_path, INVOCATION_ID="0" * 32)  # as systemd sets it
    told = re.fullmatch("GRIPFAST_URL is not set, .* to silence this line, set GRIPFAST_URL=(.*)\n", ran.stdout)
    assert told is not None, ran
    ran = run(WARNED, tmp_path, INVOCATION_ID="0" * 32, GRIPFAST_URL=told[1])
    assert (ran.returncode, ran.stdout) == (0, ""), ran.stderr


def test_connecting_without_a_target_is_the_default_store(tmp_path: Path) -> None:
    script = "import gripfast\nwith gripfast.connect() as client, client.lock('nightly') as lease: print(lease.held)"
    ran = run(script, tmp_path, GRIPFAST_URL=f"sqlite:///{tmp_path}/here.db")
    assert (ran.returncode, ran.stdout) == (0, "True\n"), ran.stderr
    assert (tmp_path / "here.db").exists()


def test_the_default_client_after_configure_is_not_that_of_connect_without_a_url_and_the_error_says_so(
    tmp_path: Path,
) -> None:
    script = """
import asyncio, gripfast
gripfast.configure("sqlite:///locks.db")
with gripfast.lock("nightly") as lease, gripfast.connect() as plain, gripfast.connect("sqlite:///locks.db") as same:
    print(plain.inspect("nightly"), same.inspect("nightly").token == lease.token)
async def main():
    for lock in (gripfast.lock, gripfast.async_lock):
        try:
            lock("nightly").locked()
        except AttributeError as error:
            print(error)
asyncio.run(main())
"""
    held, threads, tasks = run(f"import os; os.chdir({str(tmp_path)!r})\n{script}", tmp_path).stdout.splitlines()
    assert held == "None True"
    assert "gripfast.lock(), client is gripfast.connect(), with the arguments" in threads
    assert "gripfast.async_lock(), client is gripfast.connect_async(), with the arguments" in tasks
