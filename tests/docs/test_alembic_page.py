"""docs/alembic.md: its lines fit into an env.py that Alembic makes, and what it says is printed is printed."""

from pathlib import Path

from contrib.alembic_stage import IMPORT, LOCKED, PATIENCE, Project
from support.pages import blocks, is_as_told, page
from support.waiting import until

PAGE = page("alembic")
WAITS, FAILS, _ = blocks(PAGE, "text")


def apply(block: str, project: Project) -> None:
    lines = block.splitlines(keepends=True)
    old, new = ("".join(line[1:] for line in lines if line[0] in kept) for kept in (" -", " +"))
    project.edit(old, new)


def test_the_two_lines_of_the_page_are_those_that_the_tests_use() -> None:
    added = "".join(
        line[1:] for block in blocks(PAGE, "diff") for line in block.splitlines(keepends=True) if line[0] == "+"
    )
    assert added == IMPORT + LOCKED.format(arguments="").removeprefix("else:\n")


def test_what_the_page_shows_is_printed(tmp_path: Path) -> None:
    project = Project(tmp_path, f"sqlite:///{tmp_path}/shop.db")
    for block in blocks(PAGE, "diff"):
        apply(block, project)
    project.revise('gate("slow")')
    with project.started("upgrade", "head") as first:
        until(lambda: project.has_run("at slow"), within=PATIENCE)
        with project.started("upgrade", "head") as second:
            second.says("Waiting")
            project.edit("migration_lock()", "migration_lock(wait=0)")
            third = project.run("upgrade", "head")
            project.open("slow")
            assert (first.ended(), second.ended()) == (0, 0)
    assert any(is_as_told(line + "\n", WAITS) for line in second.log.splitlines()), second.log
    assert is_as_told(unbroken(third.log) + "\n", FAILS), third.log


def unbroken(log: str) -> str:
    """Alembic's last message, which it breaks into lines that fit the terminal."""
    return " ".join(f"FAILED{log.rpartition('FAILED')[2]}".split())
