"""Names become keys and back, whatever is in them, and none becomes another's."""

from hypothesis import given
from hypothesis import strategies as st

from gripfast.stores.etcd import keys
from gripfast.stores.etcd.keys import Keys

names = st.text(min_size=1, max_size=20) | st.text("%/2F5", min_size=1, max_size=12)
usual = names.filter(lambda name: "\0" not in name and name.encode("utf-8", "ignore").decode() == name)
KEYS = Keys("root/")


@given(usual, st.sampled_from([None, "semaphore", "rwlock"]))
def test_a_name_comes_back(name: str, kind: str | None) -> None:
    key = KEYS.own(name, "owner", kind)  # type: ignore[arg-type]
    assert (KEYS.name_in(key, kind), keys.owner_in(key)) == (name, "owner")  # type: ignore[arg-type]


@given(usual, usual)
def test_no_queue_is_within_another(one: str, other: str) -> None:
    queues = [KEYS.queue(name, kind) for name in {one, other} for kind in (None, "semaphore", "rwlock")]
    assert all(a == b or not a.startswith(b) for a in queues for b in queues)


@given(usual, usual)
def test_a_prefix_of_a_name_is_a_prefix_of_its_keys(prefix: str, rest: str) -> None:
    assert KEYS.queue(prefix + rest).startswith(KEYS.start(prefix))


def test_a_key_of_another_kind_is_no_lock() -> None:
    for key in (KEYS.layout, KEYS.limit("a"), KEYS.broken("a", "x"), KEYS.own("a", "x", "semaphore"), b"root/\xff/x"):
        assert KEYS.name_in(key) is None


def test_a_marker_has_the_key_of_the_lease_that_it_was() -> None:
    assert KEYS.own("a", "done:abc") == KEYS.own("a", "kept:abc") == KEYS.own("a", "abc")


def test_a_range_ends_behind_all_keys_that_begin_so() -> None:
    assert keys.after(b"a/") == b"a0"
    assert keys.after(b"a\xff") == b"b"
    assert keys.after(b"") == b"\0"
