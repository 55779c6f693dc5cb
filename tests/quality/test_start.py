"""What a process loads, and when: a short script must not pay for what it does not use."""

import subprocess
import sys
from pathlib import Path

import pytest

import gripfast
from quality.test_layering import ENGINE_CLIENTS
from support.redis_server import shared_server

HEAVY = {
    "asyncio", "ast", "concurrent.futures", "ctypes", "dataclasses", "hashlib", "importlib.metadata", "inspect", "json",
    "logging", "multiprocessing", "pathlib", "platform", "random", "socket", "sqlite3", "ssl", "subprocess", "tempfile",
    "threading", "urllib.parse", "uuid",
}  # fmt: skip
"""What takes a millisecond or more to load, itself or with what it needs."""

FOR_OTHERS = ENGINE_CLIENTS | {
    "asyncio", "click", "concurrent.futures", "importlib.metadata", "multiprocessing", "platform", "ssl", "subprocess",
    "tempfile", "uuid", "gripfast.api.observing", "gripfast.api.within", "gripfast.cli", "gripfast.core.events",
    "gripfast.core.stories", "gripfast.runtime.observers",
}  # fmt: skip
"""Nothing that a lock for threads needs, unless it is taken, and nothing of another engine."""

BLOCKING = "import gripfast; client = gripfast.connect({url!r}); client.lock('n').acquire().release(); client.close()"


def modules_after(statement: str) -> set[str]:
    code = f"{statement}\nimport sys\nprint(*sys.modules)"
    command = [sys.executable, "-c", code]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


def loaded_by(statement: str) -> set[str]:
    return modules_after(statement) - modules_after("pass")


def test_importing_gripfast_loads_little() -> None:
    loaded = loaded_by("import gripfast")
    assert loaded & (HEAVY | FOR_OTHERS) == set()
    assert {name for name in loaded if name.startswith("gripfast")} == {"gripfast", "gripfast.errors"}


def test_importing_gripfast_starts_no_thread() -> None:
    code = "import gripfast, threading; assert threading.active_count() == 1"
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


@pytest.mark.parametrize("store", ["embedded", "memory"])
def test_a_lock_for_threads_loads_no_event_loop_and_no_other_engine(store: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/locks.db" if store == "embedded" else "memory://"
    gripfast.connect(url).lock("n").acquire().release()  # a name that is new to a file takes more
    loaded = loaded_by(BLOCKING.format(url=url))
    assert loaded & (FOR_OTHERS | {"hashlib", "socket"}) == set()
    assert "gripfast.api.client" in loaded


def test_a_plain_redis_url_loads_no_redis_py() -> None:
    """It takes longer to load than everything else together."""
    loaded = loaded_by(BLOCKING.format(url=shared_server().url))
    assert loaded & FOR_OTHERS == {"hiredis"}


def test_a_command_loads_no_other_command() -> None:
    run = "from gripfast.cli import main; assert main(['run', '--url', 'memory://', 'n', '--', 'true']) == 0"
    others = {
        "asyncio", "importlib.metadata", "shutil", "ssl", "subprocess", "click.shell_completion", "gripfast.fencing",
        "gripfast.cli.locks",
    }  # fmt: skip
    assert loaded_by(run) & others == set()


FIRST = """
import importlib, sys
import gripfast
for name in gripfast.__all__:
    for module in [each for each in sys.modules if each.startswith("gripfast")]:
        del sys.modules[module]
    gripfast = importlib.import_module("gripfast")
    assert name in dir(gripfast)
    assert getattr(gripfast, name) is vars(gripfast)[name]
"""


def test_every_public_name_can_be_the_first_that_is_used() -> None:
    subprocess.run([sys.executable, "-W", "error", "-c", FIRST], check=True)


def test_all_names_come_with_a_star() -> None:
    code = "from gripfast import *; import gripfast; assert set(gripfast.__all__) <= set(dir())"
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        gripfast.nothing  # type: ignore[attr-defined] # noqa: B018


def test_what_a_planted_statement_loads_is_seen() -> None:
    assert {"click", "gripfast.cli"} <= loaded_by("import gripfast.cli")
