"""What the documentation says about the order of a list is so."""

from pathlib import Path

import pytest

import gripfast
from support.stores import STORES, StoreUnderTest

COLOUR = "blocking"

IN_NO_ORDER = {
    "redis", "redis-grace", "redis-replicas", "redlock", "valkey", "sentinel", "sentinel-replicas", "cluster",
    "cluster-replicas",
}  # fmt: skip
"""A server's own tables are looked through, and those have none."""

NAMES = ["b", "B", "a", "job:10", "job:9", "ä", "Z", "\uffff", "\U0001f600", "_"]


@pytest.mark.parametrize("store", [store for store in STORES if store.name not in IN_NO_ORDER], ids=lambda it: it.name)
def test_a_list_is_in_the_order_of_names(store: StoreUnderTest, tmp_path: Path) -> None:
    with store.fresh(tmp_path) as url, gripfast.connect(url) as client:
        leases = [client.lock(name).acquire(wait=5) for name in NAMES]
        assert [info.name for info in client.list()] == sorted(NAMES)
        assert len(leases) == len(NAMES)


@pytest.mark.parametrize("kind", [gripfast.Client, gripfast.AsyncClient])
def test_the_documentation_says_where_it_is_not(kind: type) -> None:
    says = " ".join((kind.list.__doc__ or "").split())  # type: ignore[attr-defined]
    assert "On Redis and Redlock the order is arbitrary" in says
