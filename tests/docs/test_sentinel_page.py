"""What docs/sentinel.md shows works as printed, and what it says about rights and messages is what one finds."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import gripfast
from gripfast.stores.sentinel import faults
from gripfast.stores.sentinel.factory import PORT
from gripfast.stores.sentinel.spec import SPEC
from support.pages import ROOT, blocks, page, run_program
from support.redis_server import HOST
from support.sentinel_servers import SERVICE, Watched

PAGE = page("sentinel")


@pytest.fixture(scope="module")
def watched() -> Iterator[Watched]:
    with Watched(replicas=1, down_after=3600.0) as watched:
        watched.opened()
        yield watched


def at(watched: Watched, text: str) -> str:
    for port, sentinel in zip((26379, 26380, 26381), watched.sentinels, strict=True):
        for written in (f"localhost:{port}", f'"localhost", {port}'):
            text = text.replace(written, written.replace("localhost", HOST).replace(str(port), str(sentinel.port)))
    return text.replace("mymaster", SERVICE)


@pytest.mark.parametrize("code", blocks(PAGE, "python"))
def test_every_example_of_the_page_runs(watched: Watched, code: str, tmp_path: Path) -> None:
    assert run_program(at(watched, code), tmp_path)


def test_schemes_and_options_are_those_of_the_spec() -> None:
    for scheme in SPEC.schemes:
        assert f"`{scheme}://" in PAGE
    for option in SPEC.options:
        assert f"`{option}`" in PAGE
    assert f"The default port is {PORT}" in PAGE


def test_the_rights_of_the_page_are_enough(watched: Watched) -> None:
    (line,) = [
        line for block in blocks(page("redis"), "redis") for line in block.splitlines() if "gripfast reset" in line
    ]
    (more,) = re.findall(r"one more right than on .*?: `(\+\w+)`", PAGE)
    sentinels = re.findall(r"`(\+sentinel\|[a-z-]+)`", PAGE)
    assert len(sentinels) == 3
    for server in watched.servers:
        watched.command(server, *line.split(), more)
    for sentinel in watched.sentinels:
        watched.command(sentinel, "ACL", "SETUSER", "asker", "reset", "on", ">change-me", "+ping")
        watched.command(sentinel, "ACL", "SETUSER", "asker", *sentinels)
    hosts = ",".join(f"{HOST}:{sentinel.port}" for sentinel in watched.sentinels)
    query = "sentinel_username=asker&sentinel_password=change-me"
    url = f"redis+sentinel://gripfast:change-me@{hosts}/{SERVICE}?{query}"
    with gripfast.connect(url) as client, gripfast.connect(url) as other:
        with client.lock("nightly") as lease:
            assert lease.held
            with pytest.raises(gripfast.LockTimeout):
                other.lock("nightly").acquire(wait=0.1)


def test_the_messages_are_those_of_the_code() -> None:
    rows = PAGE.partition("| message |")[2].partition("\n\n")[0].splitlines()[2:]
    texts = Path(faults.__file__).read_text(encoding="utf-8").replace('"\n        f"', "")
    assert len(rows) == 6
    for row in rows:
        words = row.split("|")[1].strip().removeprefix("its primary, host:port ")
        found = texts + (ROOT / "src/gripfast/stores/redis/faults.py").read_text(encoding="utf-8")
        assert all(part in found for part in words.split(": ")), words
