"""The project's own files, as the quality tests read them."""

import ast
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "holdfast"


@cache
def files() -> tuple[Path, ...]:
    """Every file that belongs to the project: what git tracks or would track."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return tuple(path for name in sorted(set(listed.split("\0"))) if name and (path := ROOT / name).is_file())


def python_files(*folders: str) -> list[Path]:
    """The Python files below these folders of the project."""
    below = [ROOT / folder for folder in folders]
    return [path for path in files() if path.suffix == ".py" and any(path.is_relative_to(folder) for folder in below)]


def label(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))
