"""The side keys of any lock lie in its hash slot, are nobody else's, and can't be taken for a lock."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.crc import key_slot

from gripfast.core import rules
from gripfast.errors import ConfigurationError
from gripfast.stores.redis import keys, permit_protocol, protocol

KINDS = [b"token", b"line", b"places", b"broken", b"note"]
ODD = ["{", "}", "{}", "}{", "a}b", "x{}y", "{}{a}", "{a}{b}", "{{a}}", "lock:{user7}:mail", "0", "{0}", "a}0", "é}"]


def is_name(text: str) -> bool:
    try:
        return bool(rules.checked_name(text))
    except ConfigurationError:
        return False


names = (st.text("{}:a0", min_size=1, max_size=12) | st.text(min_size=1, max_size=40)).filter(is_name)


def side_keys(name: str) -> list[bytes]:
    return [keys.side_key(name.encode(), kind) for kind in KINDS]


@given(names)
def test_a_slot_is_the_one_that_redis_cluster_has(name: str) -> None:
    assert keys.slot(name.encode()) == key_slot(name.encode())


@given(names)
def test_side_keys_lie_in_the_slot_of_their_lock(name: str) -> None:
    assert {key_slot(key) for key in side_keys(name)} == {key_slot(name.encode())}


@pytest.mark.parametrize("name", ODD)
def test_side_keys_lie_in_the_slot_of_their_lock_if_it_has_odd_braces(name: str) -> None:
    assert {key_slot(key) for key in side_keys(name)} == {key_slot(name.encode())}


@given(names)
def test_side_keys_are_no_locks(name: str) -> None:
    for key in side_keys(name):
        with pytest.raises(ConfigurationError, match="NUL"):
            rules.checked_name(key.decode())
        assert protocol.read_scan([b"0", [key, name.encode()]]) == ("0", [name])


@given(names, names)
def test_different_locks_have_different_side_keys(one: str, another: str) -> None:
    assert len({*side_keys(one), *side_keys(another)}) == len(KINDS) * len({one, another})


def test_all_short_locks_have_different_side_keys() -> None:
    """Also those whose tag is a number that stands in for them, and the locks that are called as that number is."""
    letters = ["".join(each) for size in range(1, 5) for each in itertools.product("{}a1:", repeat=size)]
    numbers = [keys.side_key(name.encode(), b"")[1:].partition(b"}")[0].decode() for name in letters]
    locks = {*letters, *numbers, *(f"{{{number}}}" for number in numbers), *(f"{{{number}}}}}" for number in numbers)}
    assert len({key for lock in locks for key in side_keys(lock)}) == len(KINDS) * len(locks)


# Permits --------------------------------------------------------------------------------------------------------------


def permit_keys(name: str) -> list[bytes]:
    return [key for kind in ("semaphore", "rwlock") for key in permit_protocol.keys_of(name, kind)]


@given(names)
def test_the_keys_of_permits_lie_in_the_slot_of_their_name_and_are_no_locks(name: str) -> None:
    assert {key_slot(key) for key in permit_keys(name)} == {key_slot(name.encode())}
    assert protocol.read_scan([b"0", [*permit_keys(name), name.encode()]]) == ("0", [name])


@given(names, names)
def test_kinds_and_names_have_different_keys(one: str, another: str) -> None:
    all_keys = [key for name in {one, another} for key in (*side_keys(name), *permit_keys(name))]
    assert len(set(all_keys)) == len(all_keys)


@given(names, names)
def test_a_list_finds_the_names_of_one_kind_and_prefix(one: str, another: str) -> None:
    found = [key for name in {one, another} for key in (*side_keys(name), *permit_keys(name), name.encode())]
    for kind in ("semaphore", "rwlock"):
        listed = permit_protocol.read_scan([b"0", found], kind, "")[1]
        assert sorted(listed) == sorted({one, another})
        assert permit_protocol.read_scan([b"0", found], kind, one)[1] == [
            name for name in listed if name.startswith(one)
        ]


@given(st.lists(st.binary(max_size=30), max_size=5))
def test_arguments_are_packed_with_their_lengths(arguments: list[bytes]) -> None:
    assert keys.pack(*arguments) == b"".join(b"$" + str(len(a)).encode() + b"\r\n" + a + b"\r\n" for a in arguments)


def test_the_tag_of_a_lock_is_kept_so_that_its_users_find_it() -> None:
    assert keys.side_key(b"lock:job", b"line") == b"{lock:job}\0gripfast:line"
    assert keys.side_key(b"lock:{user7}:mail", b"line") == b"{user7}\0gripfast:line:lock:{user7}:mail"
    assert keys.side_key(b"a}b", b"line").endswith(b"}\0gripfast:line:a}b")
