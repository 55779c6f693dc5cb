"""The gate in memory: larger and equal tokens pass, smaller ones are told who overtook them."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from gripfast.errors import StaleToken
from gripfast.fencing import Gate


def test_a_smaller_token_is_refused_and_told_what_was_seen() -> None:
    gate = Gate()
    gate.guard("stock", 34)
    with pytest.raises(StaleToken) as refusal:
        gate.guard("stock", 33)
    assert (refusal.value.resource, refusal.value.token, refusal.value.seen) == ("stock", 33, 34)


def test_the_same_holder_may_write_again() -> None:
    gate = Gate()
    gate.guard("stock", 34)
    gate.guard("stock", 34)


def test_a_larger_token_passes() -> None:
    gate = Gate()
    gate.guard("stock", 34)
    gate.guard("stock", 35)


def test_a_refused_token_changes_nothing() -> None:
    gate = Gate()
    gate.guard("stock", 34)
    with pytest.raises(StaleToken):
        gate.guard("stock", 1)
    gate.guard("stock", 34)


def test_resources_do_not_know_each_other() -> None:
    gate = Gate()
    gate.guard("stock", 34)
    gate.guard("Stock", 1)


def test_a_stale_writer_does_not_enter_the_block() -> None:
    gate = Gate()
    gate.guard("stock", 34)
    with pytest.raises(StaleToken):
        with gate.writing("stock", 33):
            pytest.fail("entered")


def test_a_writer_may_guard_again_inside_its_block() -> None:
    gate = Gate()
    with gate.writing("stock", 34):
        gate.guard("stock", 34)


def test_a_newer_writer_waits_for_the_block_of_an_older_one() -> None:
    gate, order = Gate(), []
    with ThreadPoolExecutor(1) as pool:
        with gate.writing("stock", 33):
            newer = pool.submit(lambda: gate.guard("stock", 34) or order.append("newer"))
            order.append("older")
        newer.result(timeout=5)
    assert order == ["older", "newer"]


def test_a_block_keeps_no_one_out_of_another_resource() -> None:
    gate = Gate()
    with ThreadPoolExecutor(1) as pool, gate.writing("stock", 33):
        pool.submit(gate.guard, "prices", 1).result(timeout=5)


def test_a_block_that_fails_lets_the_next_writer_in() -> None:
    gate = Gate()
    with pytest.raises(ZeroDivisionError):
        with gate.writing("stock", 33):
            _ = 1 / 0
    with ThreadPoolExecutor(1) as pool:
        pool.submit(gate.guard, "stock", 34).result(timeout=5)


def test_of_many_threads_none_writes_after_a_larger_token() -> None:
    gate, written, start = Gate(), [], threading.Barrier(8)

    def write(tokens: range) -> None:
        start.wait(5)
        for token in tokens:
            try:
                with gate.writing("stock", token):
                    written.append(token)
            except StaleToken:
                pass

    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(write, range(first, 2000, 8)) for first in range(8)]:
            done.result(timeout=30)
    assert written == sorted(written)
    assert written[-1] == 1999


def test_those_who_share_a_resource_do_not_make_each_other_late() -> None:
    gate = Gate()
    gate.guard("index", 34, shared=True)
    gate.guard("index", 36, shared=True)
    gate.guard("index", 35, shared=True)


def test_an_exclusive_token_must_not_be_smaller_than_any() -> None:
    gate = Gate()
    gate.guard("index", 34)
    gate.guard("index", 36, shared=True)
    with pytest.raises(StaleToken) as refusal:
        gate.guard("index", 35)
    assert refusal.value.seen == 36
    gate.guard("index", 36)


def test_a_shared_token_must_not_be_smaller_than_the_last_exclusive_one() -> None:
    gate = Gate()
    gate.guard("index", 36, shared=True)
    gate.guard("index", 37)
    with gate.writing("index", 38, shared=True):
        pass
    gate.guard("index", 37, shared=True)
    with pytest.raises(StaleToken) as refusal:
        gate.guard("index", 36, shared=True)
    assert refusal.value.seen == 37
