"""Rows: who holds what, since when, and how many wait."""

import json
import math
import os
import socket
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

import gripfast
from gripfast.api.rows import Holder, Order, Row, break_holders, look_up, matching, notes, ordered, row_of, scan
from gripfast.core.ports import RW_LIMIT
from support.waiting import until

NOW = datetime(2026, 11, 17, 12, 0, 0, tzinfo=UTC)


def held(name: str, ago: float = 10.0, *, expires: float = 20.0, waiters: int = 0, **who: object) -> Row:
    told = {"owner": "id", "token": 1, "label": None, "host": "vm", "pid": 7, "trace": None, **who}
    return row_of(
        gripfast.LockInfo(name, since=NOW - timedelta(seconds=ago), expires_in=expires, waiters=waiters, **told),  # type: ignore[arg-type]
        sees_waiters=True,
    )


@pytest.fixture
def client() -> Iterator[gripfast.Client]:
    with gripfast.connect("memory://") as client:
        yield client


def test_a_scan_finds_locks_semaphores_and_read_write_locks(client: gripfast.Client) -> None:
    with (
        client.lock("b", label="by hand").acquire() as lease,
        client.semaphore("a", limit=3).acquire(n=2),
        client.rwlock("b").read(),
    ):
        found = scan(client)
    assert [row.key for row in found.rows] == [("semaphore", "a"), ("lock", "b"), ("rwlock", "b")]
    permits, lock, shared = found.rows
    assert (permits.in_use, permits.limit, permits.slots) == (2, 3, (0, 1))
    assert (lock.token, lock.holders[0].label, lock.holders[0].pid) == (lease.token, "by hand", os.getpid())
    assert (shared.mode, shared.waiters) == ("read", 0)


def test_a_scan_picks_by_prefix(client: gripfast.Client) -> None:
    with client.lock("report:7").acquire(), client.lock("nightly").acquire():
        assert [row.name for row in scan(client, "report:").rows] == ["report:7"]


def test_a_scan_in_json_is_the_same_for_every_kind(client: gripfast.Client) -> None:
    with client.lock("a").acquire() as lease, client.rwlock("b").write():
        lock, shared = json.loads(json.dumps(scan(client).to_json()))["rows"]
    assert datetime.fromisoformat(lock["holders"][0].pop("since")).tzinfo is not None
    assert 0 < lock["holders"][0].pop("expires_in") <= 30
    who = {"owner": lease.owner, "token": lease.token, "label": None, "host": socket.gethostname(), "pid": os.getpid()}
    expected = {"kind": "lock", "name": "a", "waiters": 0, "entries_per_second": None}
    assert lock == expected | {"holders": [who | {"trace": None}]}
    assert (shared["mode"], shared["holders"][0]["mode"]) == ("write", "write")


def test_waiters_are_counted(client: gripfast.Client) -> None:
    with client.lock("a").acquire():
        thread = threading.Thread(target=lambda: client.lock("a").acquire().release())
        thread.start()
        until(lambda: scan(client).rows[0].waiters == 1)
    thread.join()


def test_a_store_that_lists_one_name_twice_has_one_row(
    client: gripfast.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gripfast.api.rows.listed", lambda *_: iter([held("a"), held("a", token=2)]))
    assert [row.token for row in scan(client).rows] == [2]


def test_what_a_store_can_not_show_is_said_in_words(client: gripfast.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gripfast.api.base.AnyClient.capabilities", gripfast.Capabilities(processes=True))
    found = scan(client)
    assert not found.rows
    assert [words.split(" ")[3] for words in found.notes] == ["list", "tell"]
    assert notes(gripfast.Capabilities(lists=True, waiters_seen=True, processes=True)) == []


def test_who_waits_is_unknown_if_the_store_does_not_see_it(
    client: gripfast.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gripfast.api.base.AnyClient.capabilities", gripfast.Capabilities(lists=True, processes=True))
    with client.lock("a").acquire():
        assert [row.waiters for row in scan(client).rows] == [None]


def test_a_lock_of_other_software_and_a_kept_name_are_told_apart() -> None:
    foreign = gripfast.LockInfo("job", "their id", 0, None, "", 0, None, math.inf, 0)
    told = row_of(foreign, True).holders[0].to_json()
    assert (row_of(foreign, True).holders[0].state, told["since"], told["expires_in"]) == ("foreign", None, None)
    assert held("a", owner="done:id").holders[0].to_json()["kept"] == "done"
    assert held("a", owner="kept:id").holders[0].state == "min_hold"
    assert "kept" not in held("a").holders[0].to_json()


def test_a_row_of_several_holders_tells_the_first_and_the_last() -> None:
    first = Holder("x", 3, None, "vm", 1, NOW - timedelta(seconds=9), 20.0, n=1, slots=(2,))
    second = Holder("y", 5, None, "vm", 2, NOW - timedelta(seconds=4), 8.0, n=2, slots=(0, 1))
    row = Row("semaphore", "a", (first, second), 0, 4)
    assert (row.in_use, row.slots, row.token) == (3, (0, 1, 2), 5)
    assert (row.since, row.expires_in) == (first.since, 8.0)
    assert Row("rwlock", "a", (Holder("x", 3, None, "vm", 1, NOW, 20.0, n=RW_LIMIT),), 0, RW_LIMIT).mode == "write"


@pytest.mark.parametrize(
    ("by", "names"),
    [("name", "abc"), ("held", "cab"), ("expires", "bca"), ("waiting", "bac"), ("rate", "abc"), ("host", "bca")],
)
def test_what_needs_attention_comes_first(by: Order, names: str) -> None:
    rows = [
        held("b", ago=1, expires=1, waiters=5, host="h1"),
        held("a", ago=10, expires=30, waiters=1, host="h3"),
        held("c", ago=99, expires=20, host="h2"),
    ]
    assert "".join(row.name for row in ordered(rows, by)) == names
    assert "".join(row.name for row in ordered(rows, by, backwards=True)) == names[::-1]


@pytest.mark.parametrize(
    ("text", "names"), [("", "ab"), ("WEB-1", "a"), ("backup web", "a"), ("77", "b"), ("lock", "ab"), ("nobody", "")]
)
def test_a_filter_looks_for_every_word_in_all_texts(text: str, names: str) -> None:
    rows = [held("a", host="web-1", label="Backup"), held("b", host="web-2", pid=77)]
    assert "".join(row.name for row in matching(rows, text)) == names


def test_a_broken_lock_is_free(client: gripfast.Client) -> None:
    lease = client.lock("a").acquire()
    row = look_up(client, "lock", "a")
    assert row is not None
    assert break_holders(client, row) == row.holders
    assert look_up(client, "lock", "a") is None
    assert break_holders(client, row) == ()
    with pytest.raises(gripfast.LeaseLost):
        lease.extend()


def test_who_came_later_keeps_the_lock(client: gripfast.Client) -> None:
    with client.lock("a").acquire():
        row = look_up(client, "lock", "a")
    with client.lock("a").acquire() as later:
        assert row is not None
        assert break_holders(client, row) == ()
        assert later.held


def test_of_permits_only_those_of_the_row_are_broken(client: gripfast.Client) -> None:
    earlier = client.semaphore("a", limit=2).acquire()
    row = look_up(client, "semaphore", "a")
    with client.semaphore("a", limit=2).acquire() as later:
        assert row is not None
        assert len(break_holders(client, row)) == 1
        assert later.held
        assert [each.owner for each in scan(client).rows[0].holders] == [later.owner]
    with pytest.raises(gripfast.LeaseLost):
        earlier.extend()
