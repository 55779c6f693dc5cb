"""The project's own files, as the quality tests read them."""

import ast
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "gripfast"
LAB = ROOT / "lab" / "src" / "gripfast_lab"
LEFT_BEHIND = re.compile(
    r"\.(venv|\w+_cache|hypothesis|coverage)|__pycache__|node_modules$|results$|build$|dist$|.*\.egg-info$"
)


@cache
def files() -> tuple[Path, ...]:
    """Every file that belongs to the project: what git tracks or would track."""
    names = _known_to_git() if (ROOT / ".git").exists() else _unpacked()
    return tuple(path for name in sorted(names) if (path := ROOT / name).is_file())


def _known_to_git() -> set[str]:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return set(listed.split("\0")) - {""}


def _unpacked() -> set[str]:
    """An archive without a repository around it: all but what the tools leave behind."""
    paths = (path.relative_to(ROOT) for path in ROOT.rglob("*") if not path.is_relative_to(sys.prefix))
    return {path.as_posix() for path in paths if not any(LEFT_BEHIND.match(part) for part in path.parts)}


def python_files(*folders: str) -> list[Path]:
    """The Python files below these folders of the project."""
    below = [ROOT / folder for folder in folders]
    return [path for path in files() if path.suffix == ".py" and any(path.is_relative_to(folder) for folder in below)]


def label(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def broken(paths: Iterable[Path], rule: Callable[[Path], list[str]]) -> list[str]:
    """What the rule finds in these files, each with its file. All in one test: a test for each file costs more than the
    looking."""
    return [f"{label(path)}: {found}" for path in paths for found in rule(path)]


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))
