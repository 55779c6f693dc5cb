"""Users and passwords: who logs in when, and what becomes of a token that has expired."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from gripfast.machine import boottime
from gripfast.runtime.blocking import drive
from gripfast.stores.etcd.aio import AioLink
from gripfast.stores.etcd.blocking import BlockingLink
from gripfast.stores.etcd.dial import Dialer
from gripfast.stores.etcd.faults import fault_of
from gripfast.stores.etcd.link import Refusal
from gripfast.stores.etcd.messages import DeleteRangeRequest, PutRequest, RangeRequest
from gripfast.stores.faults import Fault
from stores.etcd_stage import COLOURS, SOON, stage
from support.etcd_servers import EtcdServer, etcd_server
from support.waiting import until

ROOT = ("root", "secret")
USER = ("locker", "p@ss")
MINE = b"locks/"
TTL = 1
"""Seconds that a token lives without being used."""


@pytest.fixture(params=COLOURS)
def colour(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def server() -> Iterator[EtcdServer]:
    flags = (f"--auth-token-ttl={TTL}", "--bcrypt-cost=4", "--logger=zap", "--log-level=debug")
    with EtcdServer(*flags) as running:
        running.ctl("user", "add", ":".join(ROOT))
        running.ctl("user", "grant-role", "root", "root")
        running.ctl("role", "add", "locker")
        running.ctl("role", "grant-permission", "--prefix=true", "locker", "readwrite", MINE.decode())
        running.ctl("user", "add", ":".join(USER))
        running.ctl("user", "grant-role", "locker", "locker")
        running.ctl("auth", "enable")
        yield running


def expire(server: EtcdServer, token: str) -> None:
    """Wait until the member does not know the token any more: whoever uses it would refresh it."""
    until(lambda: _logged(server, "deleted a simple token", f'"token":"{token}"'), within=20)


def _logged(server: EtcdServer, *words: str) -> int:
    return sum(all(word in line for word in words) for line in server.log.splitlines())


def test_a_user_may_do_what_it_was_granted_and_is_told_of_the_rest(colour: str, server: EtcdServer) -> None:
    with stage(colour, server.address, login=USER) as actor:
        assert not isinstance(actor.call(PutRequest(MINE + b"a", b"1")), Fault | Refusal)
        refusal = actor.call(PutRequest(b"other"))
        assert isinstance(refusal, Refusal)
        assert fault_of(refusal).kind == "no_rights"


@pytest.mark.parametrize("login", [("locker", "wrong"), ("nobody", "p@ss")])
def test_a_wrong_password_is_permanent_and_nothing_was_sent(colour: str, server: EtcdServer, login: Any) -> None:
    with stage(colour, server.address, login=login) as actor:
        fault = actor.call(PutRequest(MINE + b"a"))
        assert fault.kind == "login"
        assert fault.is_permanent
        assert not fault.was_sent
        assert "check them in the URL" in str(fault.error)


def test_without_a_user_it_is_said_what_to_do(colour: str, server: EtcdServer) -> None:
    with stage(colour, server.address) as actor:
        fault = fault_of(actor.call(PutRequest(MINE + b"a")))
        assert fault.kind == "login"
        assert "user:password@" in str(fault.error)


def test_a_user_where_there_are_none_is_no_trouble(colour: str) -> None:
    with stage(colour, etcd_server().address, login=USER) as actor:
        assert not isinstance(actor.call(RangeRequest(b"a")), Fault | Refusal)


def test_an_expired_token_is_renewed_without_the_caller_noticing(colour: str, server: EtcdServer) -> None:
    with stage(colour, server.address, login=USER) as actor:
        actor.call(PutRequest(MINE + b"a", b"1"))
        before = actor.link.token
        expire(server, before)
        answers = actor.call_many([RangeRequest(MINE + b"a"), PutRequest(b"other"), RangeRequest(MINE + b"a")])
        assert [isinstance(each, Refusal) for each in answers] == [False, True, False]
        assert actor.link.token != before


def test_a_restarted_member_has_forgotten_the_token(colour: str) -> None:
    with EtcdServer("--bcrypt-cost=4") as own:
        own.ctl("user", "add", ":".join(ROOT))
        own.ctl("user", "grant-role", "root", "root")
        own.ctl("auth", "enable")
        with stage(colour, own.address, login=ROOT) as actor:
            actor.call(PutRequest(b"a", b"1"))
            own.restart()
            assert actor.call(RangeRequest(b"a")).kvs[0].value == b"1"


def test_changed_rights_do_not_stop_those_who_are_logged_in(colour: str, server: EtcdServer) -> None:
    """Every change makes all tokens old."""
    with stage(colour, server.address, login=USER) as actor:
        actor.call(PutRequest(MINE + b"a", b"1"))
        server.ctl("role", "grant-permission", "locker", "read", f"extra-{colour}", user=":".join(ROOT))
        assert actor.call(RangeRequest(MINE + b"a")).kvs[0].value == b"1"


def test_a_watch_that_is_not_permitted_is_refused(colour: str, server: EtcdServer) -> None:
    with stage(colour, server.address, login=USER) as actor:
        assert actor.watch(b"other").hear().kind == "refused"


def test_a_watch_after_the_token_has_expired_is_there_at_the_second_try(colour: str, server: EtcdServer) -> None:
    """Its member does not say why it refuses: the next one has a new token."""
    with stage(colour, server.address, login=USER) as actor:
        put = actor.call(PutRequest(MINE + b"w"))
        expire(server, actor.link.token)
        heard = actor.watch(MINE + b"w", put.header.revision + 1)
        if (notice := heard.hear(seconds=1.0)) is not None:
            assert notice.kind in ("refused", "lost")
            heard = actor.watch(MINE + b"w", put.header.revision + 1)
        actor.call(DeleteRangeRequest(MINE + b"w"))
        assert heard.hear().kind == "changed"


def logins(server: EtcdServer) -> int:
    return _logged(server, "authenticated a user", '"user-name":"locker"')


def test_one_login_serves_all_threads(server: EtcdServer) -> None:
    before = logins(server)
    link = BlockingLink(Dialer([server.address], SOON, login=USER))

    def ask(_: int) -> Any:
        return drive(link.call(RangeRequest(MINE), boottime() + SOON))

    with ThreadPoolExecutor(8) as threads:
        assert not any(isinstance(each, Fault | Refusal) for each in threads.map(ask, range(40)))
    drive(link.close())
    assert logins(server) == before + 1


def test_one_login_serves_all_tasks(server: EtcdServer) -> None:
    async def scenario() -> list[Any]:
        link = AioLink(Dialer([server.address], SOON, login=USER))
        answers = await asyncio.gather(*[link.call(RangeRequest(MINE), boottime() + SOON) for _ in range(40)])
        await link.close()
        return answers

    before = logins(server)
    assert not any(isinstance(each, Fault | Refusal) for each in asyncio.run(scenario()))
    assert logins(server) == before + 1
