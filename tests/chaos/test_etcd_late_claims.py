"""Claims that were given up at a stopped member of etcd, and take effect later: no key stays for longer than one ttl.

GRIPFAST_CHAOS=long goes on until 100 have landed; `-s` shows the figures.
"""

from collections import defaultdict
from collections.abc import Iterator

import pytest

from chaos.etcd_late import KINDS, Round
from chaos.stage import LONG
from support.etcd_servers import Trio

LANDED = 100 if LONG else 4
ROUNDS = 30 if LONG else 6
"""At most."""

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # leases are dropped on purpose
    pytest.mark.timeout(120 + 30 * ROUNDS),
]


@pytest.fixture
def trio() -> Iterator[Trio]:
    """Whose leader is not replaced at once when it is stopped."""
    with Trio("--election-timeout=2500") as trio:
        yield trio


def test_what_a_late_claim_leaves_is_gone_when_its_ttl_is_over(trio: Trio) -> None:
    stays: dict[str, list[float]] = defaultdict(list)
    for number in range(ROUNDS):
        for kind, found in Round(trio, is_direct=number % 2 == 1).play().items():
            stays[kind] += found
        if sum(map(len, stays.values())) >= LANDED and stays["is killed"]:
            break
    for kind in KINDS:
        print(f"\nits caller {kind}: {len(stays[kind])} landed, {max(stays[kind], default=0.0):.2f} s at most", end="")
    assert sum(map(len, stays.values())) >= LANDED
    assert stays["is killed"]  # which nobody cleans up
