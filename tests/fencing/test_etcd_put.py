"""The fenced put for etcd, and the compare for transactions of one's own, by the clients that people have."""

import itertools
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gripfast
from fencing.etcd_clients import COLOURS, Caller, connected
from fencing.test_shared_guard import Step, answers, steps
from gripfast.errors import ConfigurationError, StaleToken
from gripfast.fencing import Gate, compare, guard, put
from support.etcd_servers import EtcdServer, etcd_server

LARGEST = 2**63 - 2
THREADS, WRITES = 6, 40


@pytest.fixture(params=COLOURS)
def caller(request: pytest.FixtureRequest) -> Iterator[Caller]:
    with connected(request.param, etcd_server().port) as made:
        yield made


@pytest.fixture
def stock() -> str:
    """A resource, and a key."""
    return f"stock:{uuid.uuid4().hex}"


def found(key: str) -> str:
    return etcd_server().ctl("get", key, "--print-value-only").strip()


# -- puts --------------------------------------------------------------------------------------------------------------


def test_a_smaller_token_is_refused_told_what_was_seen_and_writes_nothing(caller: Caller, stock: str) -> None:
    caller.put(stock, 34, stock, "90")
    with pytest.raises(StaleToken) as refusal:
        caller.put(stock, 33, stock, "101")
    assert (refusal.value.resource, refusal.value.token, refusal.value.seen) == (stock, 33, 34)
    assert (found(stock), found(f"fence:{stock}")) == ("90", "34")


def test_equal_and_larger_tokens_pass(caller: Caller, stock: str) -> None:
    for number, token in enumerate((0, 0, 9, 34, 34, 100, LARGEST, LARGEST)):
        caller.put(stock, token, stock.encode(), b"%d" % number)
        assert (found(stock), found(f"fence:{stock}")) == (str(number), str(token))


@pytest.mark.parametrize(("seen", "late"), [(10, 9), (2**53 + 1, 2**53), (LARGEST, LARGEST - 1), (1, 0)])
def test_tokens_are_compared_to_the_last_digit(caller: Caller, stock: str, seen: int, late: int) -> None:
    for token in (late, seen):
        caller.put(stock, token, stock, str(token))
    with pytest.raises(StaleToken):
        caller.put(stock, late, stock, "late")
    assert found(stock) == str(seen)


def test_an_empty_value_is_put(caller: Caller, stock: str) -> None:
    for value in ("", "1", ""):
        caller.put(stock, 1, stock, value)
        assert found(stock) == value


def test_a_holder_that_writes_again_needs_one_request(caller: Caller, stock: str, monkeypatch: Any) -> None:
    caller.put(stock, 34, stock, "90")
    transaction, calls = caller.client.transaction, []

    def counted(*given: Any, **how: Any) -> Any:
        calls.append(given)
        return transaction(*given, **how)

    monkeypatch.setattr(caller.client, "transaction", counted)
    caller.put(stock, 34, stock, "91")
    assert len(calls) == 1


def test_resources_do_not_know_each_other(caller: Caller, stock: str) -> None:
    caller.put(stock, 34, stock, "1")
    for other in (f"{stock}库存", stock.upper(), stock[:-1]):
        caller.put(other, 1, stock, "2")
    assert found(stock) == "2"


def test_a_fence_that_is_no_token_lets_nobody_in(caller: Caller, stock: str) -> None:
    for value in ("", "x", "-1", "1" * 20):
        etcd_server().ctl("put", f"fence:{stock}", "--", value)
        with pytest.raises(ConfigurationError, match="is not a token"):
            caller.put(stock, 34, stock, "90")
    assert not found(stock)


@pytest.mark.parametrize("bad", [True, 1.0, -1, 2**63 - 1, "1"])
def test_what_is_no_token_is_refused(caller: Caller, stock: str, bad: Any) -> None:
    with pytest.raises(ConfigurationError):
        caller.put(stock, bad, stock, "90")
    with pytest.raises(ConfigurationError):
        caller.compare(stock, bad)


def test_a_value_that_is_no_text_is_refused(caller: Caller, stock: str) -> None:
    with pytest.raises(ConfigurationError, match="must be text or bytes, not int"):
        caller.put(stock, 34, stock, 90)


def test_text_that_is_no_unicode_is_refused(caller: Caller, stock: str) -> None:
    for key, value in ((stock, "\ud800"), ("\ud800", "90")):
        with pytest.raises(ConfigurationError, match="must be valid Unicode text, or bytes"):
            caller.put(stock, 34, key, value)


def test_an_empty_key_is_refused(caller: Caller, stock: str) -> None:
    with pytest.raises(ConfigurationError, match="the key is empty"):
        caller.put(stock, 34, "", "90")


def test_no_put_changes_a_fence(caller: Caller, stock: str) -> None:
    """Whoever could lower one would let a late writer in."""
    caller.put(stock, 34, stock, "90")
    for key in (f"fence:{stock}", f"fence-shared:{stock}".encode(), "fence:another"):
        with pytest.raises(ConfigurationError, match="write to another one"):
            caller.put(stock, 34, key, "1")
    with pytest.raises(StaleToken):
        caller.put(stock, 33, stock, "late")


def test_other_clients_are_refused(caller: Caller, stock: str) -> None:
    with pytest.raises(ConfigurationError, match=r"need a client of etcd3gw or of aetcd, not a builtins\.object"):
        put(object(), stock, 1, stock, "x")
    with pytest.raises(ConfigurationError, match=r"of aetcd, not a builtins\.object"):
        compare(object(), stock, 1)
    with pytest.raises(ConfigurationError, match=r"gripfast\.fencing\.compare"):
        guard(caller.client, stock, 1)


# -- transactions of one's own -----------------------------------------------------------------------------------------


def test_a_transaction_that_compares_is_carried_out_until_a_larger_token_was_seen(caller: Caller, stock: str) -> None:
    fence = caller.compare(stock, 34)
    for value in ("90", "91"):
        assert caller.transact(fence, stock, value)
    caller.compare(stock, 35)
    assert not caller.transact(fence, stock, "101")
    with pytest.raises(StaleToken):
        caller.compare(stock, 34)
    assert found(stock) == "91"


def test_a_transaction_that_compares_is_refused_after_a_put_with_a_larger_token(caller: Caller, stock: str) -> None:
    fence = caller.compare(stock, 34)
    caller.put(stock, 35, stock, "90")
    assert not caller.transact(fence, stock, "101")
    assert found(stock) == "90"


def test_those_who_share_a_resource_do_not_refuse_each_other(caller: Caller, stock: str) -> None:
    first, second = [caller.compare(stock, token, shared=True) for token in (36, 34)]
    assert caller.transact(first, stock, "90")
    caller.put(stock, 37, stock, "91", shared=True)
    assert caller.transact(second, stock, "92")
    assert caller.transact(first, stock, "93")
    with pytest.raises(StaleToken):
        caller.compare(stock, 36)
    caller.put(stock, 38, stock, "94")
    assert not caller.transact(first, stock, "95")
    assert not caller.transact(second, stock, "96")


def test_an_exclusive_holder_is_late_when_one_who_shares_came_after_it(caller: Caller, stock: str) -> None:
    fence = caller.compare(stock, 34)
    caller.put(stock, 35, stock, "90", shared=True)
    assert not caller.transact(fence, stock, "101")
    with pytest.raises(StaleToken):
        caller.put(stock, 34, stock, "102")
    assert found(stock) == "90"


def test_two_clients_understand_each_other(stock: str) -> None:
    port = etcd_server().port
    with connected("etcd3gw", port) as one, connected("aetcd", port) as other:
        fence = one.compare(stock, 34)
        other.put(stock, 35, stock, "90")
        assert not one.transact(fence, stock, "101")
        with pytest.raises(StaleToken):
            one.put(stock, 34, stock, "101")


# -- any order ---------------------------------------------------------------------------------------------------------


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sequence=steps, by_compare=st.booleans())
def test_the_server_answers_as_the_gate_does(caller: Caller, sequence: list[Step], by_compare: bool) -> None:
    space = uuid.uuid4().hex  # each example has resources of its own

    def step(resource: str, token: int, **how: Any) -> None:
        name = f"{space}{resource}"
        try:
            if by_compare:
                assert caller.transact(caller.compare(name, token, **how), name, str(token))
            else:
                caller.put(name, token, name, str(token), **how)
        except StaleToken as refusal:
            raise StaleToken(resource, token, refusal.seen or 0) from None

    assert answers(step, sequence) == answers(Gate().guard, sequence)


def test_of_many_who_write_at_once_the_largest_token_is_the_last(stock: str) -> None:
    """A put that was let in is never followed by a smaller one. Those at the same time meet in the fence."""
    ready, port = threading.Barrier(THREADS), etcd_server().port

    def write(number: int) -> Iterator[tuple[int, int]]:
        with connected("etcd3gw", port) as own:
            ready.wait()
            for token in range(number, THREADS * WRITES, THREADS):
                try:
                    own.put(stock, token, stock, str(token))
                except StaleToken as refusal:
                    yield token, refusal.seen or 0

    with ThreadPoolExecutor(THREADS) as threads:
        refused = list(itertools.chain(*threads.map(lambda number: list(write(number)), range(THREADS))))
    assert all(seen > token for token, seen in refused)
    assert found(stock) == found(f"fence:{stock}") == str(THREADS * WRITES - 1)


# -- with a lock -------------------------------------------------------------------------------------------------------


def test_a_holder_that_was_overtaken_writes_nothing(caller: Caller, stock: str) -> None:
    with gripfast.connect(etcd_server().lock_space()) as client:
        late = client.lock("stock", renew=False).acquire()
        fence = caller.compare(stock, late.token)
        client.force_release("stock")
        with client.lock("stock") as lease:
            caller.put(stock, lease.token, stock, "90")
        assert not caller.transact(fence, stock, "101")
        with pytest.raises(StaleToken):
            caller.put(stock, late.token, stock, "101")
    assert found(stock) == "90"


def test_the_rights_that_the_page_names_are_enough(stock: str) -> None:
    with EtcdServer() as server, connected("etcd3gw", server.port) as caller:
        for words in (
            "role add data",
            "role grant-permission data readwrite fence --prefix=true",
            "role grant-permission data readwrite invoices/ --prefix=true",
            "user add app1:a",
            "user grant-role app1 data",
            "user add root:r",
            "user grant-role root root",
            "auth enable",
        ):
            server.ctl(*words.split())
        client = caller.client
        answer = client.post(client.get_url("/auth/authenticate"), json={"name": "app1", "password": "a"})
        client.session.headers["Authorization"] = answer["token"]
        caller.put(stock, 34, "invoices/7", "paid")
        caller.put(stock, 35, "invoices/7", "paid", shared=True)
        with pytest.raises(StaleToken):
            caller.put(stock, 33, "invoices/7", "late")
