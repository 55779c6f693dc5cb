"""What the lab says of Redis is what a real server says: histories played on one, and replicas that take over."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest
import redis

from gripfast_lab.engines.port import Engine, Happening
from gripfast_lab.engines.redis import AHEAD, Alone, Copies, LeftOver, Replicated, Several
from gripfast_lab.entries import BY_NAME
from gripfast_lab.moves import ALL, TTL, Ask, ask
from gripfast_lab.protocols.redis import COUNT_DOWN, COUNT_UP, delete_if_mine
from gripfast_lab.world import Act
from lab.searches import NAMES, searched
from support.proxy import Proxy
from support.redis_server import HOST, RedisServer, shared_server
from support.waiting import until

FIRST_DATABASE = 8
"""Other tests use the first ones."""
ON_REDIS = [name for name in NAMES if isinstance(BY_NAME[name].protocol().engine, Alone | Several)]


def plain(reply: Any) -> Any:
    """As the lab shows it."""
    if isinstance(reply, list):
        return tuple(plain(each) for each in reply)
    return reply.decode() if isinstance(reply, bytes) else reply


def asked_of(connection: redis.Redis, what: Ask) -> Any:
    """As it stands, without what redis-py makes of answers."""
    if what.script:
        return plain(connection.eval(what.script, 1, *what.commands))
    if len(what.commands) == 1:
        return plain(raw(connection, what.commands[0]))
    with connection.pipeline(transaction=True) as transaction:
        transaction.response_callbacks.clear()
        for command in what.commands:
            transaction.execute_command(*command.split())
        return plain(transaction.execute())


def raw(connection: redis.Redis, command: str) -> Any:
    connection.response_callbacks.clear()
    return connection.execute_command(*command.split())


class World:
    """Each node of a history is a database of its own in one real server. Time passes by taking it from every ttl."""

    def __init__(self, server: RedisServer, engine: Engine) -> None:
        self._clients = {
            node: redis.Redis(host=HOST, port=server.port, db=place)
            for place, node in enumerate(engine.nodes, FIRST_DATABASE)
        }
        self._down: set[str] = set()
        for client in self._clients.values():
            client.flushdb()
            if isinstance(engine, LeftOver):
                client.set("lock", "0")

    def play(self, act: Act) -> None:
        if act.kind == "passes":
            for client in self._clients.values():
                self._pass(client, act.seconds)
        elif act.kind == "node down":
            self._down.add(act.who)
        elif act.kind == "restart":
            self._clients[act.who].flushdb()
        elif act.kind == "clock":
            self._pass(self._clients[act.who], AHEAD)
        elif act.ask is not None:
            reply = self._answers(act.ask, act.unreached)
            assert reply == act.reply or act.unreached == tuple(self._clients), act

    def close(self) -> None:
        for client in self._clients.values():
            client.close()

    def _answers(self, what: Ask, unreached: tuple[str, ...]) -> Any:
        nodes = list(self._clients) if what.at == ALL else [what.at] if what.at in self._clients else ["Redis"]
        assert self._down & set(nodes) <= set(unreached)
        replies = [None if node in unreached else asked_of(self._clients[node], what) for node in nodes]
        return tuple(replies) if what.at == ALL else replies[0]

    def _pass(self, client: redis.Redis, seconds: int) -> None:
        for key in client.keys("*"):
            left = int(raw(client, f"PTTL {key.decode()}"))
            if left >= 0:
                # Rounded up: the moments that the test itself took have not passed in the history.
                whole = -(-left // 1000) - seconds
                raw(client, f"EXPIRE {key.decode()} {whole}")


@pytest.mark.parametrize("name", [name for name in ON_REDIS if name != "redlock-split"])
def test_a_real_server_answers_a_whole_history_in_the_same_way(name: str) -> None:
    search = searched(name)
    with ExitStack() as stack:
        world = World(shared_server(), search.lab.protocol.engine)
        stack.callback(world.close)
        for act, _ in search.found.trail:
            world.play(act)


def test_split_votes_are_answered_in_the_same_way() -> None:
    """All ask at once; at each node the first of them is the one that gets it."""
    search = searched("redlock-split")
    clients, nodes = search.lab.protocol.clients, search.lab.protocol.engine.nodes
    with ExitStack() as stack:
        world = World(shared_server(), search.lab.protocol.engine)
        stack.callback(world.close)
        for act, after in search.found.trail:
            assert {each.who for each in act.others} == set(clients)
            for place, node in enumerate(nodes):
                first = clients[after.first_at[place]]
                for each in sorted(act.others, key=lambda each: each.who != first):
                    assert each.ask is not None
                    world.play(each._replace(ask=each.ask._replace(at=node), reply=each.reply[place]))


# One server -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def connection() -> Iterator[redis.Redis]:
    with redis.Redis(host=HOST, port=shared_server().port, db=FIRST_DATABASE) as connection:
        connection.flushdb()
        yield connection


ALIKE: dict[str, list[Ask]] = {
    "a transaction has no if": [
        ask("SETNX lock A", f"EXPIRE lock {TTL}"),
        ask("EXPIRE lock 10"),
        ask("SETNX lock B", f"EXPIRE lock {TTL}"),
        ask("GET lock"),
        ask("TTL lock"),
    ],
    "a transaction on another's lock without expiry": [
        ask("SETNX lock A"),
        ask("TTL lock"),
        ask("SETNX lock B", f"EXPIRE lock {TTL}"),
        ask("TTL lock"),
    ],
    "what is not there does not expire": [ask(f"EXPIRE lock {TTL}"), ask("SETNX lock A"), ask("TTL lock")],
    "a set that is refused leaves the ttl": [
        ask(f"SET lock A NX EX {TTL}"),
        ask("EXPIRE lock 7"),
        ask(f"SET lock B NX EX {TTL}"),
        ask("TTL lock"),
        ask("GET lock"),
    ],
    "getset takes the expiry away": [
        ask("SETNX lock 30"),
        ask("EXPIRE lock 9"),
        ask("GETSET lock 31"),
        ask("TTL lock"),
        ask("GETSET other 1"),
    ],
    "only its owner deletes it": [
        delete_if_mine("A"),
        ask(f"SET lock A NX EX {TTL}"),
        delete_if_mine("B"),
        delete_if_mine("A"),
        ask("GET lock"),
    ],
    "a count for each owner": [
        Ask(("lock", "A"), script=COUNT_UP),
        Ask(("lock", "A"), script=COUNT_UP),
        Ask(("lock", "B"), script=COUNT_UP),
        Ask(("lock", "B"), script=COUNT_DOWN),
        Ask(("lock", "A"), script=COUNT_DOWN),
        ask("TTL lock"),
        Ask(("lock", "A"), script=COUNT_DOWN),
        ask("EXISTS lock"),
        Ask(("lock", "A"), script=COUNT_DOWN),
    ],
}


@pytest.mark.parametrize("what", ALIKE)
def test_the_same_questions_get_the_same_answers(what: str, connection: redis.Redis) -> None:
    engine = Alone()
    state = engine.start()
    for each in ALIKE[what]:
        answer = engine.ask(state, "A", each)
        state = answer.state
        assert answer.reply == asked_of(connection, each), each


def test_the_ttl_of_a_dead_holder_is_renewed_by_who_is_refused() -> None:
    """What breaks MULTI/EXEC, seen from the server."""
    engine = Alone()
    attempt = ask("SETNX lock B", f"EXPIRE lock {TTL}")
    state = engine.ask(engine.start(), "A", ask("SETNX lock A", f"EXPIRE lock {TTL}")).state
    for _ in range(5):
        state = engine.passes(state, 20, frozenset())
        assert engine.next(state, frozenset()) == 10
        answer = engine.ask(state, "B", attempt)
        assert answer.reply == (0, 1)
        state = answer.state
    assert engine.next(state, frozenset()) == TTL


def test_what_expires_is_gone_at_its_second_and_not_before() -> None:
    engine = Alone()
    held = engine.ask(engine.start(), "A", ask(f"SET lock A NX EX {TTL}")).state
    almost = engine.passes(held, TTL - 1, frozenset())
    assert engine.ask(almost, "A", ask("GET lock")).reply == "A"
    assert engine.lapsed(held, almost) == ""
    over = engine.passes(almost, 1, frozenset())
    assert engine.ask(over, "A", ask("GET lock")).reply is None
    assert engine.lapsed(almost, over)
    assert over == engine.start()


# A primary and its replicas -------------------------------------------------------------------------------------------


class Both:
    """The lab's primary with two replicas beside a real one, whose replicas follow it by ways that can be held."""

    def __init__(self, real: dict[str, RedisServer], ways: dict[str, Proxy]) -> None:
        self.real = real
        self.ways = ways
        self.serves = "primary"
        self._lab = Replicated(len(ways))
        self._state = self._lab.start()
        self._thread = ThreadPoolExecutor(1)

    def ask(self, who: str, what: Ask) -> object:
        answer = self._lab.ask(self._state, who, what)
        assert answer is not None
        self._state = answer.state
        with self.real[self.serves].client() as client:
            assert answer.reply == asked_of(client, what), what
        return answer.reply

    def set_and_wait(self, who: str) -> Future[Any]:
        """On one connection, as WAIT needs it."""

        def set_and_wait() -> Any:
            with self.real[self.serves].client(single_connection_client=True) as client:
                assert asked_of(client, ask(f"SET lock {who} NX EX {TTL}")) == "OK"
                return asked_of(client, ask("WAIT 1 0"))

        answer = self._lab.ask(self._state, who, ask(f"SET lock {who} NX EX {TTL}"))
        assert answer is not None
        assert answer.reply == "OK"
        self._state = answer.state
        return self._thread.submit(set_and_wait)

    def answer_to_wait(self, who: str) -> object:
        answer = self._lab.ask(self._state, who, ask("WAIT 1 0"))
        return None if answer is None else answer.reply

    def happens(self, text: str) -> None:
        happening: Happening = next(each for each in self._lab.happenings(self._state) if each.text == text)
        self._state = happening.state

    def is_blocked(self) -> bool:
        with self.real[self.serves].client() as client:
            return int(client.info("clients")["blocked_clients"]) == 1

    def fail_over(self, to: str) -> None:
        """The primary is killed, and what is still on its way to the replica lost."""
        self.happens(f"{self.serves} goes down, and {to} takes its place")
        self.real[self.serves].kill()
        self.ways[to].cut()
        with self.real[to].client() as client:
            client.replicaof("NO", "ONE")
        self.serves = to

    def close(self) -> None:
        self._thread.shutdown()


@pytest.fixture
def both() -> Iterator[Both]:
    with ExitStack() as stack:
        real = {"primary": stack.enter_context(RedisServer("--repl-diskless-sync-delay", "0"))}
        ways = {}
        for name in ("replica 1", "replica 2"):
            ways[name] = stack.enter_context(Proxy((HOST, real["primary"].port)))
            real[name] = stack.enter_context(RedisServer("--replicaof", f"{HOST} {ways[name].port}"))
        with real["primary"].client() as client:
            until(lambda: is_followed(client, len(ways)), within=20)
        world = Both(real, ways)
        stack.callback(world.close)
        yield world


def is_followed(client: redis.Redis, by: int) -> bool:
    info = client.info("replication")
    return [info.get(f"slave{place}", {}).get("state") for place in range(by)] == ["online"] * by


def test_a_write_that_no_replica_has_got_is_lost_with_the_primary(both: Both) -> None:
    both.ways["replica 1"].hold()
    both.ways["replica 2"].hold()
    assert both.ask("A", ask(f"SET lock A NX EX {TTL}")) == "OK"
    assert both.ask("B", ask(f"SET lock B NX EX {TTL}")) is None
    both.fail_over("replica 1")
    assert both.ask("B", ask(f"SET lock B NX EX {TTL}")) == "OK"


def test_wait_waits_for_one_replica_and_another_may_take_over(both: Both) -> None:
    both.ways["replica 1"].hold()
    both.ways["replica 2"].hold()
    waiting = both.set_and_wait("A")
    until(both.is_blocked)
    assert both.answer_to_wait("A") is None
    both.ways["replica 1"].let_go()
    both.happens("replica 1 gets what primary has")
    assert waiting.result(timeout=10) == both.answer_to_wait("A") == 1
    both.fail_over("replica 2")
    assert both.ask("B", ask(f"SET lock B NX EX {TTL}")) == "OK"


def test_a_write_that_the_replica_has_got_survives_the_primary(both: Both) -> None:
    both.ways["replica 2"].hold()
    waiting = both.set_and_wait("A")
    both.happens("replica 1 gets what primary has")
    assert waiting.result(timeout=10) == both.answer_to_wait("A") == 1
    both.fail_over("replica 1")
    assert both.ask("B", ask(f"SET lock B NX EX {TTL}")) is None
    assert both.ask("B", ask("GET lock")) == "A"


def test_who_waits_when_the_primary_goes_down_is_told_of_no_replica() -> None:
    engine = Replicated(1)
    answer = engine.ask(engine.start(), "A", ask(f"SET lock A NX EX {TTL}"))
    assert answer is not None
    (failover, _) = engine.happenings(answer.state)
    assert isinstance(failover.state, Copies)
    told = engine.ask(failover.state, "A", ask("WAIT 1 0"))
    assert told is not None
    assert told.reply == 0
