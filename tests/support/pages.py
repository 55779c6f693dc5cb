"""The pages of docs/: their blocks, and how these are run.

A `python` block is a program. If a `text` block follows it with nothing in between but a line that ends in a colon,
that is what the program prints. A `console` block is a shell: lines that begin with `$ ` are typed, the others are
printed. In what is printed `…` stands for anything that has no end of line in it.

A block of any language is a file, and no program, if the line before it is its name and nothing else: "`shop.py`:". It
is there when the programs and shells of its page run.
"""

import os
import re
import subprocess
import sys
import sysconfig
import textwrap
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(path.stem for path in DOCS.glob("*.md"))
_BLOCK = r"^( *)```{}\n(.*?)^\1```$"
_PROGRAM = re.compile(
    _BLOCK.format("python") + r"(?:\n+(?:[^\n`]*:\n+)?```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL
)
_FILE = re.compile(r"^`([\w-]+\.\w+)`:\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_MARK = "-- this command is over --"
PATIENCE = 150
"""Seconds for all commands of a block: what only a hang reaches. Some take half a minute on a machine that is idle."""


class Program(NamedTuple):
    code: str
    prints: str | None
    """None if the page does not say."""


def page(name: str) -> str:
    return (DOCS / f"{name}.md").read_text(encoding="utf-8")


def blocks(text: str, language: str) -> list[str]:
    """The fenced blocks of this language, in order, also those inside a list."""
    found = re.findall(_BLOCK.format(language), text, re.MULTILINE | re.DOTALL)
    return [textwrap.dedent(block) for _, block in found]


def programs(text: str) -> list[Program]:
    found = _PROGRAM.findall(_FILE.sub("", text))
    return [Program(textwrap.dedent(code), prints or None) for _, code, prints in found]


def files(text: str) -> dict[str, str]:
    """What the page says should be in files, by their names."""
    return dict(_FILE.findall(text))


def write_files(text: str, folder: Path) -> None:
    for name, content in files(text).items():
        (folder / name).write_text(content, encoding="utf-8")


def run_program(code: str, folder: Path) -> str:
    """What it prints, run as a user would run it, with warnings as errors. It must end well and complain of nothing."""
    environment = {**os.environ, "PYTHONWARNINGS": "error"}
    command = [sys.executable, "-c", code]
    ended = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert not re.search("Traceback|Warning", ended.stderr), ended.stderr
    return ended.stdout


def typed(console: str) -> list[tuple[str, str]]:
    """Each command of a `console` block, and what is printed after it."""
    parts = re.split(r"^\$ (.*)\n", console, flags=re.MULTILINE)[1:]
    return list(zip(parts[::2], parts[1::2], strict=True))


def run_typed(commands: list[str], folder: Path) -> list[str]:
    """What each command prints, on either stream, in one shell. Its locks are in the folder."""
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]]),
        "PYTHONWARNINGS": "error",
        "GRIPFAST_URL": f"sqlite:///{folder}/locks.db",
    }
    # `$?` of a command is there for the next one, although the mark is printed in between.
    script = "\n".join(f"{command}\nstatus=$?; echo '{_MARK}'; (exit $status)" for command in commands)
    command = ["bash", "-c", f"exec 2>&1\n{script}"]
    ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE)
    return ended.stdout.split(f"{_MARK}\n")[:-1]


def is_as_told(printed: str, told: str) -> bool:
    return re.fullmatch(re.escape(told).replace("…", ".*"), printed) is not None
