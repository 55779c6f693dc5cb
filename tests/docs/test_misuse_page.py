"""docs/misuse.md, "Types": mypy and pyright find what its table says that they find, by the checks that it names."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from support.pages import ROOT, blocks, page
from typed.test_types import pyright

TYPES = page("misuse").partition("\n## Types\n")[2].partition("\n## ")[0]
SETTINGS = tomllib.loads(blocks(TYPES, "toml")[0])["tool"]
NOISY = "reportUnusedCallResult"
CASE = """
async def case_{number}(
    client: gripfast.Client, lock: gripfast.Lock, lease: gripfast.Lease,
    aclient: gripfast.AsyncClient, alock: gripfast.AsyncLock, alease: gripfast.AsyncLease,
    busy: gripfast.LockTimeout,
) -> None:
    {body}
"""


def rows() -> list[tuple[str, str, str]]:
    """A line of code, and what the cells say that mypy and pyright do."""
    lines = [line.split(" | ") for line in TYPES.splitlines() if line.startswith("| `")]
    cells = [(code.removeprefix("| "), mypy, last.removesuffix(" |")) for code, mypy, last in lines]
    return [(text, mypy, last) for code, mypy, last in cells for text in re.findall("`([^`]+)`", code) if is_code(text)]


def is_code(text: str) -> bool:
    return text not in ("await", "wait")


def program() -> str:
    """Each line in a function of its own, then the block."""
    cases = [f"{code} pass" if code.endswith(":") else code for code, _, _ in rows()]
    (block,) = blocks(TYPES, "py")
    cases.append(block.rstrip().replace("\n", "\n    "))
    functions = [CASE.format(number=number, body=body) for number, body in enumerate(cases)]
    return "".join(["import gripfast\nfrom gripfast import AsyncLease\n", *functions])


def by_case(lines: list[tuple[int, str]]) -> dict[int, str]:
    """What is reported, by the number of the case."""
    starts = [number for number, line in enumerate(program().splitlines(), 1) if line.startswith("async def case_")]
    found: dict[int, str] = {}
    for line, text in lines:
        case = sum(start <= line for start in starts) - 1
        found[case] = f"{found.get(case, '')}\n{text}"
    return found


def of_mypy(*codes: str) -> dict[int, str]:
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--python-version=3.11", "-c", program()]
    command += [f"--cache-dir={ROOT / '.mypy_cache' / 'typed'}", "--no-error-summary", "--hide-error-context"]
    command += [word for code in codes for word in ("--enable-error-code", code)]
    done = subprocess.run(command, env={**os.environ, "MYPYPATH": str(ROOT / "src")}, capture_output=True, text=True)
    assert done.returncode == 1, done.stdout + done.stderr
    found = re.findall(r"^<string>:(\d+): error: (.*)$", done.stdout, re.MULTILINE)
    return by_case([(int(line), text) for line, text in found])


def of_pyright(folder: Path, mode: str, rules: str = "") -> dict[int, str]:
    """Its mode is in a comment at the end of the file, so the lines are those of the program."""
    (folder / "uses.py").write_text(f"{program()}# pyright: {mode}{rules}\n", encoding="utf-8")
    (folder / "pyrightconfig.json").write_text(f'{{"extraPaths": ["{ROOT / "src"}"]}}', encoding="utf-8")
    found = pyright(folder, "--project", str(folder))["generalDiagnostics"]
    return by_case([(each["range"]["start"]["line"] + 1, f"{each['message']} {each.get('rule')}") for each in found])


def test_the_page_has_these_rows() -> None:
    assert len(rows()) > 20
    assert {"lock.acquire(False)", "if lock:", "alock.acquire()"} <= {code for code, _, _ in rows()}


def test_mypy_finds_by_default_what_the_table_says() -> None:
    found = of_mypy()
    wrong = [code for case, (code, mypy, _) in enumerate(rows()) if (mypy == "yes") != (case in found)]
    assert wrong == [], found


def test_mypy_finds_the_rest_by_the_checks_that_the_page_turns_on() -> None:
    found = of_mypy(*SETTINGS["mypy"]["enable_error_code"])
    for case, (code, mypy, _) in enumerate(rows()):
        named = re.fullmatch("with `(.+)`", mypy)
        expected = f"[{named[1]}]" if named else ""
        assert (mypy != "no") == (case in found), code
        assert expected in found.get(case, ""), code
    assert "[possibly-undefined]" in found[len(rows())]


@pytest.mark.parametrize(
    ("mode", "rules", "cells"),
    [
        ("standard", "", ("yes",)),
        (SETTINGS["pyright"]["typeCheckingMode"], "", ("yes", "strict")),
        ("strict", f", {NOISY}=true", ("yes", "strict", f"with `{NOISY}`")),
    ],
    ids=["standard", "as on the page", "everything"],
)
def test_pyright_finds_what_the_table_says(mode: str, rules: str, cells: tuple[str, ...], tmp_path: Path) -> None:
    found = of_pyright(tmp_path, mode, rules)
    wrong = [code for case, (code, _, cell) in enumerate(rows()) if (cell in cells) != (case in found)]
    assert wrong == [], found
    assert "reportPossiblyUnbound" in found[len(rows())]
