"""What the README shows works as printed."""

import re
import subprocess
import sysconfig
from pathlib import Path

import pytest
import yaml

import gripfast
from sim.test_redlock_seeds import CHUNK, CHUNKS
from sim.test_seeds import SEEDS
from support.pages import ROOT, blocks, page, run_program

README = (ROOT / "README.md").read_text(encoding="utf-8")
FRESH_MACHINE = (
    'python3 -m venv .venv && .venv/bin/pip install . && .venv/bin/gripfast run nightly -- echo "only one of me"'
)
EVERYTHING = "make test"


def test_every_example_of_the_readme_runs_from_top_to_bottom_and_again(tmp_path: Path) -> None:
    for code in blocks(README, "python") * 2:
        assert run_program(code, tmp_path)


def test_the_readme_begins_with_what_it_does_for_its_reader() -> None:
    """Before the first heading: a program, and nothing that has to be installed, configured or measured first."""
    beginning = README.partition("\n## ")[0]
    assert blocks(beginning, "python")
    assert not blocks(beginning, "sh")


def test_the_readme_shows_a_lock_of_the_lab_that_breaks_and_how_many_there_are() -> None:
    pictures = re.findall(r"!\[[^]]+\]\((docs/lab/.+?)\)", README)
    broken, kept = ((ROOT / picture).read_text(encoding="utf-8") for picture in pictures)
    assert "Broken: exclusion" in broken
    assert "Broken" not in kept
    assert f"[The lab](docs/lab.md) has {page('lab').count(' breaks after ')} such" in README


def test_what_runs_where_is_what_the_workflows_run() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text(encoding="utf-8"))["jobs"]
    linux, macos = (jobs[name]["strategy"]["matrix"]["python"] for name in ("linux", "macos"))
    table = README.partition("## What runs where")[2].partition("\n## ")[0]
    assert f"with Python {linux[0]} to {linux[-1]} and real servers" in table
    assert f"with Python {' and '.join(macos)}:" in table
    assert not any("windows" in jobs[name]["runs-on"] for name in jobs)


def test_the_readme_shows_a_sync_and_an_async_example() -> None:
    code = blocks(README, "python")
    assert any("with " in block and "async with " not in block for block in code)
    assert any("async with " in block for block in code)


@pytest.mark.parametrize("command", [FRESH_MACHINE, EVERYTHING])
def test_the_readme_prints_the_command(command: str) -> None:
    assert command in [line.strip() for block in blocks(README, "sh") for line in block.splitlines()]


def test_the_main_job_works_once_installed(tmp_path: Path) -> None:
    job = FRESH_MACHINE.rpartition(" && ")[2].replace(".venv/bin", sysconfig.get_path("scripts"))
    ended = subprocess.run(job, shell=True, cwd=tmp_path, capture_output=True, text=True, timeout=50, check=False)
    assert (ended.returncode, ended.stdout) == (0, "only one of me\n"), ended.stderr


def test_the_readme_says_how_much_is_a_sample() -> None:
    three, five = (CHUNK * CHUNKS[name] for name in ("redlock3", "redlock5"))
    runs = f"{SEEDS:,} simulated runs (seeds) with one Redis server, {three} with Redlock on three nodes, {five} with"
    assert runs in README


def test_the_table_of_stores_says_which_of_them_tell_how_many_wait() -> None:
    lines = README.partition("\n## Stores\n")[2].splitlines()
    heads, row = (next(line for line in lines if line.startswith(head)) for head in ("| | ", "| tells how many wait "))
    urls = [re.findall(r"`(\w+://[^`]+)`", cell)[0] for cell in heads.split("|")[2:-1]]
    told = [cell.strip() for cell in row.split("|")[2:-1]]
    for url, answer in zip(urls, told, strict=True):
        with gripfast.connect(url) as client:
            assert (answer == "yes") == client.capabilities.waiters_seen, url
