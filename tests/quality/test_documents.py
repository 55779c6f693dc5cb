"""The documents exist and are true to the code: what they name is there, and what is there is named."""

import re
from pathlib import Path

import pytest

import holdfast
from quality.tree import PACKAGE, ROOT

DOCUMENTS = ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE"]
QUOTED_PATH = re.compile(r"`([\w./-]+(?:\.(?:py|md|toml|sh)|/))`")


def named_paths(text: str) -> list[str]:
    """Files and folders that a document names in backquotes: `core/lease.py`, `stores/`."""
    return QUOTED_PATH.findall(text)


def is_there(name: str, folder: Path) -> bool:
    """Paths are relative to the package or to the project; a bare file name stands for any file of that name."""
    bare = "/" not in name
    return any((root / name).exists() for root in (PACKAGE, ROOT, folder)) or (bare and any(PACKAGE.rglob(name)))


def parts_of_the_package() -> list[str]:
    return sorted(path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists())


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_document_is_there(name: str) -> None:
    assert (ROOT / name).read_text(encoding="utf-8").strip()


@pytest.mark.parametrize("name", ["ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_every_path_the_document_names_exists(name: str) -> None:
    named = named_paths((ROOT / name).read_text(encoding="utf-8"))
    assert named
    assert [path for path in named if not is_there(path, ROOT)] == []


@pytest.mark.parametrize("part", [part for part in parts_of_the_package() if not part.startswith("_")])
def test_the_architecture_names_every_part_of_the_package(part: str) -> None:
    assert re.search(rf"\b{part}\b", (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8"))


def test_the_changelog_tells_about_the_current_version() -> None:
    assert holdfast.__version__ in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_a_path_that_is_not_there_is_noticed() -> None:
    assert named_paths("see `core/nothing.py`, `nowhere/` and `lease.held`") == ["core/nothing.py", "nowhere/"]
    assert not is_there("core/nothing.py", ROOT)
    assert not is_there("nowhere/", ROOT)
    assert not is_there("nothing.py", ROOT)
    assert is_there("pyproject.toml", ROOT)
