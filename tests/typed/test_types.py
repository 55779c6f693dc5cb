"""Types tell users what is wrong: mypy and pyright, both strict, judge the right and the wrong uses beside this file.

A wrong line ends with a mark, `# wrong: …`. Both have to report each of them, and nothing else in either file. Pyright
also judges the code of the public API (mypy does that for all of the code: `make types`), and whether a user's type
checker knows the types of all public names. Within the package, its names of one underscore are not private, and what
a user's types forbid is still checked when it runs.
"""

import importlib
import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from quality.test_public_names import SUBMODULES
from quality.tree import ROOT

HERE = Path(__file__).parent
RIGHT, WRONG = HERE / "uses_right.py", HERE / "uses_wrong.py"
PYRIGHT = ROOT / "tests" / "interop" / "node_modules" / "pyright" / "index.js"
MARK = re.compile(r"  # wrong: \S")

Reports = dict[tuple[Path, int], str]
"""What is reported, by file and line."""


@cache
def of_mypy() -> Reports:
    """With a configuration of its own: as a user has it, who knows nothing of ours."""
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--python-version=3.11"]
    command += [f"--cache-dir={ROOT / '.mypy_cache' / 'typed'}", "--no-error-summary", RIGHT.name, WRONG.name]
    environment = {**os.environ, "MYPYPATH": str(ROOT / "src")}
    done = subprocess.run(command, cwd=HERE, env=environment, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found = re.findall(r"^(.+?):(\d+): error: (.*)$", done.stdout, re.MULTILINE)
    return {((HERE / path).resolve(), int(line)): text for path, line, text in found}


@cache
def of_pyright() -> Reports:
    return {
        (Path(each["file"]), each["range"]["start"]["line"] + 1): each["message"]
        for each in pyright(HERE, "--project", str(HERE))["generalDiagnostics"]
    }


def pyright(folder: Path, *arguments: str) -> Any:
    """Its answer, if it is run in this folder. It asks the first `python` that it finds where packages are."""
    assert PYRIGHT.exists(), "node's packages are not installed: run `make test` once"
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    command = ["node", str(PYRIGHT), "--outputjson", *arguments]
    done = subprocess.run(command, cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return json.loads(done.stdout)


checkers = pytest.mark.parametrize("checker", [of_mypy, of_pyright], ids=["mypy", "pyright"])


def marked() -> dict[int, str]:
    lines = enumerate(WRONG.read_text(encoding="utf-8").splitlines(), 1)
    return {number: line.strip() for number, line in lines if MARK.search(line)}


@checkers
def test_no_right_use_is_reported_and_nothing_in_the_api(checker: Any) -> None:
    assert {where: text for where, text in checker().items() if where[0] != WRONG} == {}


@checkers
def test_every_wrong_use_is_reported(checker: Any) -> None:
    reported = {line for file, line in checker() if file == WRONG}
    assert marked()
    assert [line for number, line in marked().items() if number not in reported] == []


@checkers
def test_nothing_is_reported_beside_the_wrong_uses(checker: Any) -> None:
    reported = {line: text for (file, line), text in checker().items() if file == WRONG}
    assert {line: text for line, text in reported.items() if line not in marked()} == {}


# -- what the types of public names are --------------------------------------------------------------------------------


def homes() -> Iterator[str]:
    """Where public classes and functions are defined."""
    for module in map(importlib.import_module, ["gripfast", *SUBMODULES]):
        for thing in (getattr(module, name) for name in module.__all__):
            if inspect.isclass(thing) or inspect.isfunction(thing):
                yield f"{thing.__module__}.{thing.__qualname__}"


def test_every_public_name_has_a_type(tmp_path: Path) -> None:
    """One that is written, at that: what one type checker infers, another may not."""
    answer = pyright(tmp_path, "--verifytypes", "gripfast", "--ignoreexternal")["typeCompleteness"]
    known = {each["name"]: [found["message"] for found in each["diagnostics"]] for each in answer["symbols"]}
    assert set(homes()) <= set(known)
    public = tuple(f"{home}." for home in homes())
    ours = {name: messages for name, messages in known.items() if f"{name}.".startswith(public)}
    assert {name: messages for name, messages in ours.items() if "missing type annotation" in str(messages)} == {}
