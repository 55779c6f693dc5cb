"""What the store does when requests are late, keys are touched by others, and clusters are not what they were."""

import shutil
import threading
import uuid
from pathlib import Path
from typing import Any

import pytest

import gripfast
from gripfast.core.ports import Claim, Granted, Hold, Unreachable
from gripfast.runtime.blocking import drive
from gripfast.stores.etcd import inspection, protocol
from gripfast.stores.etcd.leases import Lease, whole
from gripfast.stores.etcd.permits import LIMIT_KEPT
from stores import etcd_stage
from stores.etcd_stage import SOON, keys_below
from support.etcd_servers import EtcdServer, Trio, etcd_server, url_of
from support.ports import closed_port
from support.server_process import HOST
from support.waiting import until

client, root = etcd_stage.client, etcd_stage.root


def store_of(client: gripfast.Client) -> Any:
    return client._store()


# -- late requests -----------------------------------------------------------------------------------------------------


def test_a_renewal_that_arrives_late_does_not_move_the_key_back(client: gripfast.Client) -> None:
    """With the create revision alone it would: the key would die with an old lease, and its holder would believe."""
    lease = client.lock("job", ttl=20, renew=False).acquire()
    store = store_of(client)
    record = store.records[lease.owner]
    late = protocol.move(record.place, record.held(20), record.lease.id)
    lease.extend()
    assert record.lease.id != late.success[0].lease
    answer = drive(store.requests.ask(late, store.requests.until()))
    assert not answer.succeeded
    assert answer.responses[0].kvs[0].lease == record.lease.id


def test_a_claim_that_is_repeated_keeps_its_token(client: gripfast.Client) -> None:
    store = store_of(client)
    claim = Claim("job", "0" * 32, 20.0, None, None)
    first: Any = drive(store.claim(claim))
    store.records.clear()  # as if the answer had been lost
    again: Any = drive(store.claim(claim))
    assert again.token == first.token


def test_a_claim_without_an_answer_that_lands_after_the_release_is_cleaned_up(
    client: gripfast.Client, root: str
) -> None:
    store = store_of(client)
    lease = client.lock("job").acquire()
    record = store.records[lease.owner]
    late = protocol.claim(record.queue, record.key, record.value(), None, record.lease.id)
    record.is_late, record.late_until = True, record.lease.ends
    lease.release()
    assert drive(store.requests.ask(late, store.requests.until())).succeeded
    until(lambda: not keys_below(f"{root}job/"), within=SOON)


def test_a_lease_that_expired_at_the_server_costs_a_claim_only_a_round_trip(client: gripfast.Client) -> None:
    client.lock("job").acquire().release()
    requests = store_of(client).requests
    lease: Lease = requests.leases._current[30]
    etcd_server().ctl("lease", "revoke", f"{lease.id:x}")
    answer = drive(store_of(client).claim(Claim("job", "0" * 32, 30.0, None, None)))
    assert isinstance(answer, Granted)
    assert requests.leases._current[30].id != lease.id


def test_a_lease_of_a_limit_that_expired_at_the_server_keeps_no_permits_back(client: gripfast.Client) -> None:
    """Somebody has revoked it, say. It would have been used for more than an hour."""
    semaphore = client.semaphore("api", limit=2)
    for use in (lambda: semaphore.acquire(wait=1).release(), lambda: semaphore.resize(3)):
        semaphore.acquire().release()
        lease: Lease = store_of(client).requests.leases._current[whole(LIMIT_KEPT)]
        etcd_server().ctl("lease", "revoke", f"{lease.id:x}")
        use()


# -- what others do ----------------------------------------------------------------------------------------------------


def test_a_key_that_somebody_deletes_is_a_broken_lease(client: gripfast.Client, root: str) -> None:
    lease = client.lock("job").acquire()
    etcd_server().ctl("del", f"{root}job/{lease.owner}")
    with pytest.raises(gripfast.LeaseLost) as caught:
        lease.extend()
    assert caught.value.reason == "broken"


def test_nothing_is_remembered_of_a_lease_that_was_lost(client: gripfast.Client) -> None:
    lease = client.lock("job").acquire()
    client.force_release("job")
    with pytest.raises(gripfast.LeaseLost):
        lease.release()
    assert not store_of(client).records


@pytest.mark.parametrize("way", ["lock", "semaphore"])
def test_nothing_is_remembered_of_a_claim_that_was_refused(way: str) -> None:
    with EtcdServer("--max-request-bytes=600") as server, gripfast.connect(server.lock_space()) as client:
        options = {} if way == "lock" else {"limit": 2}
        for _ in range(3):
            with pytest.raises(gripfast.StoreUnavailable, match="takes no request as large"):
                getattr(client, way)("job", label="x" * 2000, **options).try_acquire()
        assert not store_of(client).records


def test_a_lease_that_is_revoked_takes_no_key_that_was_renewed(client: gripfast.Client) -> None:
    """As a leader does that was replaced, when it returns."""
    lease = client.lock("job", ttl=20).acquire()
    before = store_of(client).records[lease.owner].lease.id
    lease.extend()
    etcd_server().ctl("lease", "revoke", f"{before:x}")
    lease.extend()
    assert lease.held


def test_values_that_make_no_sense_do_no_harm(client: gripfast.Client, root: str) -> None:
    for number, value in enumerate(["", "[]", "{", '{"owner": 7, "token": "x", "since": [], "ttl": {}}', "1e999"]):
        etcd_server().ctl("put", f"{root}odd{number}/stranger", value)
        info = client.inspect(f"odd{number}")
        assert info is not None
        assert info.owner == "stranger"
        assert client.lock(f"odd{number}").try_acquire() is None
        assert client.force_release(f"odd{number}") is True


def test_a_compaction_makes_no_waiter_wait_for_ever(client: gripfast.Client) -> None:
    lease = client.lock("job").acquire()
    got: list[gripfast.Lease] = []
    waiting = threading.Thread(target=lambda: got.append(client.lock("job", ttl=3).acquire(wait=30)))
    waiting.start()
    until(lambda: (info := client.inspect("job")) is not None and info.waiters == 1, within=SOON)
    etcd_server().ctl("compaction", str(store_of(client).requests.cluster.revision), "--physical")
    lease.release()
    waiting.join(SOON)
    assert got[0].held
    got[0].release()


def test_125_leases_and_more_are_renewed_at_once_and_one_that_is_gone_costs_no_other(client: gripfast.Client) -> None:
    leases = [client.lock(f"job{number}", ttl=60).acquire() for number in range(130)]
    client.force_release("job7")
    holds = [Hold(f"job{number}", lease.owner, 60.0) for number, lease in enumerate(leases)]
    answers = drive(store_of(client).renew(holds))
    assert [answer for answer in answers if answer is not None] == ["broken"]
    assert answers[7] == "broken"


def test_leases_with_long_names_and_labels_are_renewed_at_once(client: gripfast.Client) -> None:
    """A hundred of them together are more than a member takes in one request."""
    labels, names = ["\x01" * 4096, "x" * 4096], [f"{number:03}" + "/" * 509 for number in range(100)]
    locks = [client.lock(name, ttl=60, label=labels[number % 2], renew=False) for number, name in enumerate(names)]
    leases = [lock.acquire() for lock in locks]
    holds = [Hold(lease.name, lease.owner, 60.0) for lease in leases]
    assert drive(store_of(client).renew(holds)) == [None] * len(holds)
    assert drive(store_of(client).abandon(holds)) == [None] * len(holds)


def test_what_is_refused_together_is_tried_one_by_one() -> None:
    """One of them may be the reason: too large, or forbidden by now. That costs no other."""
    with EtcdServer("--max-request-bytes=1500") as server, gripfast.connect(server.lock_space()) as client:
        leases = [client.lock(f"job{number}", renew=False).acquire() for number in range(20)]
        holds = [Hold(lease.name, lease.owner, 60.0) for lease in leases]
        store_of(client).records[leases[-1].owner].found["label"] = "x" * 1500
        *answers, refused = drive(store_of(client).renew(holds))
        assert answers == [None] * (len(holds) - 1)
        assert isinstance(refused, Unreachable)
        assert drive(store_of(client).abandon(holds)) == [None] * len(holds)


# -- clusters ----------------------------------------------------------------------------------------------------------


def test_a_restored_backup_ends_all_leases(tmp_path: Path) -> None:
    """Even those whose keys are in it: others may have been granted since then, and will be again."""
    with EtcdServer() as server, gripfast.connect(server.url_with(), ttl=60) as client:
        lease = client.lock("job").acquire()
        server.stop()
        shutil.copytree(server.folder / "data", tmp_path / "backup")
        server.restart()
        until(lambda: _extends(lease) == "renewed", within=20)
        for number in range(10):
            server.ctl("put", "padding", str(number))
        lease.extend()
        server.kill()
        shutil.rmtree(server.folder / "data")
        shutil.copytree(tmp_path / "backup", server.folder / "data")
        server.restart()
        answers: list[str] = []
        until(lambda: answers.append(_extends(lease)) or answers[-1] == "session", within=20)
        assert set(answers) <= {"unavailable", "session"}
        assert not lease.held
        client.force_release("job")
        with client.lock("job") as again:
            assert again.held


@pytest.mark.parametrize("min_hold", [None, 50.0])
def test_a_release_that_meets_a_restored_backup_was_not_released_by_force(
    client: gripfast.Client, root: str, min_hold: float | None
) -> None:
    """The backup is older than the lease. The cluster of this test has lost its key, and is behind what was seen."""
    lease = client.lock("job", renew=False, min_hold=min_hold).acquire()
    etcd_server().ctl("del", f"{root}job/", "--prefix")
    store_of(client).requests.cluster.revision += 1_000_000
    with pytest.raises(gripfast.LeaseLost) as lost:
        lease.release()
    assert lost.value.reason == "session"


def _extends(lease: gripfast.Lease) -> str:
    try:
        lease.extend()
    except gripfast.LeaseLost as lost:
        return lost.reason
    except gripfast.StoreUnavailable:
        return "unavailable"
    return "renewed"


def test_a_stopped_member_is_left_and_its_lease_goes_on() -> None:
    with Trio() as trio, gripfast.connect(trio.lock_space(ttl=4)) as client:
        with client.lock("job") as lease:
            members = store_of(client).requests.link.members
            member = next(each for each in trio.servers if each.address == members.current)
            member.pause()
            try:
                until(lambda: members.current != member.address, within=10)
                lease.extend()
                client.lock("another").acquire(wait=10).release()
                assert lease.held
            finally:
                member.resume()
        assert client.inspect("job") is None


def test_a_member_that_is_named_twice_does_not_hide_the_others(root: str) -> None:
    down = f"{HOST}:{closed_port()}"
    with gripfast.connect(url_of([down, down, etcd_server().address], root=root)) as client:
        assert client.lock("job").try_acquire() is not None


# -- what was left to somebody else ------------------------------------------------------------------------------------


def test_a_renewal_under_way_does_not_overwrite_the_marker_of_a_kept_release(client: gripfast.Client) -> None:
    """The renewal finds another mod revision, and must not take that for a late request of its own."""
    store = store_of(client)
    lease = client.lock("job", ttl=20, renew=False, min_hold=600).acquire()
    record = store.records[lease.owner]
    lease.release()
    store.records[lease.owner] = record
    assert drive(store.renew([Hold("job", lease.owner, 20.0)])) == ["broken"]
    info = client.inspect("job")
    assert info is not None
    assert info.kept == "min_hold"


def test_a_clean_up_leaves_the_record_of_what_is_done(client: gripfast.Client) -> None:
    store = store_of(client)
    with client.once("job", keep=600) as run:
        assert run
        ((owner, record),) = store.records.items()
    for known in (record, None):
        store.records.clear()
        if known is not None:
            store.records[owner] = known
        assert drive(store.abandon([Hold("job", owner, 30.0)])) == [None]
        info = client.inspect("job")
        assert info is not None
        assert info.kept == "done"


def test_of_two_that_adopt_in_one_client_one_gets_it(client: gripfast.Client) -> None:
    """Both put the key under the same lease of etcd's: that tells nothing about who did."""
    store = store_of(client)
    lease = client.lock("job").acquire()
    hold = Hold("job", lease.owner, 30.0)
    lease.detach()
    claims = [Claim("job", str(number) * 32, 30.0, None, None) for number in (1, 2)]
    first = drive(store._keeping._first("job", store.requests.until()))
    assert isinstance(drive(store.adopt(hold, claims[0])), Granted)
    record = store._keeping._record(first, claims[1])  # it has looked before the other one adopted
    current = store.requests.leases._current[30]
    assert drive(store._keeping._take(record, current, claims[1], 0.0, store.requests.until(), 1.0)) == "taken"


# -- lists -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("root", ["", "store/", "store/deep/"])
def test_a_page_that_ends_with_the_limit_of_a_semaphore_is_not_the_last_one(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its key is in no queue."""
    monkeypatch.setattr(inspection, "PAGE", 2)
    prefix, names = f"{uuid.uuid4().hex}-", [f"job{number}" for number in range(6)]
    with gripfast.connect(etcd_server().url_with(root=root, prefix=prefix)) as client:
        for name in names:
            client.semaphore(name, limit=1).acquire().release()
        leases = [client.lock(name).acquire() for name in names]
        permits = [client.semaphore(name, limit=1).acquire() for name in names]
        assert [info.name for info in client.list()] == names
        assert [info.name for info in client.list(kind="semaphore")] == names
        assert all(lease.held for lease in [*leases, *permits])
