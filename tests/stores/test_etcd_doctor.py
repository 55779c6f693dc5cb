"""`gripfast doctor` at real etcd members that are set up wrongly, each in one way, and at a sound cluster."""

from collections.abc import Iterator

import pytest

from gripfast.stores.etcd.doctor import LONG_HISTORY, Facts, Server, judge
from gripfast.stores.etcd.maintenance import CORRUPT, NOSPACE
from stores.doctor_stage import found, problems, report_on
from support.etcd_servers import EtcdServer, Trio, url_of
from support.waiting import until

USUAL = ("--heartbeat-interval=100", "--election-timeout=1000")
"""What a member has that is told nothing."""
FAULTY = {"etcd-faulty-version"}
"""Debian's 3.4.23 has faults."""


@pytest.fixture(scope="module")
def server() -> Iterator[EtcdServer]:
    with EtcdServer(*USUAL) as server:
        yield server


@pytest.fixture(scope="module")
def trio() -> Iterator[Trio]:
    with Trio() as trio:
        yield trio


def test_a_sound_cluster_has_no_problem(trio: Trio) -> None:
    report = report_on(trio.lock_space())
    assert [each for each in report.findings if each.kind == "problem"] == []
    assert report.usable
    assert report.summary.startswith("etcd 3.")
    assert report.summary.endswith("3 members")
    assert {each.name for each in report.findings} - FAULTY == {"etcd-open"}


def test_a_single_member_is_advice(server: EtcdServer) -> None:
    assert found(server.lock_space())["etcd-single"].kind == "advice"


def test_a_member_that_the_url_does_not_name_is_found(trio: Trio) -> None:
    finding = found(url_of(trio.addresses[:2]))["etcd-not-named"]
    assert finding.what == "the cluster has 3 members, and the URL names 2"


def test_a_member_that_is_down_is_a_problem() -> None:
    with Trio() as trio:
        gone = trio.followers()[0]
        gone.kill()
        finding = found(trio.lock_space())["etcd-member-down"]
        assert (finding.kind, finding.where) == ("problem", gone.address)


def test_a_member_without_a_leader_is_a_problem() -> None:
    with Trio() as trio:
        left, *others = trio.servers
        for each in others:
            each.kill()
        until(lambda: not left.is_leader(), within=20)
        findings = found(url_of([left.address], request_timeout=1, connect_patience=0))
        until(lambda: "etcd-no-leader" in found(url_of([left.address], request_timeout=1, connect_patience=0)), 20)
        assert "unusable" in findings


def test_a_ttl_that_is_less_than_any_lease_is_found(server: EtcdServer) -> None:
    finding = found(server.lock_space(ttl=1))["etcd-long-leases"]
    assert finding.what == "leases last for 2 s at least, and the ttl is 1 s"
    assert "etcd-long-leases" not in found(server.lock_space(ttl=2))


def test_a_cluster_that_is_full_is_a_problem() -> None:
    with EtcdServer("--quota-backend-bytes=200000") as server:

        def is_full() -> bool:
            server.ctl("put", "filler", "x" * 50_000)
            return "NOSPACE" in server.ctl("alarm", "list")

        with pytest.raises(Exception, match="space exceeded"):
            until(is_full, within=20)
        assert any(each.startswith("etcd-no-space") for each in problems(server.lock_space()))


def test_who_has_a_login_is_not_told_that_everybody_may_change_keys() -> None:
    with EtcdServer() as server:
        server.ctl("user", "add", "root:secret")
        server.ctl("user", "grant-role", "root", "root")
        server.ctl("auth", "enable")
        findings = found(f"etcd://root:secret@{server.address}")
    assert "etcd-open" not in findings
    assert "etcd-plain-text" not in findings  # it is this machine


def test_a_history_that_nobody_compacts_is_advice_and_a_compacted_one_is_none() -> None:
    whole = Facts([Server("h:1", version="3.6.11")], 30.0, 3, revision=LONG_HISTORY + 1, is_whole=True)
    assert [each.name for each in judge(whole)] == ["etcd-not-named", "etcd-not-compacted"]
    assert [each.name for each in judge(whole._replace(is_whole=False))] == ["etcd-not-named"]


def test_whether_a_history_is_whole_is_seen(server: EtcdServer) -> None:
    from gripfast.stores.doctor import Terms
    from gripfast.stores.etcd.blocking import BlockingLink
    from gripfast.stores.etcd.doctor import gather, run
    from gripfast.stores.etcd.factory import EtcdFactory

    factory = EtcdFactory([server.address], None, None)
    link = BlockingLink(factory.dialer(5.0))
    try:
        server.ctl("put", "a", "1")
        server.ctl("put", "a", "2")
        assert run(gather(link, factory, Terms(30.0, 5.0))).is_whole
        revision = run(gather(link, factory, Terms(30.0, 5.0))).revision
        server.ctl("compaction", str(revision))
        assert not run(gather(link, factory, Terms(30.0, 5.0))).is_whole
    finally:
        run(link.close())


COUNTS = {
    "3.4.23": 5, "3.4.30": 5, "3.4.31": 4, "3.4.33": 4, "3.4.34": 3, "3.4.37": 3, "3.4.38": 2, "3.4.41": 2, "3.4.42": 1,
    "3.4.43": 1, "3.4.44": 0, "3.5.12": 5, "3.5.13": 4, "3.5.15": 4, "3.5.16": 3, "3.5.22": 3, "3.5.23": 2, "3.5.27": 2,
    "3.5.28": 1, "3.5.29": 1, "3.5.30": 0, "3.6.4": 3, "3.6.5": 2, "3.6.8": 2, "3.6.9": 1, "3.6.10": 1, "3.6.11": 0,
    "3.3.27": 5, "3.7.0": 0, "4.0.0": 0, "": 0,
}  # fmt: skip
"""Faults of versions, on both sides of each that mends one."""


@pytest.mark.parametrize(("version", "count"), COUNTS.items())
def test_the_faults_of_a_version_are_those_that_it_has(version: str, count: int) -> None:
    facts = Facts([Server("h:1", version=version)], 30.0)
    assert len([each for each in judge(facts) if each.name == "etcd-faulty-version"]) == count


def test_what_is_wrong_with_members_is_found() -> None:
    learner, lost = Server("a:1", is_learner=True), Server("b:1", has_leader=False)
    loose = Server("c:1", size=500 << 20, used=10 << 20)
    facts = Facts([learner, lost, loose], 30.0, 4, [NOSPACE, CORRUPT], has_login=True)
    names = [each.name for each in judge(facts)]
    assert names == [
        "etcd-learner", "etcd-no-leader", "etcd-even", "etcd-not-named", "etcd-no-space", "etcd-corrupt",
        "etcd-not-defragmented", "etcd-plain-text",
    ]  # fmt: skip


def test_members_of_different_versions_are_found() -> None:
    facts = Facts([Server("a:1", version="3.6.9"), Server("b:1", version="3.6.10")], 30.0, 3)
    assert "etcd-different" in [each.name for each in judge(facts)]
