"""What other threads may change meanwhile is not listed in many steps (`tests/regressions/test_listing_copies.py` and
`test_living.py` there show why)."""

import ast
from pathlib import Path
from typing import TypeGuard

import pytest

from quality.tree import broken, parsed, python_files


def test_there_is_no_weak_set() -> None:
    assert broken(python_files("src/gripfast"), weak_sets) == []


def weak_sets(path: Path) -> list[str]:
    return [] if path.name == "living.py" or "WeakSet(" not in path.read_text() else ["use interrupts/living.py"]


def test_no_items_are_copied_one_by_one() -> None:
    checked = python_files("src/gripfast")
    assert broken(checked, lambda path: copies(parsed(path))) == []


@pytest.mark.parametrize("source", ["list(self.rows.items())", "for a, b in list(rows.items()): pass"])
def test_a_planted_copy_is_found(source: str) -> None:
    assert copies(ast.parse(source)) != []


def copies(tree: ast.Module) -> list[str]:
    return [f"line {node.lineno}: {ast.unparse(node)}" for node in ast.walk(tree) if _is_copy(node)]


def _is_copy(node: ast.AST) -> TypeGuard[ast.Call]:
    match node:
        case ast.Call(func=ast.Name(id="list"), args=[ast.Call(func=ast.Attribute(attr="items"))]):
            return True
    return False
