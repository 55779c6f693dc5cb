"""What is taken from inside kazoo is taken by one module: so it is known what to look at when kazoo changes."""

import ast
from pathlib import Path

import pytest

import gripfast.stores.zookeeper

FOLDER = Path(gripfast.stores.zookeeper.__file__).parent
DRIVER = "driver.py"
OURS = {"self", "cls"}
PUBLIC = {"_replace"}
"""Of named tuples."""


def private_parts(text: str) -> list[str]:
    """Private attributes of anything but the object itself."""
    return [
        ast.unparse(node)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.startswith("__")
        and node.attr not in PUBLIC
        and not (isinstance(node.value, ast.Name) and node.value.id in OURS)
    ]


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.name)
def test_only_the_driver_touches_private_parts(path: Path) -> None:
    assert (private_parts(path.read_text(encoding="utf-8")) != []) == (path.name == DRIVER)


def test_the_driver_says_why_of_each_private_part() -> None:
    text = (FOLDER / DRIVER).read_text(encoding="utf-8")
    reasons = ast.get_docstring(ast.parse(text)) or ""
    taken = {part.rpartition(".")[2] for part in private_parts(text)} - {"_connection", "_gripfast"}
    assert {part for part in taken if part not in reasons} == set()


def test_private_parts_are_found() -> None:
    assert private_parts("self._mine\nself.client._call()\nidle._replace(since=1)") == ["self.client._call"]
