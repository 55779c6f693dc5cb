"""Workflows, hooks, templates and checklists are sound: they can be read, and what they call is there."""

import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import gripfast
from quality.tree import ROOT, files, label
from support.local import LOCAL
from support.redis_server import RedisServer
from support.sql_servers import mariadb_server, postgres_server
from support.zookeeper_servers import zookeeper_server

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
OTHERS = [*sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")), ROOT / ".pre-commit-config.yaml"]
DOCUMENTS = ["README.md", "CONTRIBUTING.md", "RELEASING.md", ".github/pull_request_template.md"]
SUPPORTED = ["3.11", "3.12", "3.13", "3.14"]


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def targets(makefile: str) -> set[str]:
    return set(re.findall(r"^([a-z][a-z-]*):(?!=)", makefile, re.MULTILINE))


def called(text: str) -> set[str]:
    """The targets of the make commands that begin a line, or are quoted."""
    return set(re.findall(r"(?:^|`)make ([a-z][a-z-]*)", text, re.MULTILINE))


def commands(value: Any) -> list[str]:
    """Every text in a workflow, wherever it stands: a command may come from the matrix."""
    if isinstance(value, dict):
        return [text for part in value.values() for text in commands(part)]
    if isinstance(value, list):
        return [text for part in value for text in commands(part)]
    return [value] if isinstance(value, str) else []


def test_there_are_workflows_for_changes_and_for_the_night() -> None:
    assert [path.stem for path in WORKFLOWS] == ["nightly", "tests"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=label)
def test_every_job_of_a_workflow_has_a_machine_a_limit_and_steps(path: Path) -> None:
    workflow = read(path)
    assert workflow["name"]
    assert workflow[True]  # `on`, as this parser reads it
    for job in workflow["jobs"].values():
        assert {"runs-on", "timeout-minutes", "steps"} <= job.keys()
        assert all(("run" in step) != ("uses" in step) for step in job["steps"])


@pytest.mark.parametrize("path", WORKFLOWS, ids=label)
def test_a_workflow_calls_only_targets_of_the_makefile(path: Path) -> None:
    wanted = {target for text in commands(read(path)["jobs"]) for target in called(text)}
    assert wanted
    assert wanted - targets((ROOT / "Makefile").read_text(encoding="utf-8")) == set()


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_names_only_targets_of_the_makefile(name: str) -> None:
    wanted = called((ROOT / name).read_text(encoding="utf-8"))
    assert wanted
    assert wanted - targets((ROOT / "Makefile").read_text(encoding="utf-8")) == set()


def test_the_nightly_run_has_what_a_release_relies_on() -> None:
    relied_on = (ROOT / "RELEASING.md").read_text(encoding="utf-8").partition("1. ")[2].partition("\n2. ")[0]
    run = commands(read(ROOT / ".github" / "workflows" / "nightly.yml")["jobs"])
    assert called(relied_on)
    assert {f"make {target}" for target in called(relied_on)} <= set(run)


@pytest.mark.parametrize("path", OTHERS, ids=label)
def test_templates_and_hooks_can_be_read(path: Path) -> None:
    assert read(path)


def test_the_hooks_run_the_tools_of_the_environment() -> None:
    hooks = read(ROOT / ".pre-commit-config.yaml")["repos"][0]["hooks"]
    assert [hook["entry"].split()[0] for hook in hooks] == [".venv/bin/ruff", ".venv/bin/ruff", ".venv/bin/mypy"]


def test_every_python_that_is_supported_is_tested() -> None:
    jobs = read(ROOT / ".github" / "workflows" / "tests.yml")["jobs"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = [name for line in project["classifiers"] if (name := line.rpartition(" :: ")[2]).startswith("3.")]
    assert jobs["linux"]["strategy"]["matrix"]["python"] == named == SUPPORTED
    assert project["requires-python"] == f">={SUPPORTED[0]}"


def test_the_version_stands_in_one_place() -> None:
    line = f'__version__ = "{gripfast.__version__}"'
    having = [label(path) for path in files() if path.suffix == ".py" and line in path.read_text(encoding="utf-8")]
    assert having == ["src/gripfast/__init__.py"]
    for path in (ROOT / "pyproject.toml", ROOT / "lab" / "pyproject.toml"):
        project = tomllib.loads(path.read_text(encoding="utf-8"))["project"]
        assert "version" not in project, label(path)
        assert "version" in project["dynamic"], label(path)


def test_targets_and_calls_are_recognised() -> None:
    assert targets("A := 1\ntest-all: x  ## y\nlint types: z\n$(READY): q\n") == {"test-all"}
    assert called("`make test-local PYTHON=python`, you make sure\nmake lint\n") == {"test-local", "lint"}


@pytest.mark.parametrize("start", [RedisServer, postgres_server, mariadb_server, zookeeper_server])
def test_where_tests_are_local_a_server_is_skipped(
    start: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LOCAL, "local")
    with pytest.raises(pytest.skip.Exception):
        getattr(start, "__wrapped__", start)()  # another test may have started it
