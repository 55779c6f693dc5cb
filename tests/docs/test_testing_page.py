"""What docs/testing.md shows works as printed, and its tests fail if the code under test is wrong."""

import re
from pathlib import Path

import pytest

from support.pages import blocks, page
from testing.runs import run_pytest

PAGE = page("testing")
FILES = {block.split()[1]: block for block in blocks(PAGE, "py")}

WRONG = {
    "ignores the loss": ("                lease.ensure_held()\n", "", "test_it_stops_when_the_lock_is_lost"),
    "hides the loss": ('return f"lost: {lost.reason}"', 'return "sent"', "test_a_suspended_server_stops"),
    "goes on without the lock": (
        '''return f"busy: {busy.holder.label if busy.holder else 'somebody'}"''',
        '[send(customer) for customer in ("ann", "bob")]',
        "test_it_says_who_else_is_sending",
    ),
    "leaks the lease": (
        '        with gripfast.lock("reports").acquire(wait=10) as lease:\n            for',
        '        lease = send_reports.lease = gripfast.lock("reports").acquire(10)\n        if True:\n            for',
        "test_it_sends_all_reports",
    ),
    "holds no lock": (
        '        with gripfast.lock("reports").acquire(wait=10) as lease:\n',
        "        import unittest.mock\n        with unittest.mock.MagicMock() as lease:\n",
        "test_it_says_who_else_is_sending",
    ),
    "does not renew": ('gripfast.lock("reports")', 'gripfast.lock("reports", renew=False)', "test_slow_mail"),
    "gives up at once": ("wait=10", "wait=0", "test_a_short_outage_is_no_problem"),
}


def put(folder: Path) -> None:
    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="utf-8")


def test_the_tests_of_the_page_pass(tmp_path: Path) -> None:
    put(tmp_path)
    ended = run_pytest(tmp_path, "test_shop.py")
    assert ended.counts == {"passed": 7}, ended.output


@pytest.mark.parametrize("workers", [0, 2])
def test_the_database_of_the_page_is_made_once(tmp_path: Path, workers: int) -> None:
    """Twice would be an error: the table is there already."""
    put(tmp_path)
    ended = run_pytest(tmp_path, "test_database.py", *(["-n", str(workers)] if workers else []))
    assert ended.counts == {"passed": 4}, ended.output
    assert not (tmp_path / "shop.db").exists()


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What one test run says of all that is wrong: starting pytest takes longer than the tests."""
    folder = tmp_path_factory.mktemp("wrong")
    for number, (right, instead, _) in enumerate(WRONG.values()):
        assert FILES["shop.py"].count(right) == 1
        (folder / f"shop_{number}.py").write_text(FILES["shop.py"].replace(right, instead), encoding="utf-8")
        tests = FILES["test_shop.py"].replace("from shop import", f"from shop_{number} import")
        (folder / f"test_shop_{number}.py").write_text(tests, encoding="utf-8")
    return run_pytest(folder).output


@pytest.mark.parametrize("number", range(len(WRONG)), ids=list(WRONG))
def test_a_test_of_the_page_fails_if_the_code_is_wrong(judged: str, number: int) -> None:
    test = list(WRONG.values())[number][2]
    assert re.search(rf"^(FAILED|ERROR) test_shop_{number}.py::{test}", judged, re.MULTILINE), judged
