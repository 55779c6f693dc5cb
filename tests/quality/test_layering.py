"""Who may import whom. The table below is the rule; `ARCHITECTURE.md` tells why."""

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from gripfast.stores import StoreSpec
from quality.tree import LAB, PACKAGE, broken, parsed, python_files

LEAVES = {"bounded", "columns", "drivers", "durations", "errors", "extras", "interrupts", "machine", "timed_queue"}
MAY_IMPORT: dict[str, set[str]] = {
    "bounded": {"interrupts", "machine", "timed_queue"},
    "columns": set(),
    "drivers": {"errors"},
    "durations": set(),
    "errors": {"durations"},
    "extras": set(),
    "interrupts": {"errors"},
    "machine": set(),
    "timed_queue": {"machine"},
    "core": {"errors"},
    "runtime": {"core"} | LEAVES,
    "stores": {"core"} | LEAVES,
    "fencing": {"drivers", "errors"},
    "api": {"runtime", "core", "stores", "fencing"} | LEAVES,
    "observers": {"core"} | LEAVES,
    "serve": {"gripfast", "api"} | LEAVES,
    "cli": {"gripfast", "api", "stores", "observers", "serve"} | LEAVES,
    "compat": {"gripfast", "api"} | LEAVES,
    "contrib": {"gripfast", "api", "cli", "fencing"} | LEAVES,  # cli: `manage.py locked` is `gripfast run`
    "testing": {"gripfast", "api", "cli", "core", "runtime", "stores"} | LEAVES,
    "__main__": {"cli"},
    "gripfast": {"api", "core", "errors"},
    **{name: {"api"} for name in ("aio", "asyncio", "exceptions")},  # messages, no modules
    # The second distribution. None of the first may import it.
    "gripfast_lab.sim": {"core", "stores"} | LEAVES,
    "gripfast_lab": {"gripfast_lab.sim", "columns", "errors"},
    "gripfast_lab.command": {"gripfast_lab", "gripfast_lab.sim", "cli"},
    "gripfast_lab.verify": {
        "gripfast_lab",
        "gripfast_lab.command",
        "gripfast_lab.sim",
        "gripfast",
        "api",
        "core",
        "cli",
    }
    | {"stores"}
    | LEAVES,
}
# Imports that only a type checker runs.
MAY_NAME_TYPES_OF: dict[str, set[str]] = {"errors": {"core"}}

# Pure code has no clock, no chance, no I/O and no concurrency of its own: those come in through ports.
IMPURE = {
    "_thread", "asyncio", "concurrent", "multiprocessing", "os", "queue", "random", "sched", "secrets", "select",
    "selectors", "signal", "socket", "ssl", "subprocess", "thread", "threading", "time",
}  # fmt: skip
ENGINE_CLIENTS = {
    "redis", "hiredis", "psycopg", "psycopg2", "asyncpg", "pymysql", "MySQLdb", "mysql", "aiomysql", "asyncmy", "kazoo",
    "etcd3", "sqlalchemy", "valkey",
}  # fmt: skip
SAME_IN_EVERY_STORE = {"__init__.py", "doctor.py", "factory.py", "spec.py"}
ON_THIS_MACHINE = {"engine.py"}
AT_A_SERVER = {"protocol.py", "store.py", "blocking.py", "aio.py"}  # its own, or those of the engine that it builds on
PACKAGES = ("gripfast", "gripfast_lab")


def imports(tree: ast.Module, package: str) -> Iterator[tuple[str, bool]]:
    """(module, only for types?) of every import, wherever it stands; relative ones are resolved against `package`."""
    for_types = {id(node) for block in _type_checking(tree) for statement in block for node in ast.walk(statement)}
    for node in ast.walk(tree):
        for module in _modules(node, package):
            yield module, id(node) in for_types


def _type_checking(tree: ast.Module) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            yield node.body


def _modules(node: ast.AST, package: str) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    base = package.split(".")[: -(node.level - 1) or None] if node.level else []
    origin = ".".join([*base, *([node.module] if node.module else [])])
    # `from gripfast import core` names a layer only together with what it takes.
    return [f"{origin}.{alias.name}" for alias in node.names] if origin in PACKAGES else [origin]


def layer_of(module: str) -> str:
    """`gripfast.core.lease` → core, `gripfast_lab.sim.world` → gripfast_lab.sim; what has no layer → its package."""
    package, *parts = module.split(".")[:2]
    layer = ".".join(parts) if package == "gripfast" else ".".join([package, *parts])
    return layer if layer in MAY_IMPORT else package


def breaches(tree: ast.Module, module: str, package: str) -> list[str]:
    """The imports by which `module` leaves its layer."""
    layer = layer_of(module)
    allowed = MAY_IMPORT[layer] | {layer}
    found = []
    for imported, for_types in imports(tree, package):
        target = layer_of(imported)
        is_ours = imported.split(".")[0] in PACKAGES
        if is_ours and target not in allowed | (MAY_NAME_TYPES_OF.get(layer, set()) if for_types else set()):
            found.append(f"{layer} imports {imported}")
    return found


def impurities(tree: ast.Module, package: str) -> list[str]:
    """A store's pure parts may know its engine's client, for the errors it raises; core knows none."""
    forbidden = IMPURE | (ENGINE_CLIENTS | {"sqlite3"} if layer_of(package) == "core" else set())
    return sorted({module for module, _ in imports(tree, package) if module.split(".")[0] in forbidden})


def clicks(tree: ast.Module, package: str) -> list[str]:
    return [module for module, _ in imports(tree, package) if module.split(".")[0] == "click"]


def strangers(tree: ast.Module, module: str, package: str) -> list[str]:
    """Imports by which one store reaches into another's folder."""
    home = module.split(".")[2]
    others = set(store_folders()) - {home, spec_in(home).builds_on}
    found = (imported.split(".") for imported, _ in imports(tree, package))
    return [".".join(parts) for parts in found if parts[:2] == ["gripfast", "stores"] and others & set(parts[2:3])]


def store_folders() -> list[str]:
    return sorted(path.name for path in (PACKAGE / "stores").iterdir() if (path / "__init__.py").exists())


def spec_in(store: str) -> StoreSpec:
    spec: StoreSpec = importlib.import_module(f"gripfast.stores.{store}.spec").SPEC
    return spec


def place(path: Path) -> tuple[str, str]:
    """The dotted names of the module and of the package it lives in."""
    above = PACKAGE.parent if path.is_relative_to(PACKAGE) else LAB.parent
    parts = path.relative_to(above).with_suffix("").parts
    module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    return module, ".".join(parts[:-1])


OURS = python_files("src/gripfast")
SOURCES = [*OURS, *python_files("lab/src/gripfast_lab")]
RUNS_SIMULATIONS = {LAB / "sim" / name for name in ("__main__.py", "report.py", "runner.py")}
PURE = [
    path
    for path in SOURCES
    if path.is_relative_to(PACKAGE / "core")
    or path.name in ("protocol.py", "conversation.py", "shared.py")
    or path == PACKAGE / "stores" / "granting.py"
    or (path.is_relative_to(LAB / "sim") and path not in RUNS_SIMULATIONS)
]
IN_STORES = [path for path in SOURCES if path.parent.parent == PACKAGE / "stores"]


def test_a_module_imports_only_layers_below_its_own() -> None:
    assert SOURCES
    assert broken(SOURCES, lambda path: breaches(parsed(path), *place(path))) == []


def test_only_the_command_line_imports_click() -> None:
    may = (PACKAGE / "cli", PACKAGE / "testing")  # the suite tests the command line, too
    others = [path for path in OURS if not any(path.is_relative_to(folder) for folder in may)]
    assert others
    assert broken(others, lambda path: clicks(parsed(path), place(path)[1])) == []


def test_pure_code_imports_no_clock_no_chance_and_no_io() -> None:
    assert PURE
    assert broken(PURE, lambda path: impurities(parsed(path), place(path)[1])) == []


def test_no_store_knows_another() -> None:
    assert IN_STORES
    assert broken(IN_STORES, lambda path: strangers(parsed(path), *place(path))) == []


@pytest.mark.parametrize("store", store_folders())
def test_every_store_has_the_same_files(store: str) -> None:
    files, base = files_of(store), spec_in(store).builds_on
    assert files >= SAME_IN_EVERY_STORE
    if not files >= ON_THIS_MACHINE:
        assert files | (files_of(base) if base else set()) >= AT_A_SERVER


def files_of(store: str) -> set[str]:
    return {path.name for path in (PACKAGE / "stores" / store).iterdir()}


def test_every_part_of_the_package_has_its_place_in_the_table() -> None:
    parts = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert parts - {"__init__"} <= set(MAY_IMPORT)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("gripfast.core.lease", "from gripfast.runtime import clock"),
        ("gripfast.core.lease", "import gripfast.api.client"),
        ("gripfast.core.lease", "from gripfast import machine"),
        ("gripfast.core.lease", "import gripfast"),
        ("gripfast.core.lease", "from ..stores import memory"),
        ("gripfast.core.lease", "def f():\n    from gripfast.machine import boottime"),
        ("gripfast.errors", "from gripfast.core.ports import LockInfo"),
        ("gripfast.stores.sqlite.engine", "from gripfast.runtime.clock import now"),
        ("gripfast.runtime.aio", "from gripfast.api.lease import Lease"),
        ("gripfast.fencing", "from gripfast.core import rules"),
        ("gripfast.drivers", "from gripfast.machine import boottime"),
        ("gripfast.cli.app", "from gripfast_lab.command import lab"),
        ("gripfast.cli.app", "from gripfast_lab import command"),
        ("gripfast.core.lease", "import gripfast_lab"),
        ("gripfast_lab.sim.stage", "from gripfast_lab.story import Story"),
        ("gripfast_lab.entries", "from gripfast_lab.command import lab"),
    ],
)
def test_a_planted_breach_is_found(module: str, source: str) -> None:
    package = module if module == "gripfast.fencing" else module.rpartition(".")[0]
    assert len(breaches(ast.parse(source), module, package)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("gripfast.core.lease", "from . import rules\nfrom .rules import drift\nfrom gripfast.errors import LeaseLost"),
        ("gripfast.errors", "if TYPE_CHECKING:\n    from gripfast.core.ports import LockInfo"),
        ("gripfast.cli.run", "import gripfast\nfrom gripfast import connect\nfrom ..api.client import Client"),
    ],
)
def test_what_is_allowed_passes(module: str, source: str) -> None:
    assert breaches(ast.parse(source), module, module.rpartition(".")[0]) == []


@pytest.mark.parametrize(
    "source",
    ["import time", "from os import path", "import concurrent.futures", "import asyncio as a", "import sqlite3"],
)
def test_a_planted_impurity_is_found(source: str) -> None:
    assert len(impurities(ast.parse(source), "gripfast.core")) == 1


def test_a_planted_visit_to_another_store_is_found() -> None:
    home, other = store_folders()[:2]
    source = ast.parse(f"from gripfast.stores.{other}.engine import Engine\nfrom ..{other} import protocol")
    assert len(strangers(source, f"gripfast.stores.{home}.blocking", f"gripfast.stores.{home}")) == 2
