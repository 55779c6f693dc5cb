"""The documents exist and are true to the code: what they name is there, and what is there is named."""

import re
from pathlib import Path

import pytest

import gripfast
from quality.tree import LAB, LEFT_BEHIND, PACKAGE, ROOT, label

DOCUMENTS = [
    *("README.md", "README.zh.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "RELEASING.md", "SECURITY.md"),
    *("lab/README.md", "lab/ARCHITECTURE.md"),
]
MAPS = {"ARCHITECTURE.md": PACKAGE, "lab/ARCHITECTURE.md": LAB}
"""Each map, and where its paths start."""
PAGES = sorted((ROOT / "docs").rglob("*.md"))
LINKED_FROM = [*(ROOT / name for name in DOCUMENTS), *PAGES]
FENCED = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
SHELL = re.compile(r"^( *)```(?:sh|console)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
UNSEEN_COMMENT = re.compile(r"""^.*['"\w]#(?: .*)?$""", re.MULTILINE)
"""The shell sees a comment only behind a blank."""
QUOTED_PATH = re.compile(r"`([\w./-]+(?:\.(?:py|md|toml|sh)|/))`")


def named_paths(text: str) -> list[str]:
    """Files and folders that a document names in backquotes: `core/lease.py`, `stores/`."""
    return QUOTED_PATH.findall(text)


def is_there(name: str, folder: Path) -> bool:
    """Paths are relative to a package or to the project; a bare file name stands for any file of that name. What the
    tools make may be elsewhere, or not be made yet."""
    bare = "/" not in name
    return (
        LEFT_BEHIND.match(name.rstrip("/")) is not None
        or any((root / name).exists() for root in (PACKAGE, LAB, ROOT, folder))
        or (bare and any(any(package.rglob(name)) for package in (PACKAGE, LAB)))
    )


def links(text: str) -> list[str]:
    """Where a document leads within the project: `redis.md`, `sql.md#waiting`, `#waiting`."""
    return [link for link in LINK.findall(FENCED.sub("", text)) if "://" not in link]


def anchors(text: str) -> set[str]:
    """What code hosts, and the site, make of headings."""
    plain = (re.sub(r"[^\w\- ]", "", heading).lower() for heading in HEADING.findall(FENCED.sub("", text)))
    return {heading.strip().replace(" ", "-") for heading in plain}


def leads_somewhere(link: str, document: Path) -> bool:
    name, _, anchor = link.partition("#")
    target = document.parent / name if name else document
    return target.exists() and (not anchor or anchor in anchors(target.read_text(encoding="utf-8")))


def unseen_comments(text: str) -> list[str]:
    """Lines of shell commands whose comment the shell would take for words."""
    return [line for _, block in SHELL.findall(text) for line in UNSEEN_COMMENT.findall(block)]


def parts_of_the_package() -> list[str]:
    return sorted(path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists())


@pytest.mark.parametrize("name", [*DOCUMENTS, "LICENSE"])
def test_the_document_is_there(name: str) -> None:
    assert (ROOT / name).read_text(encoding="utf-8").strip()


def test_every_path_the_document_names_exists() -> None:
    named = named_paths((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    assert named
    assert [path for path in named if not is_there(path, ROOT)] == []


@pytest.mark.parametrize("name", MAPS)
def test_every_path_on_a_map_is_whole_and_exists(name: str) -> None:
    """Below one folder, or below the project: a reader need not search for a file."""
    named = named_paths((ROOT / name).read_text(encoding="utf-8"))
    assert named
    assert [path for path in named if not any((base / path).exists() for base in (MAPS[name], ROOT))] == []


@pytest.mark.parametrize(("name", "there"), [(".venv/", True), ("nowhere.md", False), ("tests/nowhere/", False)])
def test_only_what_the_tools_make_may_be_missing(name: str, there: bool, tmp_path: Path) -> None:
    assert is_there(name, tmp_path) == there


@pytest.mark.parametrize("part", [part for part in parts_of_the_package() if not part.startswith("_")])
def test_the_architecture_names_every_part_of_the_package(part: str) -> None:
    assert re.search(rf"\b{part}\b", (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8"))


def test_the_command_line_lists_every_module_of_its_own() -> None:
    text = (PACKAGE / "cli" / "__init__.py").read_text(encoding="utf-8")
    modules = {path.stem for path in (PACKAGE / "cli").iterdir() if not path.stem.startswith("_")}
    assert {name for name in modules if not re.search(rf"^{name} |`{name}`", text, re.MULTILINE)} == set()


def test_the_changelog_tells_about_the_current_version() -> None:
    assert gripfast.__version__ in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("document", LINKED_FROM, ids=label)
def test_every_link_of_the_document_leads_somewhere(document: Path) -> None:
    found = links(document.read_text(encoding="utf-8"))
    assert [link for link in found if not leads_somewhere(link, document)] == []


@pytest.mark.parametrize("document", LINKED_FROM, ids=label)
def test_every_comment_behind_a_command_is_seen_by_the_shell(document: Path) -> None:
    assert unseen_comments(document.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "index.md"], ids=label)
def test_the_map_of_the_documentation_has_every_page(page: Path) -> None:
    """The menu of the site is made of these links, too."""
    name = page.relative_to(ROOT / "docs").as_posix()
    assert links((ROOT / "docs" / "index.md").read_text(encoding="utf-8")).count(name) == 1


def test_the_readme_leads_to_the_documentation() -> None:
    assert "docs/index.md" in links((ROOT / "README.md").read_text(encoding="utf-8"))


def test_a_path_that_is_not_there_is_noticed() -> None:
    assert named_paths("see `core/nothing.py`, `nowhere/` and `lease.held`") == ["core/nothing.py", "nowhere/"]
    assert not is_there("core/nothing.py", ROOT)
    assert not is_there("nowhere/", ROOT)
    assert not is_there("nothing.py", ROOT)
    assert is_there("pyproject.toml", ROOT)


def test_a_link_that_leads_nowhere_is_noticed() -> None:
    text = "[a](b.md) [c](d.md#e) [f](https://g.h) ![i](j.svg)\n```\n[k](l.md)\n```\n"
    assert links(text) == ["b.md", "d.md#e", "j.svg"]
    assert anchors("# What Redis can't do\n```\n# no heading\n```\n## `x`, y\n") == {"what-redis-cant-do", "x-y"}
    readme = ROOT / "README.md"
    assert leads_somewhere("docs/redis.md#what-redis-cant-do", readme)
    assert leads_somewhere("#stores", readme)
    assert not leads_somewhere("docs/redis.md#what-redis-can-do", readme)
    assert not leads_somewhere("docs/nothing.md", readme)
    assert not leads_somewhere("#nothing", readme)


def test_a_comment_that_the_shell_does_not_see_is_noticed() -> None:
    assert unseen_comments("```sh\npip install '.[x]'# in a clone\nmake #1 # two\n```\n") == [
        "pip install '.[x]'# in a clone"
    ]
    assert unseen_comments("```sh\npip install '.[x]'  # in a clone\ncurl host/#top\n```\n") == []
