"""Who has which slot, what a node's refusal means, and which URLs and clients there are for a Cluster: without any."""

from typing import Any

import pytest
import redis.asyncio.cluster
import redis.cluster

from gripfast import ConfigurationError, StoreUnavailable, connect
from gripfast.core.ports import unreachable
from gripfast.stores import spec_for, spec_of
from gripfast.stores.cluster import factory, redirects
from gripfast.stores.cluster.routing import HOPS_MOST, Trip
from gripfast.stores.cluster.topology import Address, Topology, ranges
from gripfast.stores.cluster.waiting import Waiting
from gripfast.stores.inboxes import BlockingInbox

A, B, C = (Address("10.0.0.1", 7000), Address("10.0.0.2", 7000), Address("10.0.0.3", 7000))


def node(address: Address, *more: Any) -> list[Any]:
    return [address.host.encode(), address.port, b"id", *more]


def known(*ranges: list[Any]) -> Topology:
    topology = Topology([A])
    topology.read(list(ranges), A)
    return topology


def said(text: str, **more: Any) -> redirects.Next:
    error = StoreUnavailable(f"a node said {text}")
    error._reply = text
    return redirects.after(unreachable(error, **more), Topology([A]), A)


# The topology ---------------------------------------------------------------------------------------------------------


def test_every_slot_has_the_owner_that_the_cluster_announces() -> None:
    topology = known([0, 99, node(A), node(C)], [100, 16383, node(B)])
    assert (topology.owners[0], topology.owners[99], topology.owners[100], topology.owners[16383]) == (A, A, B, B)
    assert topology.primaries == [A, B]
    assert topology.all() == [A, B, C]
    assert topology.ids == {A: b"id", B: b"id", C: b"id"}


def test_what_nobody_has_is_told_as_ranges() -> None:
    topology = known([5, 99, node(A)], [101, 16383, node(B)])
    assert ranges(topology.gaps()) == "0-4, 100"
    assert ranges([]) == ""


def test_a_node_that_misses_slots_says_which_living_primaries_have_the_others() -> None:
    topology = known([0, 16383, node(A)])
    topology.read_gaps(
        b"id1 10.0.0.1:7000@17000 myself,master - 0 0 1 connected 0-99 101 [200->-id2]\n"
        b"id2 10.0.0.2:7000@17000,name master,fail - 0 0 2 disconnected 102-8000\n"
        b"id3 10.0.0.3:7000@17000 slave id1 0 0 1 connected\n"
        b"id4 10.0.0.4:7000@17000 master,fail? - 0 0 3 connected 8001-16383\n"
    )
    assert ranges(topology.gaps()) == "100, 102-8000", "one that may have failed still counts"


def test_a_slot_that_moved_has_another_owner_and_only_that_slot() -> None:
    topology = known([0, 16383, node(A)])
    assert topology.move(7, B)
    assert not topology.move(7, B), "that is no news"
    assert (topology.owners[6], topology.owners[7], topology.owners[8]) == (A, B, A)
    assert topology.primaries == [A, B]


@pytest.mark.parametrize("host", [b"", None, b"?"])
def test_a_node_without_a_host_is_the_one_that_was_asked(host: bytes | None) -> None:
    topology = Topology([A])
    topology.read([[0, 16383, [host, 7001, b"id"]]], B)
    assert topology.owners[0] == Address(B.host, 7001)


def test_a_name_that_a_node_does_not_have_is_its_ip_address() -> None:
    topology = Topology([A])
    topology.read([[0, 16383, [b"?", 7001, b"id", [b"ip", b"10.9.9.9"]]]], B)
    assert topology.owners[0] == Address("10.9.9.9", 7001)


def test_addresses_are_mapped_as_the_caller_says() -> None:
    topology = Topology([A], lambda address: ("gateway", address[1] + 1))
    topology.read([[0, 16383, node(B)]], A)
    assert topology.owners[0] == Address("gateway", 7001)
    assert redirects.after(_moved("MOVED 3 10.0.0.3:7000"), topology, A).to == Address("gateway", 7001)


def _moved(text: str) -> Any:
    error = StoreUnavailable("x")
    error._reply = text
    return unreachable(error)


def test_whoever_waits_in_a_slot_that_moved_asks_again_and_nobody_else() -> None:
    waiting, here, there = Waiting(), BlockingInbox(), BlockingInbox()
    waiting.add(1, "here", here)
    waiting.add(2, "there", there)
    waiting.moved(1)
    assert here.take(0.0) is None
    assert there.take(0.0) is not None
    waiting.moved(1)
    waiting.moved(3)


# Refusals -------------------------------------------------------------------------------------------------------------


def test_what_a_refusal_means() -> None:
    assert said("MOVED 3999 127.0.0.1:6381") == ("moved", Address("127.0.0.1", 6381), 3999)
    assert said("ASK 3999 127.0.0.1:6381") == ("ask", Address("127.0.0.1", 6381), 3999)
    assert said("MOVED 1 ::1:6381").to == Address("::1", 6381)
    assert said("MOVED 1 :6381").to == Address(A.host, 6381), "the node that was asked"
    assert said("TRYAGAIN Multiple keys request during rehashing of slot").step == "pause"
    assert said("ERR Script attempted to access a non local key in a cluster node script").step == "pause"
    assert said("CLUSTERDOWN Hash slot not served").step == "down"
    assert said("").step == "doubt"
    assert said("", is_permanent=True).step == "refused"


def test_redirects_are_followed_at_once_but_not_for_ever() -> None:
    trip, moved = Trip(0, waits=60.0), said("MOVED 0 10.0.0.2:7000")
    pauses = [trip.pause(moved) for _ in range(HOPS_MOST + 2)]
    assert pauses[:HOPS_MOST] == [0.0] * HOPS_MOST
    assert all(pause is not None and pause > 0.0 for pause in pauses[HOPS_MOST:])


def test_a_request_that_can_not_wait_is_told_of_a_slot_that_moves() -> None:
    assert Trip(0, waits=0.0).pause(said("TRYAGAIN x")) is None
    assert Trip(0, waits=9.0).pause(said("TRYAGAIN x")) == 0.01


# URLs and clients -----------------------------------------------------------------------------------------------------


def test_a_url_names_some_of_the_nodes_and_never_shows_the_password() -> None:
    with connect("redis+cluster://user:p%40ss@h1:7000,h2,[::1]:7001?prefix=a:") as client:
        assert "p@ss" not in repr(client)
        assert "p%40ss" not in repr(client)
        made: factory.ClusterFactory = client._config.factory  # type: ignore[assignment]
    assert made.where == "redis+cluster://h1:7000,h2:6379,[::1]:7001"
    assert made._settings == {"username": "user", "password": "p@ss"}
    assert made._dialer(1.0, A).where == "node 10.0.0.1:7000 of redis+cluster://h1:7000,h2:6379,[::1]:7001"


@pytest.mark.parametrize("url", ["redis+cluster://h1/3", "redis+cluster://h1?db=3"])
def test_a_cluster_has_no_databases(url: str) -> None:
    with pytest.raises(ConfigurationError, match="prefix"):
        connect(url)


@pytest.mark.parametrize("url", ["redis+cluster://h1,,h2", "redis+cluster://u:p,w@h1", "redis+cluster://h1:99999"])
def test_a_url_that_can_not_be_read_says_how_to_write_it(url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"redis\+cluster://host:6379,host"):
        connect(url)


def test_its_schemes_and_clients_are_its_own() -> None:
    assert spec_for("redis+cluster").name == spec_for("rediss+cluster").name == "cluster"
    assert spec_for("redis").name == "redis"
    for kind in (redis.cluster.RedisCluster, redis.asyncio.cluster.RedisCluster):
        assert spec_of(kind.__new__(kind)).name == "cluster"
