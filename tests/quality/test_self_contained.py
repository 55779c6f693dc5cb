"""The project speaks of itself alone: no path of one machine, no tracker, no registry, no document that is not here."""

import re

import pytest

from quality import tree
from quality.tree import ROOT, broken, files, label

# Each pattern is written so that it does not match its own text.
FOREIGN = {
    "a path of one machine": re.compile(r"/wor[k]/|/tmp/h[f]\b|/roo[t]/|/home/[a-z]+/"),
    "a ticket of a tracker": re.compile(r"\bissues?\s#?\d", re.IGNORECASE),
    "a package registry": re.compile(r"inde[x]-url|find-link[s]|/opt/(?:pypi|wheels)|/simpl[e]/|https?://[\w.]*pypi"),
    "a document that is not here": re.compile(r"\b(?:DESIGN|STYLE|TRAPS|SERVERS|PLAN)(?:\.md|,? section)"),
}


def foreign(text: str) -> list[str]:
    """What this text says about the world outside the project."""
    return [f"{what}: {match.group()}" for what, pattern in FOREIGN.items() for match in pattern.finditer(text)]


def test_the_project_speaks_of_itself_alone() -> None:
    assert files()
    assert broken(files(), lambda path: foreign(path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("see /work" + "/main/notes", "a path of one machine"),
        ("in /tmp" + "/hf", "a path of one machine"),
        ("fixes issue" + " #12", "a ticket of a tracker"),
        ("as Issue" + " 2 asks", "a ticket of a tracker"),
        ("--extra-index" + "-url x", "a package registry"),
        ("https://" + "pypi.org/project/x", "a package registry"),
        ("see DESIGN" + " section 3", "a document that is not here"),
        ("see TRAPS" + ".md", "a document that is not here"),
    ],
)
def test_a_planted_foreign_word_is_found(text: str, what: str) -> None:
    assert [found.partition(":")[0] for found in foreign(text)] == [what]


def test_plain_words_are_let_through() -> None:
    assert foreign("This issue is about /var/lib/gripfast, the design, and a plan; the workplace stays.") == []


def test_the_files_of_the_project_are_known_with_and_without_a_repository() -> None:
    assert ROOT / "pyproject.toml" in files()
    assert {label(path) for path in files()} <= tree._unpacked()
    assert not any(".venv" in name or "__pycache__" in name for name in tree._unpacked())
