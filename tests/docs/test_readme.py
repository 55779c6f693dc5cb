"""What the README shows works as printed."""

import subprocess
import sysconfig
from pathlib import Path

import pytest

from sim.test_redlock_seeds import CHUNK, CHUNKS
from sim.test_seeds import SEEDS
from support.pages import ROOT, blocks, run_program

README = (ROOT / "README.md").read_text(encoding="utf-8")
FRESH_MACHINE = (
    'python3 -m venv .venv && .venv/bin/pip install . && .venv/bin/gripfast run nightly -- echo "only one of me"'
)
EVERYTHING = "make test"


@pytest.mark.parametrize("code", blocks(README, "python"))
def test_every_example_of_the_readme_runs(code: str, tmp_path: Path) -> None:
    assert run_program(code, tmp_path)


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
