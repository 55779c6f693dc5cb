"""What the pages of docs/ show works as printed. Pages about a server have a test of their own beside this one."""

from pathlib import Path

import pytest

from support.pages import PAGES, blocks, is_as_told, page, programs, run_program, run_typed, typed
from support.redis_server import shared_server
from support.sql_servers import postgres_server

REDIS = "redis://localhost:6379/0"
POSTGRES = "postgresql://me:secret@localhost:5432/shop"
TESTED_ELSEWHERE = {"operations", "redis", "redlock", "sentinel", "sql", "zookeeper"}
HERE = [name for name in PAGES if name not in TESTED_ELSEWHERE]
PROGRAMS = [(name, number) for name in HERE for number, _ in enumerate(programs(page(name)))]
CONSOLES = [(name, number) for name in HERE for number, _ in enumerate(blocks(page(name), "console"))]


def printed_by(code: str, folder: Path) -> str:
    """On servers of ours instead of those that the page names."""
    if REDIS in code:
        return run_program(code.replace(REDIS, shared_server().url), folder)
    if POSTGRES in code:
        with postgres_server().fresh_database() as url:
            return run_program(code.replace(POSTGRES, url), folder)
    return run_program(code, folder)


@pytest.mark.parametrize(("name", "number"), PROGRAMS)
def test_every_program_prints_what_its_page_says(name: str, number: int, tmp_path: Path) -> None:
    code, told = programs(page(name))[number]
    printed = printed_by(code, tmp_path)
    assert printed
    assert told is None or is_as_told(printed, told), printed


@pytest.mark.parametrize(("name", "number"), CONSOLES)
def test_every_command_prints_what_its_page_says(name: str, number: int, tmp_path: Path) -> None:
    session = typed(blocks(page(name), "console")[number])
    for (command, told), printed in zip(session, run_typed([command for command, _ in session], tmp_path), strict=True):
        assert is_as_told(printed, told), f"{command}\n{printed}"


@pytest.mark.parametrize("name", sorted(TESTED_ELSEWHERE))
def test_the_other_pages_have_a_test_of_their_own(name: str) -> None:
    text = (Path(__file__).parent / f"test_{name}_page.py").read_text(encoding="utf-8")
    for kind in ("python", "console"):
        assert not blocks(page(name), kind) or f'blocks(PAGE, "{kind}")' in text
