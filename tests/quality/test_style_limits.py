"""Short modules, short functions.

A comment `# style: long because …` in the function, or near the top of the module, lifts the limit.
"""

import ast
import re
from collections.abc import Iterator

from quality.tree import broken, python_files

MODULE_LINES = 500
FUNCTION_LINES = 70
NEAR_THE_TOP = 20
REASON = re.compile(r"# style: long because \S+")


def too_long(source: str) -> list[str]:
    """What exceeds a limit in this source, in words."""
    lines = source.splitlines()
    return [*_long_module(lines), *_long_functions(ast.parse(source), lines)]


def _long_module(lines: list[str]) -> Iterator[str]:
    if len(lines) > MODULE_LINES and not _excused(lines[:NEAR_THE_TOP]):
        yield f"the module has {len(lines)} lines"


def _long_functions(tree: ast.Module, lines: list[str]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = lines[node.lineno - 1 : node.end_lineno]
            if len(body) > FUNCTION_LINES and not _excused(body):
                yield f"{node.name} has {len(body)} lines"


def _excused(lines: list[str]) -> bool:
    return any(REASON.search(line) for line in lines)


def test_modules_and_functions_keep_to_the_limits() -> None:
    checked = python_files("src", "lab", "tests", "bench")
    assert checked
    assert broken(checked, lambda path: too_long(path.read_text(encoding="utf-8"))) == []


def function_of(lines: int, first: str = "    x = 1") -> str:
    return "\n".join(["def f():", first, *["    x = 1"] * (lines - 2)])


def test_a_function_one_line_too_long_is_reported() -> None:
    assert too_long(function_of(FUNCTION_LINES)) == []
    assert too_long(function_of(FUNCTION_LINES + 1)) == ["f has 71 lines"]


def test_a_module_one_line_too_long_is_reported() -> None:
    assert too_long("x = 1\n" * MODULE_LINES) == []
    assert too_long("x = 1\n" * (MODULE_LINES + 1)) == ["the module has 501 lines"]


def test_a_method_inside_a_class_counts_too() -> None:
    method = "\n".join("    " + line for line in function_of(FUNCTION_LINES + 1).splitlines())
    assert too_long(f"class C:\n{method}") == ["f has 71 lines"]


def test_a_reason_lifts_the_limit() -> None:
    assert too_long(function_of(FUNCTION_LINES + 1, "    # style: long because a table reads best whole")) == []
    assert too_long("# style: long because a table reads best whole\n" + "x = 1\n" * MODULE_LINES) == []


def test_an_empty_reason_lifts_nothing() -> None:
    assert too_long(function_of(FUNCTION_LINES + 1, "    # style: long because")) == ["f has 71 lines"]
