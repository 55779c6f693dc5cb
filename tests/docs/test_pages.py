"""What the pages of docs/ show works as printed. Pages about a server have a test of their own beside this one."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from support.pages import (
    DOCS,
    PAGES,
    ROOT,
    blocks,
    is_as_told,
    page,
    programs,
    run_program,
    run_typed,
    typed,
    write_files,
)
from support.redis_server import shared_server
from support.sql_servers import postgres_server

REDIS = "redis://localhost:6379/0"
POSTGRES = "postgresql://me:secret@localhost:5432/shop"
TESTED_ELSEWHERE = {
    "alembic", "apscheduler", "celery", "django", "fastapi",
    "operations", "redis", "redlock", "sentinel", "sql", "zookeeper", "etcd",
}  # fmt: skip
HERE = [name for name in PAGES if name not in TESTED_ELSEWHERE]
WITH_PROGRAMS = [name for name in HERE if programs(page(name))]
CONSOLES = [(name, number) for name in HERE for number, _ in enumerate(blocks(page(name), "console"))]


@contextmanager
def servers_of_ours(text: str) -> Iterator[dict[str, str]]:
    """By the addresses that the page has: those of servers of ours. A database is empty when the page is begun."""
    with ExitStack() as stack:
        addresses = {}
        if REDIS in text:
            addresses[REDIS] = shared_server().url
        if POSTGRES in text:
            addresses[POSTGRES] = stack.enter_context(postgres_server().fresh_database())
        yield addresses


def printed_by(code: str, folder: Path, addresses: dict[str, str]) -> str:
    for theirs, ours in addresses.items():
        code = code.replace(theirs, ours)
    return run_program(code, folder)


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("name", WITH_PROGRAMS)
@pytest.mark.timeout(600)
def test_the_programs_print_what_their_page_says_from_top_to_bottom_and_again(name: str, tmp_path: Path) -> None:
    """In one folder and one home: what a reader has run before makes no difference."""
    write_files(page(name), tmp_path)
    with servers_of_ours(page(name)) as addresses:
        for code, told in programs(page(name)) * 2:
            printed = printed_by(code, tmp_path, addresses)
            assert printed
            assert told is None or is_as_told(printed, told), f"{code}\nprints:\n{printed}"


@pytest.mark.in_turn(2)
@pytest.mark.parametrize(("name", "number"), CONSOLES)
def test_every_command_prints_what_its_page_says(name: str, number: int, tmp_path: Path) -> None:
    write_files(page(name), tmp_path)
    session = typed(blocks(page(name), "console")[number])
    for (command, told), printed in zip(session, run_typed([command for command, _ in session], tmp_path), strict=True):
        assert is_as_told(printed, told), f"{command}\n{printed}"


@pytest.mark.parametrize("path", [*DOCS.rglob("*.md"), *ROOT.glob("README*.md")], ids=lambda path: path.stem)
def test_no_program_takes_for_granted_that_the_holder_is_known(path: Path) -> None:
    """`LockTimeout.holder` is often None on some stores, and a reader may change the store of a program."""
    found = [line for block in blocks(path.read_text(encoding="utf-8"), "py(?:thon)?") for line in block.splitlines()]
    assert [line for line in found if "busy.holder." in line and "if busy.holder else" not in line] == []


@pytest.mark.parametrize("name", sorted(TESTED_ELSEWHERE))
def test_the_other_pages_have_a_test_of_their_own(name: str) -> None:
    text = (Path(__file__).parent / f"test_{name}_page.py").read_text(encoding="utf-8")
    for kind in ("python", "console"):
        assert not blocks(page(name), kind) or f'blocks(PAGE, "{kind}")' in text
