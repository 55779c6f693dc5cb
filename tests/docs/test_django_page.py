"""What docs/django.md shows is in examples/django_shop, and works as printed."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gripfast.cli.run import run
from gripfast.contrib.django.conf import KEYS
from support.pages import ROOT, blocks, is_as_told, page, run_typed, typed
from support.sql_process import DATABASE, PASSWORD, USER
from support.sql_servers import PostgresServer

PAGE = page("django")
EXAMPLE = ROOT / "examples" / "django_shop"


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    return Path(shutil.copytree(EXAMPLE, tmp_path / "shop", ignore=shutil.ignore_patterns("__pycache__", "*.sqlite3*")))


@pytest.mark.parametrize("block", blocks(PAGE, "python"))
def test_every_python_block_of_the_page_is_in_the_example(block: str) -> None:
    sources = [path.read_text(encoding="utf-8") for path in EXAMPLE.rglob("*.py")]
    lines = [[line.strip() for line in text.splitlines()] for text in sources]
    wanted = [line.strip() for line in block.splitlines()]
    assert any(wanted == part[at : at + len(wanted)] for part in lines for at in range(len(part)))


@pytest.mark.parametrize("number", range(len(blocks(PAGE, "console"))))
def test_every_command_prints_what_the_page_says(number: int, shop: Path) -> None:
    session = typed(blocks(PAGE, "console")[number])
    for (command, told), printed in zip(session, run_typed([command for command, _ in session], shop), strict=True):
        assert is_as_told(printed, told), f"{command}\n{printed}"


def test_the_example_works_with_postgresql_too(shop: Path) -> None:
    with PostgresServer() as server:
        server.execute(f"ALTER ROLE {USER} CREATEDB")
        login = {"PGHOST": "127.0.0.1", "PGPORT": str(server.port), "PGUSER": USER, "PGPASSWORD": PASSWORD}
        environment = {**os.environ, **login, "PGDATABASE": DATABASE, "SHOP_DATABASE": "postgresql"}
        command = [sys.executable, "-W", "error", "manage.py", "test", "-v", "0"]
        ended = subprocess.run(command, cwd=shop, env=environment, capture_output=True, text=True, timeout=150)
    assert (ended.returncode, ended.stderr.rstrip().endswith("OK")) == (0, True), ended.stderr


def test_the_keys_are_those_of_the_setting() -> None:
    told = [line.split("`")[1] for line in PAGE.partition("| key |")[2].partition("\n\n")[0].splitlines()[2:]]
    assert tuple(told) == KEYS


def test_every_check_is_on_the_page() -> None:
    from gripfast.contrib.django import checks

    source = Path(checks.__file__).read_text(encoding="utf-8")
    ids = {part.partition('"')[0].rpartition(".")[2] for part in source.split('id="')[1:]}
    assert ids
    assert {id for id in ids if id not in PAGE} == set()


def test_the_page_names_every_option_of_gripfast_run_that_locked_has_not(shop: Path) -> None:
    (helped,) = run_typed(["python manage.py locked --help"], shop)
    missing = {name for option in run.params for name in option.opts if name.startswith("--") and name not in helped}
    (told,) = re.findall(r"It has no (.*?)\. A word", " ".join(PAGE.split()))
    assert set(re.findall(r"`(--[\w-]+)`", told)) == missing
