"""docs/doctor.md: its example is what the command prints, and its tables have every finding, each of which a test has
seen. That the tables are what the code says: `test_reference_pages.py`."""

import importlib
import inspect
import re

import pytest

from gripfast.api.config import configure
from gripfast.api.doctor import examine
from gripfast.cli.doctor import WIDTH_MOST, as_dict, lines
from gripfast.stores.doctor import Check, checks_in
from scripts.reference import doctors
from support.pages import ROOT, blocks, page
from support.redis_server import RedisServer

PAGE = page("doctor")
MODULES = [importlib.import_module(module) for _, module in doctors()]
CHECKS = [(module, check) for module in MODULES for check in checks_in(module)]
TESTS = [*(ROOT / "tests" / "stores").glob("test_*_doctor.py"), ROOT / "tests" / "cli" / "test_doctor.py"]

each_check = pytest.mark.parametrize(("module", "check"), CHECKS, ids=lambda value: getattr(value, "name", ""))


def words_of(text: str) -> list[str]:
    """Without what differs from one server, one moment and one terminal to the next."""
    text = re.sub(r"\x1b\[\d*m", "", text)
    text = re.sub(r"redis://\S+", "redis://…", text)
    text = re.sub(r"Redis \d[\d.]*", "Redis …", text)
    return re.sub(r"[\d.]+ ms", "… ms", text).split()


def test_the_example_is_what_it_prints() -> None:
    with RedisServer("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru") as server:
        report = examine(configure(server.url, {}))
    [shown] = blocks(PAGE, "text")
    assert words_of("\n".join(lines(report, False, WIDTH_MOST))) == words_of(shown)


def test_every_key_of_the_json_is_told() -> None:
    report = as_dict(examine(configure("memory://", {}), quick=True))
    assert re.findall(r"^\| `(\w+)` \|", PAGE.partition("## As JSON")[2].partition("##")[0], re.MULTILINE) == [*report]


def test_names_belong_to_one_finding_each() -> None:
    names = [check.name for _, check in CHECKS]
    assert len(names) == len(set(names))
    assert all(re.fullmatch("[a-z0-9]+(-[a-z0-9]+)*", name) for name in names)


@each_check
def test_the_page_has_the_finding(module: object, check: Check) -> None:
    assert f"\n| `{check.name}` | {check.kind} | " in PAGE


@each_check
def test_a_finding_says_what_why_and_what_to_do(module: object, check: Check) -> None:
    assert all((check.what, check.why, check.todo))
    assert not check.what.endswith(".")
    assert check.why.endswith((".", "}"))
    assert not check.todo.endswith(".")
    assert not any(text[: len(text) // 2] == text[len(text) // 2 :] for text in check[2:])


@each_check
def test_a_test_has_seen_the_finding(module: object, check: Check) -> None:
    assert any(f'"{check.name}"' in path.read_text(encoding="utf-8") for path in TESTS), check.name


@each_check
def test_pages_that_a_finding_names_are_there(module: object, check: Check) -> None:
    for name in re.findall(r"docs/\w+\.md", " ".join(check)):
        assert (ROOT / name).exists()


def test_what_italics_stand_for_is_given_by_the_code() -> None:
    """Each place of a text is named where its finding is made."""
    for module, check in CHECKS:
        source = inspect.getsource(module) + inspect.getsource(importlib.import_module("gripfast.api.doctor"))
        for place in re.findall(r"\{(\w+)\}", " ".join(check)):
            assert re.search(rf"\b{place}=|[\"']{place}[\"']:", source), f"{check.name}: {place}"
