"""What the README shows works as printed."""

import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
FRESH_MACHINE = (
    'python3 -m venv .venv && .venv/bin/pip install . && .venv/bin/holdfast run nightly -- echo "only one of me"'
)
EVERYTHING = "make test"


def blocks(text: str, language: str) -> list[str]:
    """The fenced blocks of this language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def readme_blocks(language: str) -> list[str]:
    return blocks(README.read_text(encoding="utf-8"), language) if README.exists() else []


def run(command: list[str] | str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run as a user who has set nothing: the test's own home, warnings as errors."""
    environment = {**os.environ, "PYTHONWARNINGS": "error"}
    return subprocess.run(
        command, shell=isinstance(command, str), cwd=folder, env=environment, capture_output=True, text=True, timeout=50
    )


@pytest.mark.parametrize("code", readme_blocks("python"))
def test_every_example_of_the_readme_runs(code: str, tmp_path: Path) -> None:
    ended = run([sys.executable, "-c", code], tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert not re.search("Traceback|Warning", ended.stderr), ended.stderr


def test_the_readme_shows_a_sync_and_an_async_example() -> None:
    code = readme_blocks("python")
    assert any("with " in block and "async with " not in block for block in code)
    assert any("async with " in block for block in code)


@pytest.mark.parametrize("command", [FRESH_MACHINE, EVERYTHING])
def test_the_readme_prints_the_command(command: str) -> None:
    lines = [line.strip() for block in readme_blocks("(?:sh|bash|shell|console)") for line in block.splitlines()]
    assert command in [line.removeprefix("$ ") for line in lines]


def test_the_main_job_works_once_installed(tmp_path: Path) -> None:
    job = FRESH_MACHINE.rpartition(" && ")[2].replace(".venv/bin", sysconfig.get_path("scripts"))
    ended = run(job, tmp_path)
    assert (ended.returncode, ended.stdout) == (0, "only one of me\n"), ended.stderr


def test_blocks_are_found_by_their_language() -> None:
    text = "a\n```python\nx = 1\n```\n```sh\nmake test\n```\n```python\ny = 2\n\nz = 3\n```\n"
    assert blocks(text, "python") == ["x = 1\n", "y = 2\n\nz = 3\n"]
    assert blocks(text, "sh") == ["make test\n"]


def test_an_example_that_fails_would_be_noticed(tmp_path: Path) -> None:
    assert run([sys.executable, "-c", "import warnings; warnings.warn('old')"], tmp_path).returncode == 1
