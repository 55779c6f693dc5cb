"""What docs/testing.md shows works as printed, and its tests fail if the code under test is wrong."""

import re
from pathlib import Path

import pytest

from support.pages import blocks, page
from testing.runs import run_pytest, write

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


# The table of what one tests and writes -------------------------------------------------------------------------------

APP = """
import gripfast
from celery import Celery
from gripfast.contrib.celery import LockedTask

client = gripfast.connect("sqlite:///never.db")
tasks = Celery("shop")


@tasks.task(base=LockedTask, lock="report:{user_id}", busy="skip", client=client)
def report(user_id):
    return "made"


def call(kind):
    try:
        with {"api": client.semaphore("api", limit=3, wait=0), "read": client.rwlock("index", wait=0).read(),
              "write": client.rwlock("index", wait=0).write()}[kind]:
            return "done"
    except gripfast.LockTimeout:
        return "busy"


def digest():
    with client.once("digest", keep=60) as run:
        return "sent" if run else "done before" if run.done else "busy"
"""
KINDS = """
import django
import gripfast
import pytest
from django.conf import settings
from django.test import override_settings

import app

settings.configure(INSTALLED_APPS=["gripfast.contrib.django"], USE_TZ=True)
django.setup()
from django.core.management.base import BaseCommand
from gripfast.contrib.django import locked, locks


class Nightly(BaseCommand):
    @locked("nightly", wait=0, busy="skip")
    def handle(self, *args, **options):
        return "ran"


@pytest.fixture
def world(gripfast_world):
    gripfast_world.redirect(app.client)
    return gripfast_world


@pytest.fixture
def other(world):
    with gripfast.connect(world.url) as other:
        yield other


def test_lock(world):
    with world.hold("reports"):
        assert app.client.lock("reports").try_acquire() is None
    lease = app.client.lock("reports").acquire()
    world.lose("reports", "expired")
    assert not lease.held


def test_semaphore(world, other):
    with other.semaphore("api", limit=3).acquire(3):
        assert app.call("api") == "busy"
    assert app.call("api") == "done"


def test_read_write_lock(world, other):
    with other.rwlock("index").write():
        assert app.call("read") == "busy"
    with other.rwlock("index").read():
        assert (app.call("read"), app.call("write")) == ("done", "busy")
    assert app.call("write") == "done"


def test_once_busy(world):
    with world.hold("digest"):
        assert app.digest() == "busy"
    assert app.digest() == "sent"


def test_once_done(world, other):
    with other.once("digest", keep=60) as run:
        assert run
    assert app.digest() == "done before"
    world.clock.advance(61)
    assert app.digest() == "sent"


@pytest.mark.parametrize("reason", ["expired", "broken", "session", "max_hold"])
def test_the_name_is_free_after_it(world, reason):
    lease = app.client.lock("x").acquire()
    world.lose("x", reason)
    assert not lease.held
    app.client.lock("x").acquire(wait=0).release()


def test_taken(world):
    lease = app.client.lock("reports").acquire()
    world.lose("reports", "taken")
    world.clock.advance(86400)
    assert not lease.held
    with pytest.raises(gripfast.LockTimeout):
        app.client.lock("reports").acquire(wait=0)


def test_election(world):
    terms = []

    def lead(term):
        terms.append(term)
        if len(terms) == 1:
            world.lose("scheduler", "broken")
            term.ensure_held()
        return "end"

    with world.clock.fast_forward():
        assert app.client.election("scheduler").run(lead) == "end"
    assert len(terms) == 2


def test_election_of_another(world):
    with world.hold("scheduler", label="host-2"):
        assert app.client.election("scheduler").leader().value == "host-2"
        assert app.client.election("scheduler").try_lead() is None


def test_django(world):
    with override_settings(GRIPFAST={"default": {"URL": world.url}}):
        with world.hold("nightly"):
            assert Nightly().handle(verbosity=0) is None
        assert Nightly().handle(verbosity=0) == "ran"


def test_django_redirect(world):
    world.redirect(locks["default"])
    with world.hold("nightly"):
        assert Nightly().handle(verbosity=0) is None
    assert Nightly().handle(verbosity=0) == "ran"


def test_celery(world):
    with world.hold("report:7"):
        assert app.report(7) is None
    assert app.report(7) == "made"
    with world.hold("report:7"):
        assert app.report.apply([7]).get() is None
"""


def written() -> list[str]:
    table = PAGE.partition("\n| you test |")[2].partition("\n\n")[0].splitlines()[2:]
    return [code for row in table for code in re.findall("`([^`]+)`", row.split(" | ")[1])]


@pytest.mark.parametrize("code", [code for code in written() if "world." in code or "other." in code])
def test_what_the_table_says_to_write_is_in_a_test(code: str) -> None:
    needed = code.removeprefix("with ").removesuffix(":")
    assert needed.replace("world.redirect(client)", "world.redirect(app.client)") in KINDS, code


def test_what_the_table_says_to_write_does_what_it_says(tmp_path: Path) -> None:
    write(tmp_path, app=APP, test_kinds=KINDS)
    ended = run_pytest(tmp_path)
    assert ended.counts == {"passed": KINDS.count("def test_") + 3}, ended.output
