"""`manage.py locks --break NAME`: who is asked, what is recorded, and whom it hits."""

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.core.management import CommandError, call_command
from django.test import override_settings

import gripfast
from contrib.django.bazaar_processes import Bazaar, sqlite_in
from contrib.django.test_admin_page import records
from gripfast.contrib.django import lock, locks
from support.waiting import until

ADA = {"user": "ada", "reason": "the host is gone"}


@pytest.fixture(autouse=True)
def stores() -> Iterator[None]:
    """New ones for each test: those of one name share their locks."""
    urls = {alias: {"URL": f"memory://{uuid4()}"} for alias in ("default", "other")}
    with override_settings(GRIPFAST=urls):
        yield


@pytest.fixture(autouse=True)
def ada() -> None:
    from django.contrib.auth.models import User

    User.objects.get_or_create(username="ada")
    records().all().delete()


def break_(name: str, **options: Any) -> str:
    out = io.StringIO()
    call_command("locks", break_name=name, stdout=out, no_color=True, **options)
    return out.getvalue()


class Typed(io.StringIO):
    """What somebody types at a terminal."""

    def __init__(self, text: str, before: Callable[[], object]) -> None:
        super().__init__(text)
        self._before = before

    def isatty(self) -> bool:
        return True

    def readline(self, *args: Any) -> str:  # type: ignore[override]
        self._before()
        return super().readline(*args)


def type_(monkeypatch: pytest.MonkeyPatch, text: str, before: Callable[[], object] = lambda: None) -> None:
    monkeypatch.setattr("sys.stdin", Typed(text, before))


def test_it_is_recorded_and_the_holder_is_told_who_and_why() -> None:
    lease = lock("nightly", label="by hand", ttl=0.5).acquire()
    told = break_("nightly", yes=True, **ADA)
    assert told.startswith("'nightly' is released; it was held by \"by hand\", pid ")
    until(lambda: not lease.held, within=30)
    with pytest.raises(gripfast.LeaseLost, match=r"the host is gone \(ada\)"):
        lease.ensure_held()
    (entry,) = records().all()
    assert (entry.user.username, entry.object_id, entry.object_repr) == ("ada", "nightly", "default: nightly")
    assert entry.change_message.startswith("broke the lock: pid ")
    assert entry.change_message.endswith(f"label by hand, token {lease.token}. Reason: the host is gone")


@pytest.mark.parametrize(("answer", "is_free"), [("y\n", True), ("n\n", False), ("\n", False), ("", False)])
def test_it_asks_first(
    answer: str, is_free: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lock("nightly", label="by hand").acquire().detach()
    type_(monkeypatch, answer)
    if is_free:
        break_("nightly", **ADA)
    else:
        with pytest.raises(CommandError, match="nothing was changed"):
            break_("nightly", **ADA)
    assert "may still be at work" in capsys.readouterr().out
    assert (locks["default"].inspect("nightly") is None, records().count()) == (is_free, int(is_free))


def test_without_a_terminal_it_needs_yes() -> None:
    with lock("nightly"):
        with pytest.raises(CommandError, match="--yes"):
            break_("nightly", **ADA)
        assert locks["default"].inspect("nightly") is not None


def test_who_came_after_the_question_keeps_the_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    first, later = lock("nightly").acquire(), []
    type_(monkeypatch, "y\n", lambda: (first.release(), later.append(lock("nightly").acquire())))
    with pytest.raises(CommandError, match="has changed"):
        break_("nightly", **ADA)
    later[0].ensure_held()
    (entry,) = records().all()
    assert entry.change_message.startswith("broke nothing of the lock")


def test_it_needs_somebody_whom_the_history_knows() -> None:
    with lock("nightly"):
        with pytest.raises(CommandError, match="--user"):
            break_("nightly", yes=True)
        with pytest.raises(CommandError, match="no user 'nobody'"):
            break_("nightly", yes=True, user="nobody")
        assert (locks["default"].inspect("nightly") is None, records().count()) == (False, 0)


def test_what_can_not_be_recorded_is_not_done(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(**_: object) -> None:
        raise OSError("the database is gone")

    monkeypatch.setattr(records(), "create", fails)
    with lock("nightly"):
        with pytest.raises(OSError, match="gone"):
            break_("nightly", yes=True, **ADA)
        assert locks["default"].inspect("nightly") is not None


def test_permits_and_other_stores() -> None:
    semaphore = locks["other"].semaphore("api", 2)
    kept, broken = semaphore.acquire(), semaphore.acquire()
    with pytest.raises(CommandError, match="there is a semaphore of that name: add --kind semaphore") as nobody:
        break_("api", using="other", yes=True, **ADA)
    assert nobody.value.returncode == 66
    break_("api", using="other", kind="semaphore", owner=broken.owner, yes=True, **ADA)
    info = locks["other"].inspect("api", "semaphore")
    assert [each.owner for each in info.holders] == [kept.owner]
    (entry,) = records().all()
    assert entry.object_repr == "other: api"
    with pytest.raises(CommandError, match="nobody holds 'api'"):
        break_("api", yes=True, **ADA)


def test_what_is_done_is_not_broken() -> None:
    with locks["default"].once("digest", keep=60) as run:
        assert run
    with pytest.raises(CommandError, match=r"forget\('digest'\)"):
        break_("digest", yes=True, **ADA)
    assert records().count() == 0


def test_options_of_a_break_alone_are_refused() -> None:
    with pytest.raises(CommandError, match="--user is for --break"):
        call_command("locks", user="ada")


def test_without_the_admin_it_is_in_the_log(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/locks.db"
    project = Bazaar(sqlite_in(tmp_path), {"default": {"URL": url}})
    with gripfast.connect(url) as client:
        client.lock("nightly").acquire().detach()
        printed = project.manage("locks", "--break", "nightly", "--yes", "--user", "ada", "--reason", "gone")
        assert "ada is about to break the lock 'nightly' of the store 'default': pid" in printed
        assert "'nightly' is released; it was held by pid" in printed
        assert client.inspect("nightly") is None
