"""`gripfast top` on a real terminal: what a person sees, and what keys and signals do."""

import os
import re
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

import gripfast
from cli.commandline import GRIPFAST, end, is_stopped
from cli.screen import Screen, on_screen
from cli.terminal import CTRL_C, CTRL_Z
from support.waiting import until

pytestmark = pytest.mark.usefixtures("url")
UP, DOWN, ESCAPE, ENTER = "\x1b[A", "\x1b[B", "\x1b", "\r"


@pytest.fixture(autouse=True)
def terminal_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)


@contextmanager
def top(*options: str, columns: int = 80, lines: int = 24) -> Iterator[Screen]:
    with on_screen(*GRIPFAST, "top", "--interval", "100ms", *options, columns=columns, lines=lines) as screen:
        screen.sees("gripfast top")
        yield screen


@pytest.fixture
def held(client: gripfast.Client) -> Iterator[gripfast.Client]:
    """A few of every kind; somebody waits for `nightly`."""
    waiter = threading.Thread(target=lambda: client.lock("nightly").acquire().release())
    with ExitStack() as stack:
        stack.callback(waiter.join)
        for name in ("deploy", "nightly", "report:7"):
            stack.enter_context(client.lock(name, label=f"the {name}").acquire())
        stack.enter_context(client.semaphore("api", limit=5).acquire(n=2))
        stack.enter_context(client.rwlock("config").write().acquire())
        waiter.start()
        until(lambda: client.inspect("nightly").waiters == 1)
        yield client


@pytest.mark.usefixtures("held")
def test_it_shows_what_is_held_by_whom_and_who_waits() -> None:
    with top() as screen:
        screen.sees(r"^5 held   1 waiting")
        screen.sees(rf"^▸nightly +lock +the nightly +\S+:{os.getpid()} +\S+ +\S+ +1 +0$")  # most waited for: first
        screen.sees(r"^ api +sem 2/5 ")
        screen.sees(r"^ config +write ")
        assert all(len(row) <= 80 for row in screen.rows())


def test_it_counts_entries(client: gripfast.Client) -> None:
    with top() as screen:
        screen.sees("Nothing is held")
        with client.lock("busy").acquire():
            screen.sees(r"^▸busy .* ≥\S+/s")
            screen.sees(r"≥\S+/s entries")


@pytest.mark.usefixtures("held")
def test_in_forty_columns_it_shows_what_matters_most() -> None:
    with top(columns=40, lines=12) as screen:
        screen.sees(r"^▸nightly .* 1 ")
        assert re.split(" +", screen.rows()[3].strip()) == ["NAME", "HOLDER", "HELD", "WAIT▾", "RATE"]
        assert screen.rows()[-1].endswith("? help  q quit")
        assert len(screen.rows()) == 12


@pytest.mark.usefixtures("held")
@pytest.mark.parametrize(("columns", "lines"), [(10, 24), (1, 1), (20, 3), (300, 60)])
def test_no_size_is_too_small_or_too_large(columns: int, lines: int) -> None:
    with on_screen(*GRIPFAST, "top", columns=columns, lines=lines) as screen:
        until(lambda: "".join(screen.rows()).strip(), within=20)
        screen.type(f"b{ESCAPE}")
        screen.resize(80, 24)
        screen.sees("^▸nightly")
        screen.type("q")
        assert screen.status() == 0


@pytest.mark.usefixtures("held")
def test_it_follows_the_size_of_the_terminal() -> None:
    with top() as screen:
        screen.sees("RATE")
        screen.resize(40, 10)
        screen.sees(r"^ NAME +HOLDER +HELD +WAIT▾ +RATE$")
        screen.resize(160, 30)
        screen.sees(r"TOKEN$")
        assert screen.rows()[-1].startswith("↵ show")


@pytest.mark.usefixtures("held")
def test_keys_sort_and_turn_the_order() -> None:
    with top("--sort", "name") as screen:
        screen.sees(r"NAME▾.*\n▸api .*\n config .*\n deploy")
        screen.type("r")
        screen.sees(r"NAME▴.*\n report:7 .*\n nightly")
        screen.type("<")
        screen.sees("RATE▾")
        screen.type("ss")
        screen.sees("KIND▾")


@pytest.mark.usefixtures("held")
def test_the_cursor_stays_on_its_row_when_the_order_changes() -> None:
    with top("--sort", "name") as screen:
        screen.sees("^▸api")
        screen.type(DOWN)
        screen.sees("^▸config")
        screen.type("r")
        screen.sees(r"NAME▴.*\n report:7 .*\n nightly .*\n deploy .*\n▸config")


@pytest.mark.usefixtures("held")
def test_a_filter_is_typed_kept_and_cleared() -> None:
    with top() as screen:
        screen.sees("nightly")
        screen.type("/REPORTx\x7f")
        screen.sees(r"^Filter: REPORT█")
        screen.sees("^▸report:7")
        screen.never_sees("^.nightly")
        screen.type(ENTER)
        screen.sees("1 matches “REPORT”")
        screen.type(ESCAPE)
        screen.sees("^.nightly")


@pytest.mark.usefixtures("held")
def test_one_is_looked_at_and_its_end_is_told(client: gripfast.Client) -> None:
    with top() as screen:
        screen.sees("^▸nightly")
        screen.type(ENTER)
        screen.sees("^label +the nightly$")
        screen.sees("^waiting +1$")
        screen.sees(f"^owner +{client.inspect('nightly').owner}$")
        screen.type(ESCAPE)
        screen.sees("^▸nightly")
        with client.lock("short").acquire():
            screen.type("/short" + ENTER)
            screen.sees("^▸short")
            screen.type(ENTER)
            screen.sees("^owner")
        screen.sees("Nobody holds it any more")


@pytest.mark.usefixtures("held")
def test_what_is_looked_at_is_seen_whole_in_forty_columns(client: gripfast.Client) -> None:
    with client.lock("n" * 50, label="l" * 50).acquire(), top("--filter", "nnnn", columns=40) as screen:
        screen.sees("^▸nnn")
        screen.type(ENTER)
        screen.sees("^owner")
        assert "".join(screen.rows()).count("n" * 40 + "n" * 10) == 1
        assert "".join(screen.rows()).replace(" ", "").count("l" * 50) == 1


@pytest.mark.usefixtures("held")
def test_breaking_asks_first(client: gripfast.Client) -> None:
    with top("--filter", "deploy") as screen:
        screen.sees("^▸deploy")
        screen.type("b")
        screen.sees("Release “deploy” by force")
        screen.sees('held by "the deploy", pid')
        screen.type("n")
        screen.sees("Nothing was changed")
        assert client.inspect("deploy") is not None


def test_breaking_releases_the_lock(client: gripfast.Client) -> None:
    lease = client.lock("deploy").acquire()
    with top() as screen:
        screen.sees("^▸deploy")
        screen.type("b")
        screen.sees("by force")
        screen.type("y")
        screen.sees("“deploy” is released by force")
        screen.sees("Nothing is held")
    assert client.inspect("deploy") is None
    with pytest.raises(gripfast.LeaseLost):
        lease.extend()


def test_whoever_came_after_the_question_keeps_the_lock(client: gripfast.Client) -> None:
    lease = client.lock("deploy").acquire()
    with top() as screen:
        screen.sees("^▸deploy")
        screen.type("pb")
        screen.sees("by force")
        lease.release()
        with client.lock("deploy").acquire() as later:
            screen.type("y")
            screen.sees("Nothing was changed: “deploy” is free, or has another holder by now")
            assert later.held


def test_one_holder_of_a_semaphore_can_be_broken(client: gripfast.Client) -> None:
    with client.semaphore("api", limit=3).acquire() as first:
        second = client.semaphore("api", limit=3).acquire()
        with top() as screen:
            screen.sees(r"^▸api +sem 2/3 .* \+1 ")
            screen.type(ENTER)
            screen.sees("^in use +2 of 3 permits")
            screen.sees("^▸0 ")
            screen.type(DOWN)
            screen.sees("^▸1 ")
            screen.type("b")
            screen.sees("by force")
            screen.type("y")
            screen.sees("^in use +1 of 3 permits")
        assert first.held
        with pytest.raises(gripfast.LeaseLost):
            second.extend()


def test_what_is_done_once_is_not_broken(client: gripfast.Client) -> None:
    with client.once("digest", keep=600) as run:
        assert run
    with top() as screen:
        screen.sees("^▸digest +done ")
        screen.type("b")
        screen.sees("recorded as done")
        screen.type("y")
    assert client.inspect("digest").kept == "done"


def test_nobody_is_at_work_while_a_name_is_kept(client: gripfast.Client) -> None:
    client.lock("sitemap", min_hold=600).acquire().release()
    with top() as screen:
        screen.sees("^▸sitemap +kept ")
        screen.type("b")
        screen.sees("It is held by nobody: released, but kept for its min_hold")
        screen.sees("although its min_hold is not over")
        screen.type("n")


@pytest.mark.usefixtures("held")
def test_a_paste_answers_no_question(client: gripfast.Client) -> None:
    with top("--filter", "deploy") as screen:
        screen.sees("^▸deploy")
        screen.type("\x1b[200~by\x1b[201~b")
        screen.sees("by force")
        screen.type("\x1b[200~y\x1b[201~")
        screen.sees("Nothing was changed")
    assert client.inspect("deploy") is not None


def test_a_pause_keeps_the_picture(client: gripfast.Client) -> None:
    with top() as screen:
        screen.sees("Nothing is held")
        screen.type("p")
        screen.sees("PAUSED")
        with client.lock("new").acquire():
            screen.type("h")
            screen.sees("RATE is how often")
            screen.type("x")
            screen.sees("Nothing is held")
            screen.type("u")  # one look, on demand
            screen.sees("^▸new")
            screen.type("p")
            screen.never_sees("PAUSED")


ATTACK = "\x1b[2J\x1b]0;pwned\x07\x1b[31m\x9b31m\r\n\x08\u202e"


def test_stored_escape_sequences_do_nothing(client: gripfast.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gripfast.machine.hostname", lambda: f"host{ATTACK}")
    with client.lock(f"evil{ATTACK}", label=f"label{ATTACK}").acquire(), top(columns=250) as screen:
        row = screen.sees("^▸evil.*$")[0]
        for what in ("evil", "label", "host"):
            assert what + r"\x1b[2J\x1b]0;pwned\x07\x1b[31m\x9b31m\r\n\x08\u202e" in row
        screen.type(ENTER)
        screen.sees(r"^owner")
        screen.type("b")
        screen.sees("by force")
        screen.type("n")
        screen.sees("Nothing was changed")
        screen.type("q/" + "evil\x1b[200~" + ATTACK + "\x1b[201~")
        screen.sees(r"Filter: evil\\x1b\[2J")
        written = screen.screen()
        assert "pwned\x07" not in written
        assert "\x1b[2J\x1b]" not in written
        assert not set("\x9b\x08\u202e") & set(written)
        assert screen.emulated().title == ""


def test_wide_characters_keep_the_columns(client: gripfast.Client) -> None:
    with client.lock("备份", label="夜间").acquire(), client.lock("plain", label="night").acquire():
        with top("--sort", "name") as screen:
            screen.sees("plain")
            rows = screen.emulated().buffer
            ends = [max(at for at in range(80) if rows[row][at].data.strip()) for row in (3, 4, 5)]
    assert ends[1] == ends[2] == ends[0]


@pytest.mark.parametrize(("leave", "status"), [("q", 0), (CTRL_C, 130)])
def test_the_terminal_is_restored(leave: str, status: int) -> None:
    with on_screen(*GRIPFAST, "top") as screen:
        before = screen.modes()
        screen.sees("Nothing is held")
        assert screen.modes() != before
        screen.type(leave)
        assert screen.status() == status
        assert screen.is_restored(before)


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_the_terminal_is_restored_after_a_signal(signum: int) -> None:
    with on_screen(*GRIPFAST, "top") as screen:
        before = screen.modes()
        screen.sees("Nothing is held")
        os.kill(screen.pid, signum)
        assert screen.status() == 128 + signum
        assert screen.is_restored(before)


CRASH = """
from gripfast.cli import main
from gripfast.cli.top.state import State

def press(self, key):
    raise ZeroDivisionError("planted")

State.press = press
main()
"""


def test_the_terminal_is_restored_after_an_exception() -> None:
    with on_screen(*GRIPFAST[:-2], "-c", CRASH, "top") as screen:
        before = screen.modes()
        screen.sees("Nothing is held")
        screen.type("x")
        assert screen.status() == 70
        assert "internal error, ZeroDivisionError: planted" in screen.screen()
        assert screen.modes() == before
        assert screen.screen().index("\x1b[?1049l") < screen.screen().index("internal error")


def test_it_stops_and_goes_on(client: gripfast.Client) -> None:
    with on_screen("bash", "--norc", "--noprofile", "-i") as screen:
        screen.type("PS1='shell> '; " + " ".join(GRIPFAST) + " top --interval 100ms\n")
        screen.sees("Nothing is held")
        while_up = screen.modes()
        screen.type(CTRL_Z)
        screen.sees(r"\[1\]\+ +Stopped")
        assert screen.modes() != while_up
        with client.lock("meanwhile").acquire():
            screen.type("fg\n")
            screen.sees("^▸meanwhile")
            assert screen.modes() == while_up
            screen.type("q")
        screen.sees("shell>")  # anywhere: the emulator has one screen only
        screen.type("echo back: $?\n")
        screen.sees("back: 0")


def test_it_goes_on_after_it_was_stopped_from_outside() -> None:
    with top() as screen:
        screen.sees("Nothing is held")
        os.kill(screen.pid, signal.SIGSTOP)
        until(lambda: is_stopped(screen.pid))
        os.kill(screen.pid, signal.SIGCONT)
        screen.type("?")
        screen.sees("RATE is how often")
        screen.type("xq")
        assert screen.status() == 0
        end(screen.pid)


def test_without_colours_it_has_none(held: gripfast.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    with top() as screen:
        screen.sees("^▸nightly")
        assert not re.search(r"\x1b\[[0-9;]*\b3[0-7]m", screen.screen())
