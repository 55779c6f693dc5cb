"""What a public signature shows is public, too: a user can import it, and write it into a signature of their own."""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, get_overloads

import pytest

import gripfast
from gripfast.api.typed import LockKwargs, PermitKwargs
from quality.test_public_names import SUBMODULES
from quality.tree import parsed

MODULES = ["gripfast", *SUBMODULES]
CALLED_BY_PYTHON = {"__aenter__", "__await__", "__call__", "__enter__", "__iter__"}
"""What `with`, `await` and the like give is shown as well."""


class Shown(NamedTuple):
    where: str
    module: str
    annotation: str


def shown_by(module: ModuleType) -> Iterator[Shown]:
    """Every annotation that a user of the module's public names sees."""
    for name in module.__all__:
        thing = getattr(module, name)
        if inspect.isclass(thing):
            yield from shown_by_class(thing, is_made_by_hand=module is not gripfast or issubclass(thing, Exception))
        elif inspect.isfunction(thing):
            yield from shown_by_function(thing)


def shown_by_class(cls: type, is_made_by_hand: bool) -> Iterator[Shown]:
    also = CALLED_BY_PYTHON | ({"__init__"} if is_made_by_hand else set())
    for base in [base for base in cls.__mro__ if base.__module__.startswith("gripfast")]:
        for name, annotation in inspect.get_annotations(base).items():
            if not name.startswith("_"):
                yield Shown(f"{cls.__qualname__}.{name}", base.__module__, _text(annotation))
        for name, value in vars(base).items():
            function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
            if inspect.isfunction(function) and (name in also or not name.startswith("_")):
                yield from shown_by_function(function)


def shown_by_function(function: Callable[..., Any]) -> Iterator[Shown]:
    for each in [function, *get_overloads(function)]:
        for annotation in inspect.get_annotations(each).values():
            yield Shown(each.__qualname__, each.__module__, _text(annotation))


def _text(annotation: Any) -> str:
    return getattr(annotation, "__forward_arg__", annotation) or "None"


def names_in(annotation: str) -> set[str]:
    tree = ast.parse(annotation, mode="eval")
    literals = {id(node) for each in ast.walk(tree) if _is_literal(each) for node in ast.walk(each)}
    quoted = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in literals
    ]
    plain = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return plain.union(*(names_in(text) for text in quoted))


def _is_literal(node: ast.AST) -> bool:
    return isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == "Literal"


def origin(name: str, module: str) -> str:
    """The module that the name comes from, by the imports of the module that uses it: some are for type checkers."""
    if hasattr(builtins, name):
        return "builtins"
    tree = parsed(Path(str(importlib.import_module(module).__file__)))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and any(name == (alias.asname or alias.name) for alias in node.names):
            return str(node.module)
        if isinstance(node, ast.Import) and any(name == (alias.asname or alias.name) for alias in node.names):
            return name
    return module


def is_public(name: str, module: str) -> bool:
    home = origin(name, module)
    if home.split(".")[0] != "gripfast" or home == name:  # as in `gripfast.Client`: what is taken from it is public
        return True
    found = getattr(importlib.import_module(home), name)
    if type(found).__name__ in ("ParamSpec", "TypeVar"):
        return True
    public = [importlib.import_module(each) for each in MODULES]
    return any(name in each.__all__ and getattr(each, name) is found for each in public)


def hidden(shown: Shown) -> list[str]:
    return [name for name in sorted(names_in(shown.annotation)) if not is_public(name, shown.module)]


@pytest.mark.parametrize("module", MODULES)
def test_no_public_signature_shows_a_name_that_is_not_public(module: str) -> None:
    shown = list(shown_by(importlib.import_module(module)))
    assert shown
    assert [f"{each.where}: {name}" for each in shown for name in hidden(each)] == []


def test_what_a_public_name_shows_is_found() -> None:
    shown = {(each.where, name) for each in shown_by(gripfast) for name in names_in(each.annotation)}
    assert {
        ("AsyncLock.acquire", "Acquiring"),
        ("Client.locked", "LockedOr"),
        ("Client.lock", "Reason"),
        ("Lease.lost", "Lost"),
        ("_Acquiring.__aenter__", "L"),
        ("LeaseLost.__init__", "Reason"),
        ("LockInfo.since", "datetime"),
    } <= shown


@pytest.mark.parametrize(
    ("annotation", "names"),
    [
        ("LeaseState", ["LeaseState"]),
        ("Callable[[LeaseState, Reason], R] | None", ["LeaseState"]),
        ("dict[str, 'LeaseState | Lease']", ["LeaseState"]),
        ("bool | threading.Event", []),
        ("AnyClient", ["AnyClient"]),
    ],
)
def test_a_planted_name_is_found(annotation: str, names: list[str]) -> None:
    assert hidden(Shown("planted", "gripfast.api.lease", annotation)) == names


# -- the settings of a lock --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lock", "lease"),
    [(gripfast.Client.lock, "Lease"), (gripfast.AsyncClient.lock, "AsyncLease")],
    ids=["sync", "async"],
)
def test_keywords_of_a_lock_are_its_settings(lock: Callable[..., Any], lease: str) -> None:
    """Written twice, for type checkers: here it is seen that one of them was forgotten."""
    given = {name: each.annotation for name, each in inspect.signature(lock).parameters.items()}
    keywords = {name: _text(each).replace("[L,", f"[{lease},") for name, each in LockKwargs.__annotations__.items()}
    assert {name: text for name, text in given.items() if name not in ("self", "name")} == keywords


@pytest.mark.parametrize(
    ("make", "lease"),
    [
        (gripfast.Client.semaphore, "SemaphoreLease"),
        (gripfast.AsyncClient.semaphore, "AsyncSemaphoreLease"),
        (gripfast.Client.rwlock, "Lease"),
        (gripfast.AsyncClient.rwlock, "AsyncLease"),
    ],
    ids=["semaphore", "async semaphore", "rwlock", "async rwlock"],
)
def test_keywords_of_permits_are_their_settings(make: Callable[..., Any], lease: str) -> None:
    given = {name: each.annotation for name, each in inspect.signature(make).parameters.items()}
    keywords = {name: _text(each).replace("[L,", f"[{lease},") for name, each in PermitKwargs.__annotations__.items()}
    assert {name: text for name, text in given.items() if name not in ("self", "name", "limit")} == keywords
