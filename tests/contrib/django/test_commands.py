"""`manage.py locks`, `manage.py locked`, and commands whose `handle()` is decorated."""

import json
import os
import signal
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.core.management.base import BaseCommand
from django.http import HttpResponse
from django.test import override_settings

import gripfast
from contrib.django.bazaar_processes import Bazaar, sqlite_in
from gripfast import current_lease
from gripfast.contrib.django import lock, locked, locks
from support.waiting import until


@pytest.fixture
def project_of_its_own(tmp_path: Path) -> Bazaar:
    return Bazaar(sqlite_in(tmp_path), {"default": {"URL": f"sqlite:///{tmp_path}/locks.db"}})


def printed_by(*words: str, **options: Any) -> str:
    out = StringIO()
    call_command(*words, stdout=out, no_color=True, **options)
    return out.getvalue()


# -- locks -------------------------------------------------------------------------------------------------------------


def test_the_locks_of_all_stores_are_listed() -> None:
    with override_settings(GRIPFAST={"default": {"URL": "memory://a"}, "pg": {"DATABASE": "pg"}}):
        assert printed_by("locks").count("Nothing is held.") == 2
        with lock("nightly", label="by hand\x1b[2J"), lock("other", using="pg"):
            told = printed_by("locks")
            assert "default: memory://a" in told
            assert r"nightly  lock  by hand\x1b[2J" in told
            assert "other" in told
            only = printed_by("locks", using="pg", prefix="oth")
            assert ("nightly" in only, "other" in only) == (False, True)
            rows = json.loads(printed_by("locks", in_json=True, filter="BY nightly"))
            assert [row["name"] for row in rows["default"]["rows"]] == ["nightly"]
            assert rows["pg"]["rows"] == []


def test_a_store_that_can_not_count_its_waiters_says_so() -> None:
    with override_settings(GRIPFAST={"default": {"DATABASE": "pg"}}), lock("nightly"):
        told, in_json = printed_by("locks"), json.loads(printed_by("locks", in_json=True))
    assert "This store can't tell how many wait." in told
    assert told.splitlines()[2].split()[-2] == "?"
    assert in_json["default"]["rows"][0]["waiters"] is None


def test_a_store_that_can_not_be_reached_is_an_error_in_words() -> None:
    locks = {"default": {"URL": "redis://127.0.0.1:1/0", "OPTIONS": {"connect_patience": 0.1}}}
    with override_settings(GRIPFAST=locks), pytest.raises(CommandError, match="can't be reached"):
        printed_by("locks")


# -- locked ------------------------------------------------------------------------------------------------------------


def test_it_runs_a_command_of_the_project_or_a_program(project_of_its_own: Bazaar, tmp_path: Path) -> None:
    counter = tmp_path / "counter"
    counter.touch()
    printed = project_of_its_own.manage("locked", "nightly", "--wait", "5", "--", "count", str(counter), "--times", "2")
    assert "counted, with token " in printed
    assert "None" not in printed
    assert counter.read_text(encoding="utf-8") == "2"
    printed = project_of_its_own.manage("locked", "nightly", "--", "sh", "-c", "echo $GRIPFAST_NAME; exit 3", expect=3)
    assert printed == "nightly\n"


def test_a_busy_one_says_who_is_at_work_and_a_killed_one_leaves_the_lock_free(project_of_its_own: Bazaar) -> None:
    with project_of_its_own.start(
        "locked", "nightly", "--label", "first", "--", "sh", "-c", "echo begun; exec sleep 1000"
    ) as first:
        first.until_it_prints("begun")
        printed = project_of_its_own.manage("locked", "nightly", "--no-wait", "--", "true", expect=75)
        assert "'nightly' is held by \"first\", pid" in printed
        quiet = ("--no-wait", "-q", "--busy-exit-code", "7")
        assert project_of_its_own.manage("locked", "nightly", *quiet, "--", "true", expect=7) == ""
        first.kill()
        assert project_of_its_own.manage("locked", "nightly", "--wait", "60", "--", "echo", "second") == "second\n"


def test_two_at_the_same_time_lose_nothing(project_of_its_own: Bazaar, tmp_path: Path) -> None:
    """Each reads a number from a file and writes the next one."""
    counter, script = tmp_path / "counter", "read n < $0; sleep 0.01; echo $((n + 1)) > $0"
    counter.write_text("0\n", encoding="utf-8")
    loop = f"for i in 1 2 3 4 5 6 7 8 9 10; do {script}; done"
    both = [project_of_its_own.start("locked", "count", "-q", "--", "sh", "-c", loop, str(counter)) for _ in range(2)]
    for each in both:
        with each:
            each.ended()
    assert counter.read_text(encoding="utf-8") == "20\n"


def test_a_signal_is_passed_on_to_the_command(project_of_its_own: Bazaar) -> None:
    words = (
        "locked",
        "nightly",
        "--",
        "sh",
        "-c",
        "trap 'echo stopping; exit 5' TERM; echo begun; while :; do sleep 0.05; done",
    )
    with project_of_its_own.start(*words) as process:
        process.until_it_prints("begun")
        os.kill(process.pid, signal.SIGTERM)
        assert "stopping" in process.ended(expect=5)


def test_without_a_command_it_says_how_to_write_one() -> None:
    with pytest.raises(CommandError, match="after two dashes"):
        call_command("locked", "nightly")
    with pytest.raises(CommandError, match="'--wait': must be a duration like"):
        call_command("locked", "nightly", wait="soon", words=["true"])
    with pytest.raises(CommandError, match=r"--once needs --keep: .* Try: manage\.py locked --help"):
        call_command("locked", "nightly", once=True, words=["true"])


def test_it_takes_the_options_of_gripfast_run(project_of_its_own: Bazaar, tmp_path: Path) -> None:
    both = ("locked", "digest", "--once", "--keep", "1d", "--min-hold", "5", "--", "true")
    assert "Use --once or --min-hold, not both" in project_of_its_own.manage(*both, expect=64)
    once = ("locked", "digest", "--once", "--keep=1d", "--", "echo", "done")
    assert project_of_its_own.manage(*once) == "done\n"
    again = project_of_its_own.manage(*once, expect=79)
    assert "To have it done again: call locks['default'].forget('digest') in manage.py shell" in again
    slots = project_of_its_own.manage("locked", "api", "--limit", "2", "--", "sh", "-c", "echo $GRIPFAST_SLOTS")
    assert slots == "0\n"
    with gripfast.connect(f"sqlite:///{tmp_path}/locks.db") as client, client.rwlock("config").write():
        busy = project_of_its_own.manage("locked", "config", "--read", "--no-wait", "--", "true", expect=75)
    assert "'config' is held by" in busy


# -- the decorator -----------------------------------------------------------------------------------------------------


def _handled(busy: Any) -> type[BaseCommand]:
    class Nightly(BaseCommand):
        @locked("nightly", wait=0, busy=busy)
        def handle(self, **options: object) -> str:
            return "done"

    return Nightly


def test_a_status_is_refused_on_a_command_before_a_lock_is_taken() -> None:
    with pytest.raises(gripfast.ConfigurationError, match=r"busy=409\) on .*handle: a status, .* views: .*busy='skip'"):
        call_command(_handled(409)(), stdout=StringIO())


def test_a_command_that_would_return_a_response_says_what_to_write() -> None:
    command = _handled(lambda _: HttpResponse("busy", status=409))()
    call_command(command, stdout=StringIO())
    with lock("nightly"), pytest.raises(gripfast.ConfigurationError, match="made a response, which is for views"):
        call_command(command, stdout=StringIO())


def test_a_decorated_command_ends_with_a_message_if_the_lock_is_taken(tmp_path: Path) -> None:
    counter = tmp_path / "counter"
    counter.touch()
    with lock(f"count:{counter}"), pytest.raises(CommandError, match="not acquired in 0") as error:
        call_command("count_locked", str(counter))
    assert error.value.returncode == 75
    call_command("count_locked", str(counter), stdout=StringIO())
    assert counter.read_text(encoding="utf-8") == "1"


def test_a_decorated_command_whose_lock_is_broken_ends_with_a_message_and_the_code_of_a_loss(
    project_of_its_own: Bazaar, tmp_path: Path
) -> None:
    counter = tmp_path / "counter"
    counter.touch()
    with project_of_its_own.start("count_for_long", str(counter), "--times", "100000") as command:
        until(lambda: counter.read_text(encoding="utf-8") > "1", within=60)
        broken = ("--break", f"count:{counter}", "--yes", "--user", "ada", "--reason", "by mistake")
        project_of_its_own.manage("locks", *broken)
        printed = command.ended(expect=76)
    assert printed.startswith(f"lease on 'count:{counter}' lost (broken): ")
    assert "by mistake" in printed
    assert "stop the work that needs it" in printed
    assert "Traceback" not in printed


class Unlucky(BaseCommand):
    """Its lock is lost when its work is done."""

    @locked("nightly", wait=0)
    def handle(self, **options: Any) -> None:
        locks["default"].force_release("nightly")
        until(lambda: not current_lease().held, within=60)


def test_so_does_one_whose_loss_is_noticed_at_its_end() -> None:
    with override_settings(GRIPFAST={"default": {"URL": "memory://", "OPTIONS": {"ttl": 0.5}}}):
        with pytest.raises(CommandError, match="lost") as error:
            call_command(Unlucky())
        assert error.value.returncode == 76
        assert isinstance(error.value.__cause__, gripfast.LeaseLost)


class Nightly(BaseCommand):
    @locked("nightly", wait=0, busy="skip")
    def handle(self, **options: Any) -> str:
        return "done"


class AlsoNightly(BaseCommand):
    @locked("nightly", wait=0, busy=lambda error: None)
    def handle(self, **options: Any) -> str | None:
        return "done"


def streams_of(command: BaseCommand, **options: Any) -> tuple[str, str]:
    out, err = StringIO(), StringIO()
    call_command(command, stdout=out, stderr=err, no_color=True, **options)
    return out.getvalue(), err.getvalue()


def test_a_skipped_command_says_so_on_stderr() -> None:
    """Or the mail of cron is the same whether it ran or not."""
    with lock("nightly", label="by hand"):
        out, err = streams_of(Nightly())
        assert out == ""
        assert err.startswith("skipped: lock 'nightly' not acquired in 0")
        assert err.endswith("\n")
        assert "by hand" in err
        assert err.count("\n") == 1
        assert streams_of(Nightly(), verbosity=0) == ("", "")
        assert streams_of(AlsoNightly()) == ("", "")  # it decides by itself
    assert streams_of(Nightly()) == ("done\n", "")


def test_the_lock_of_a_killed_process_is_free_at_once(project_of_its_own: Bazaar, tmp_path: Path) -> None:
    with project_of_its_own.start("locked", "nightly", "--", "sh", "-c", "echo begun; exec sleep 1000") as first:
        first.until_it_prints("begun")
        with gripfast.connect(f"sqlite:///{tmp_path}/locks.db") as client:
            assert client.inspect("nightly") is not None
            first.kill()
            until(lambda: client.inspect("nightly") is None, within=30)


# -- Django's own ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [[], ["--all"]])
def test_djangos_dumpdata_works_although_the_model_has_no_table(words: list[str]) -> None:
    assert "gripfast.heldlock" not in printed_by("dumpdata", *words)


def test_djangos_makemigrations_finds_nothing_to_do() -> None:
    call_command("makemigrations", "gripfast", check_changes=True, dry_run=True, verbosity=0)
