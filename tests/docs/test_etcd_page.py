"""What docs/etcd.md shows works as printed, and what it says about the cluster is what one finds there."""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

import gripfast
from gripfast.core import rules
from gripfast.runtime.parts import Patience
from gripfast.stores.etcd import doctor, factory, spec, watching
from gripfast.stores.options import COMMON
from support.etcd_servers import EtcdServer
from support.pages import blocks, page, run_program

PAGE = page("etcd")
WORDS = " ".join(PAGE.split())


@pytest.fixture(scope="module")
def server() -> Iterator[EtcdServer]:
    with EtcdServer() as server:
        yield server


def table(first_cell: str) -> list[list[str]]:
    rows = PAGE.partition(f"\n| {first_cell} |")[2].partition("\n\n")[0].splitlines()[2:]
    assert rows
    return [[cell.strip(" ") for cell in row.strip("|").split(" | ")] for row in rows]


def named(text: str) -> list[str]:
    return re.findall("`([^`]+)`", text)


@pytest.mark.parametrize("number", range(2))
def test_the_programs_work(number: int, server: EtcdServer, tmp_path: Path) -> None:
    code = blocks(PAGE, "python")[number].replace("localhost:2379", server.address)
    assert re.fullmatch(r"alone, with token \d+\n", run_program(code, tmp_path))


def test_the_fenced_writes_work(server: EtcdServer, tmp_path: Path) -> None:
    codes = [block.replace("localhost:2379", server.address) for block in blocks(PAGE, "python")[2:]]
    codes = [re.sub(r'"localhost", (port=)?2379', rf'"localhost", \g<1>{server.port}', code) for code in codes]
    refused, written = [run_program(code, tmp_path) for code in codes]
    assert re.fullmatch(r"token \d+ is stale for 'invoice:7': a newer holder has token \d+\. Stop writing\n", refused)
    assert written == "written\n"
    found = server.ctl("get", "", "--from-key").split()
    assert {"invoices/7", "invoices/last", "fence:invoice:7"} < set(found)


def test_the_options_are_all_there_with_their_defaults() -> None:
    rows = {name: row for row in table("option") for name in named(row[0])}
    assert set(rows) == set(spec.SPEC.options) | set(COMMON)
    assert rows["root"][1] == f"`{factory.ROOT}`"
    defaults = (rules.TTL_DEFAULT, factory.EtcdFactory.request_timeout, Patience().connect_patience)
    assert tuple(float(rows[each][1]) for each in ("ttl", "request_timeout", "connect_patience")) == defaults


def test_the_keys_are_those_that_are_there(server: EtcdServer) -> None:
    with gripfast.connect(server.url_with(), prefix="p/") as client:
        lease = client.lock("a%b", label="x").acquire()
        permit = client.semaphore("a%b", limit=2).acquire()
        reader = client.rwlock("a%b").read().acquire()
        found = set(server.ctl("get", "gripfast/", "--prefix", "--keys-only").split())
        value = json.loads(server.ctl("get", f"gripfast/p%2Fa%25b/{lease.owner}", "--print-value-only"))
        client.force_release("a%b", "why")
        broken = server.ctl("get", f"gripfast/p%2Fa%25b%broken/{lease.owner}", "--print-value-only").strip()
        permit.release()
        reader.release()
    shown = [each for row in table("key") for each in named(row[0])]
    expected = {each.replace("NAME", "p%2Fa%25b") for each in shown}
    owners = {lease.owner, permit.owner, reader.owner}
    generic = {re.sub("|".join(owners), "OWNER", key) for key in found}
    assert generic == expected - {"gripfast/p%2Fa%25b%broken/OWNER"}
    assert broken == "why"
    assert {"host", "pid", "label", "ttl", "since"} <= set(value)


def test_the_rights_that_are_listed_are_enough_and_others_have_none(tmp_path: Path) -> None:
    with EtcdServer() as server:
        for line in blocks(PAGE, "sh")[1].splitlines():
            server.ctl(*shlex.split(line)[1:])
        server.ctl("user", "add", "root:secret")
        server.ctl("user", "grant-role", "root", "root")
        server.ctl("auth", "enable")
        url = f"etcd://app1:change-me@{server.address}"
        with gripfast.connect(url) as client:
            use_everything(client)
        with gripfast.connect(url, root="others/") as client, pytest.raises(gripfast.StoreUnavailable, match="role"):
            client.lock("job").try_acquire()


def use_everything(client: gripfast.Client) -> None:
    """What a program or an operator may want."""
    with client.lock("job", min_hold=0.05) as lease:
        lease.extend()
        assert client.lock("job").try_acquire() is None
        assert [each.name for each in client.list()] == ["job"]
    lease = client.lock("job").acquire(wait=10)
    assert client.force_release("job", "why")
    with pytest.raises(gripfast.LeaseLost):
        lease.release()
    with client.semaphore("api", limit=2), client.rwlock("index").write() as writer:
        writer.downgrade()
        assert len(list(client.list(kind="semaphore"))) == 1
    client.semaphore("api", limit=2).resize(3)
    client.adopt(client.lock("job").acquire().detach()).release()


def test_the_faults_are_those_that_the_doctor_knows() -> None:
    rows = [(row[0], row[1]) for row in table("fault")]
    known = [(fault, ", ".join(".".join(map(str, each)) for each in mended)) for mended, fault, _ in doctor.FAULTS]
    assert [mended for _, mended in rows] == [mended for _, mended in known]
    assert all(shown.split(" after ")[0] in fault for (shown, _), (fault, _) in zip(rows, known, strict=True))


def test_a_waiter_reads_again_as_soon_as_the_page_says() -> None:
    assert watching.SLOW_PACE == 10.0
    assert "every 10 s at the latest" in WORDS
    assert watching.again_in(3600) <= 10.0
