"""What docs/embedded.md says of the file and of memory is what one finds there."""

import re
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import gripfast
from gripfast.runtime.parts import Patience
from gripfast.stores.memory.factory import MemoryFactory
from gripfast.stores.sqlite.factory import SqliteFactory
from support.pages import page
from support.waiting import until

PAGE = page("embedded")


def defaults() -> dict[str, str]:
    """First to second column of the table of options."""
    rows = PAGE.partition("\n| option |")[2].partition("\n\n")[0].splitlines()[2:]
    return {option.strip(" `"): default.strip(" `") for _, option, default, *_ in (row.split("|") for row in rows)}


def test_the_defaults_are_those_of_the_code() -> None:
    told = defaults()
    with gripfast.connect("sqlite:///locks.db") as client:
        assert client.lock("nightly").ttl == float(told["ttl"])
    assert SqliteFactory.request_timeout == float(told["request_timeout"])
    assert Patience(request_timeout=1.0).connect_patience == float(told["connect_patience"])


@pytest.mark.parametrize("option", defaults())
def test_the_option_is_known(option: str) -> None:
    value = {"prefix": "app:", "synchronous": "full"}.get(option, "9")
    gripfast.connect(f"sqlite:///locks.db?{option}={value}").close()


def test_the_options_of_memory_are_those_that_it_takes() -> None:
    told = re.findall("`(\\w+)`", PAGE.partition("It takes the options")[2].partition(".\n")[0])
    assert set(told) == set(defaults()) - {"synchronous"}
    assert MemoryFactory.request_timeout == SqliteFactory.request_timeout
    for option in told:
        gripfast.connect(f"memory://?{option}={'app:' if option == 'prefix' else 9}").close()


def test_the_default_is_the_file_that_the_page_names(home: Path) -> None:
    told = re.search("^\\| none \\| `~/(.*?)`", PAGE, re.MULTILINE)
    assert told is not None
    with gripfast.connect() as client:
        assert client.where == str(home / told[1])


def test_what_is_on_disk_is_what_the_page_names(tmp_path: Path, sqlite_url: str) -> None:
    told = {"locks.db"} | set(re.findall("`(locks\\.db-\\w+)`", PAGE))
    with gripfast.connect(sqlite_url) as client, ThreadPoolExecutor(1) as pool:
        with client.lock("x"):
            waiter = pool.submit(lambda: client.lock("x").acquire(wait=20).release())
            until(lambda: client.inspect("x").waiters)
            assert {path.name for path in tmp_path.iterdir()} == told
            assert stat.S_IMODE((tmp_path / "locks.db").stat().st_mode) == 0o600
            assert len(list((tmp_path / "locks.db-wake").iterdir())) == 1
        waiter.result()
