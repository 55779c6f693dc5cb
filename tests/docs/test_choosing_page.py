"""What docs/choosing.md says of each store is what the store says of itself."""

import re

import pytest

import gripfast
from support.pages import page

PAGE = page("choosing")
STORES = {
    "memory": "memory://",
    "embedded": "sqlite:///locks.db",
    "Redis": "redis://localhost",
    "Sentinel": "redis+sentinel://a,b,c/main",
    "Cluster": "redis+cluster://a,b,c",
    "Redlock": "redlock://a,b,c",
    "PostgreSQL, `lease`": "postgresql://localhost/shop",
    "MariaDB, MySQL, `lease`": "mysql://localhost/shop",
    "SQL, `row`": "postgresql://localhost/shop?mode=row",
    "SQL, `advisory`": "postgresql://localhost/shop?mode=advisory",
    "ZooKeeper": "zookeeper://localhost",
    "etcd": "etcd://localhost",
}


def rows() -> dict[str, list[str]]:
    lines = PAGE.partition("\n| store |")[2].partition("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return {re.sub(r"\[(.*?)\]\(.*?\)", r"\1", store): rest for store, *rest in cells}


def test_the_table_has_every_store() -> None:
    assert list(rows()) == list(STORES)


@pytest.mark.parametrize("store", STORES)
def test_what_the_table_says_is_what_the_store_says(store: str) -> None:
    _, waiting, death, tokens, cannot = rows()[store]
    with gripfast.connect(STORES[store]) as client:
        can = client.capabilities
    assert waiting.startswith("in order") == can.fair
    assert bool(re.search("notified|hands|engine's queue", waiting)) == can.push
    assert death.startswith("at once") == can.sees_death
    assert tokens.startswith("as long as") == can.durable_fence
    assert cannot


@pytest.mark.parametrize(
    "name", sorted(set(re.findall(r"\]\((\w+)\.md", PAGE.partition("\n| store |")[2].partition("\n\n")[0])))
)
def test_the_page_of_a_store_says_what_it_cannot_do(name: str) -> None:
    assert re.search(r"^##+ What \w+ can't do$", page(name), re.MULTILINE)
