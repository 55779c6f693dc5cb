"""`gripfast doctor` at real ZooKeeper servers that are set up wrongly, each in one way, and at a sound one."""

import contextlib
from collections.abc import Iterator

import pytest
from kazoo.security import CREATOR_ALL_ACL

from gripfast.stores.zookeeper.doctor import Ensemble as Facts
from gripfast.stores.zookeeper.doctor import Server, judge, read
from stores.doctor_stage import found, problems, report_on
from support.waiting import until
from support.zookeeper_servers import Ensemble, ZooKeeperServer, connected, url_of, zookeeper_server

USUAL = ("tickTime=2000", "minSessionTimeout=-1", "maxSessionTimeout=-1", "maxClientCnxns=60")
"""What a server has if its configuration says nothing."""
FAULTY_HERE = {"3.8.0": "ZOOKEEPER-4643", "3.9.3": "ZOOKEEPER-4925"}
"""Of the versions that these tests run with, those that lose writes."""


@pytest.fixture(scope="module")
def server() -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer(*USUAL, "4lw.commands.whitelist=srvr,conf") as server:
        yield server


def test_a_sound_server_has_no_problem(server: ZooKeeperServer) -> None:
    """One alone, of any version: its leader can't change."""
    report = report_on(server.lock_space())
    assert [each for each in report.findings if each.kind == "problem"] == []
    assert report.usable
    assert report.summary.startswith("ZooKeeper 3.")
    assert {each.name for each in report.findings} == {"zookeeper-single", "zookeeper-open"}


def test_a_ttl_that_no_session_can_have_is_found(server: ZooKeeperServer) -> None:
    finding = found(server.lock_space(ttl=60))["zookeeper-short-sessions"]
    assert finding.what.startswith("the server gives a session 40 s at most, and a ttl of 60 s needs 80 s")
    assert "here 30 s instead of 60 s" in finding.why


def test_a_ttl_that_is_less_than_any_session_is_found(server: ZooKeeperServer) -> None:
    finding = found(server.lock_space(ttl=2))["zookeeper-long-sessions"]
    assert "4 s at least" in finding.what


def test_sessions_of_less_than_two_ticks_are_found() -> None:
    with ZooKeeperServer("tickTime=2000", "minSessionTimeout=100", "maxSessionTimeout=60000") as server:
        finding = found(server.lock_space(ttl=2))["zookeeper-ticks"]
        assert "zookeeper-ticks" not in found(server.lock_space(ttl=30))
    assert (finding.kind, "minSessionTimeout=4000" in finding.todo) == ("problem", True)


def test_a_server_that_does_not_answer_the_words_is_advice() -> None:
    with ZooKeeperServer(*USUAL, "4lw.commands.whitelist=srvr") as server:
        findings = found(server.lock_space())
    assert findings["zookeeper-4lw"].what == "the server does not answer conf"
    assert all(each.kind == "advice" for each in findings.values())


def test_connections_that_are_nearly_used_up_are_found() -> None:
    with ZooKeeperServer("maxClientCnxns=5") as server, contextlib.ExitStack() as open_ones:
        for _ in range(3):
            open_ones.enter_context(connected(server.address))
        finding = found(server.lock_space())["zookeeper-connections"]
    assert "maxClientCnxns allows 5" in finding.what


def test_a_login_without_rights_is_found_and_one_with_rights_is_not_open() -> None:
    server = zookeeper_server()
    with server.client() as admin:
        admin.add_auth("digest", "app1:the-secret")
        admin.create("/of-app1", acl=CREATOR_ALL_ACL)
    stranger = found(server.url_with(root="/of-app1"))["unusable"]
    report = report_on(f"zookeeper://app1:the-secret@{server.address}?root=/of-app1")
    assert "this identity may not do that here" in stranger.what
    assert report.usable
    assert "zookeeper-open" not in {each.name for each in report.findings}
    assert "the-secret" not in str(report)


# Ensembles ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ensemble() -> Iterator[Ensemble]:
    with Ensemble() as ensemble:
        yield ensemble


def test_a_sound_ensemble_has_no_problem_and_a_faulty_version_no_other() -> None:
    """Debian 12 has 3.8.0, which is faulty; `make doctor-next` runs this with a sound version, too."""
    with Ensemble(*USUAL, "syncLimit=5") as ensemble:
        report = report_on(ensemble.lock_space())
        told = {each.name: each for each in report.findings}
        version = report.summary.split(",")[0].removeprefix("ZooKeeper ")
        fault = FAULTY_HERE.get(version)
        assert report.usable
        assert sorted(report.summary.split(", ")[1:]) == ["follower", "follower", "leader"]
        assert told.keys() == {"zookeeper-open", *(["zookeeper-faulty-version"] if fault else [])}
        if fault:
            finding = told["zookeeper-faulty-version"]
            assert (finding.kind, fault in finding.what) == ("problem", True)
            assert all(server.address in finding.where for server in ensemble.servers)


def test_servers_that_the_url_does_not_name_are_found(ensemble: Ensemble) -> None:
    findings = found(url_of([ensemble.servers[0].address]))
    assert findings["zookeeper-not-named"].what == "the ensemble has 3 servers, and the URL names 1"
    assert "zookeeper-single" not in findings


def test_a_server_without_a_leader_and_one_that_is_down_are_found(ensemble: Ensemble) -> None:
    url, alone = ensemble.lock_space(), ensemble.follower()
    ensemble.cut_off(alone)
    try:
        until(lambda: "not currently serving" in alone.four("srvr"), within=30)
        finding = found(url)["zookeeper-no-leader"]
        assert (finding.kind, finding.where) == ("problem", alone.address)
    finally:
        ensemble.join(alone)
        ensemble.all_serve(within=60)
    alone.kill()
    try:
        report = report_on(url)
    finally:
        alone.restart()
        ensemble.all_serve(within=60)
    down = {each.name: each for each in report.findings}["zookeeper-server-down"]
    assert (report.usable, down.where) == (True, alone.address)
    assert "Connection refused" in down.what


def test_no_server_at_all_is_told_with_the_reason() -> None:
    with ZooKeeperServer() as server:
        url = server.lock_space()
    assert "Connection refused" in str(problems(url))


# Judging, by plain values ---------------------------------------------------------------------------------------------

SRVR = "Zookeeper version: 3.9.4-abc, built on 2025-08-19\nConnections: 1\nMode: follower\nNode count: 5\n"
CONF = "tickTime=2000\nmaxClientCnxns=60\nminSessionTimeout=4000\nmaxSessionTimeout=40000\n{members}\nversion=0"
THREE = "\n".join(f"server.{number}=h{number}:2888:3888:participant" for number in (1, 2, 3))


def a_server(where: str = "localhost:2181", srvr: str = SRVR, members: str = THREE) -> Server:
    return read(Server(where, given=40.0), {"srvr": srvr, "conf": CONF.format(members=members)})


def judged(*servers: Server, **more: object) -> list[str]:
    facts = Facts(servers, 30.0, "/gripfast")._replace(**more)  # type: ignore[arg-type]
    return [each.name for each in judge(facts)]


def test_a_sound_ensemble_of_today_has_nothing_to_say() -> None:
    assert judged(*[a_server()] * 3) == []


@pytest.mark.parametrize("version", ["3.7.2", "3.8.4", "3.9.1", "3.9.3"])
def test_versions_that_lose_writes_are_found(version: str) -> None:
    assert "zookeeper-faulty-version" in judged(*[a_server(srvr=SRVR.replace("3.9.4", version))] * 3)


@pytest.mark.parametrize("version", ["3.8.5", "3.9.2", "3.9.5"])
def test_other_versions_are_not_blamed(version: str) -> None:
    assert judged(*[a_server(srvr=SRVR.replace("3.9.4", version))] * 3) == []


@pytest.mark.parametrize(
    "members, name",
    [
        ("\n".join(THREE.splitlines()[:2]), "zookeeper-even"),
        (THREE.replace("h3:2888:3888:participant", "h3:2888:3888:observer"), "zookeeper-even"),
    ],
)
def test_the_number_of_servers_is_judged(members: str, name: str) -> None:
    assert judged(*[a_server(members=members)] * 3) == [name]


def test_other_facts_are_judged() -> None:
    three = [a_server(f"zk{number}.example:2181") for number in range(3)]
    assert judged(*three, has_login=True) == ["zookeeper-plain-text"]
    assert judged(*three, has_login=True, encrypted=True) == []
    assert judged(*three, names=6000) == ["zookeeper-many-names"]
    other = a_server(srvr=SRVR.replace("3.9.4", "3.9.5"))
    assert judged(*three[:2], other) == ["zookeeper-different"]
