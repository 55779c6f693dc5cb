"""`gripfast doctor` at real Redis Clusters: a sound one, and what goes wrong with nodes and slots."""

from collections.abc import Iterator

import pytest

from gripfast.stores.cluster.doctor import Facts, judge, read
from gripfast.stores.cluster.topology import Address
from stores.doctor_stage import found, report_on
from support.cluster_servers import Cluster
from support.ports import closed_port
from support.redis_server import HOST
from support.waiting import until

SEED = Address("10.0.0.1", 7000)
INFO = b"cluster_state:ok\r\ncluster_slots_assigned:16384\r\ncluster_slots_ok:16384\r\n"
LINE = "{id} 10.0.0.{id}:7000@17000 {flags} {of} 0 0 1 connected {slots}\n"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


def test_a_sound_cluster_has_no_problem(cluster: Cluster) -> None:
    until(lambda: report_on(cluster.url()).summary.endswith(" Cluster, 3 primaries, 3 replicas"), within=30)  # all met
    report = report_on(cluster.url())
    assert (report.usable, report.problems) == (True, 0)
    names = {each.name: each for each in report.findings}
    assert "redis-cluster-node" not in names
    assert "redis-not-durable" not in names, "a node that has lost its data has a grace"
    where = found(cluster.url(failover_grace="off"))["redis-not-durable"].where
    assert all(str(server.port) in where for server in cluster.primaries())


def test_a_wrong_setting_of_one_primary_is_found(cluster: Cluster) -> None:
    wrong = cluster.primaries()[1]
    cluster.call(wrong, "CONFIG", "SET", "maxmemory", "100mb", "maxmemory-policy", "allkeys-lru")
    try:
        assert found(cluster.url())["redis-evicts"].where == f"{HOST}:{wrong.port}"
    finally:
        cluster.call(wrong, "CONFIG", "SET", "maxmemory", "0", "maxmemory-policy", "noeviction")


def test_a_url_with_one_host_and_a_host_that_is_down_are_found(cluster: Cluster) -> None:
    first = f"{HOST}:{cluster.servers[0].port}"
    assert "cluster-one-host" in found(f"redis+cluster://{first}")
    gone = f"{HOST}:{closed_port()}"
    finding = found(f"redis+cluster://{gone},{first}")["cluster-host-down"]
    assert (finding.where, "refused" in finding.what) == (gone, True)


def test_one_node_by_itself_is_told_to_be_part_of_a_cluster(cluster: Cluster) -> None:
    finding = found(cluster.servers[0].url)["redis-cluster-node"]
    assert finding.todo.startswith("Use the URL of the whole cluster: redis+cluster://")


def test_a_slot_that_migrates_is_found(cluster: Cluster) -> None:
    source, target, *_ = cluster.primaries()
    slot = int(cluster.call(source, "CLUSTER", "SLOTS")[0][0])
    source = cluster.owner(slot)
    target = next(each for each in cluster.primaries() if each is not source)
    cluster.begin_move(slot, source, target)
    try:
        url = f"redis+cluster://{HOST}:{source.port},{HOST}:{target.port}"
        assert found(url)["cluster-migrating"].where == f"{HOST}:{source.port}"
    finally:
        for server in (source, target):
            cluster.call(server, "CLUSTER", "SETSLOT", slot, "STABLE")


def test_a_primary_that_failed_without_a_replica_is_found() -> None:
    with Cluster(replicas=0) as cluster:
        assert "cluster-no-replica" in found(cluster.url())
        cluster.servers[2].kill()
        until(lambda: "cluster_state:fail" in str(cluster.call(cluster.servers[0], "CLUSTER", "INFO")), within=30)
        findings = found(cluster.url())
    assert findings["cluster-down"].what == "cluster_state is fail"
    assert "slots have no node that works" in findings["cluster-slots"].what
    assert findings["cluster-node-failed"].where == f"{HOST}:{cluster.servers[2].port}"


# Judging, by plain values ---------------------------------------------------------------------------------------------


def facts_of(primaries: int, slots: str = "0-100") -> Facts:
    of = {"flags": "master", "of": "-", "slots": slots}
    lines = [LINE.format(id=n, **of) for n in range(1, primaries + 1)]
    lines += [LINE.format(id=n + 100, flags="slave", of=n, slots="") for n in range(1, primaries + 1)]
    return read(Facts(2), [INFO, "".join(lines).encode()], SEED)


def test_what_the_nodes_say_is_judged() -> None:
    assert [*judge(facts_of(3))] == []
    assert [each.name for each in judge(facts_of(2))] == ["cluster-few-primaries"]
    unreached = facts_of(3)._replace(unreached={"10.0.0.2:7000": "can't be reached"})
    assert [(each.name, each.where) for each in judge(unreached)] == [("cluster-node-unreached", "10.0.0.2:7000")]
