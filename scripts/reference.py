"""Writes the references, docs/api.md, docs/cli.md and the tables of docs/doctor.md, from the code itself: what a page
says of a name is what it is.

python scripts/reference.py

A test holds the committed pages to what this writes.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import textwrap
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import click

import gripfast
from gripfast.cli.app import cli
from gripfast.durations import EXAMPLES
from gripfast.stores import specs
from gripfast.stores.doctor import Check, checks_in
from gripfast.stores.options import COMMON, Option

DOCS = Path(__file__).resolve().parents[1] / "docs"
FURTHER = (
    *("gripfast.fencing", "gripfast.compat.threading", "gripfast.compat.asyncio", "gripfast.compat.redis"),
    *("gripfast.observers.prometheus", "gripfast.observers.otel"),
)
FIRST = (
    *("connect", "connect_async", "lock", "async_lock", "configure", "current_lease"),
    *("Client", "Lock", "Lease", "Lost", "AsyncClient", "AsyncLock", "Acquiring", "AsyncLease", "AsyncLost"),
    *("Locks", "Leases", "AsyncLocks", "AcquiringAll", "AsyncLeases"),
    *("Election", "AsyncElection", "Leader"),
    *("InTransaction", "LockInfo", "Capabilities", "LockKwargs", "LockedOr", "AsyncLockedOr", "Reason"),
    *("Observer", "Event", "EventKind", "EventRequest", "LoggingObserver", "GripfastError"),
)
"""In the order in which a reader needs them; names that are not told of here follow, in the order of `__all__`."""
WIDTH = 88
"""Of what click prints, in columns."""


def pages() -> dict[str, str]:
    """The generated pages, by file name."""
    return {"api.md": api(), "cli.md": command_line(), "doctor.md": findings()}


# -- docs/api.md -------------------------------------------------------------------------------------------------------


def api() -> str:
    names = [name for name in gripfast.__all__ if not name.startswith("_")]
    top = [*filter(names.__contains__, FIRST), *(name for name in names if name not in FIRST)]
    parts = [
        "# The API",
        "Written by `scripts/reference.py` from the signatures and docstrings of the code. Times are in seconds; "
        "fractions are allowed. [The options of `connect()`](#options-of-connect) are at the end. `gripfast.contrib` "
        "and `gripfast.testing` have [pages of their own](index.md#in-your-framework-and-in-your-tests), and so have "
        "the names for [a store of your own](engines.md). Names that are on none of these pages are private and may "
        "change.",
        *(part for name in top for part in described(name, getattr(gripfast, name), "##")),
    ]
    for path in FURTHER:
        module = importlib.import_module(path)
        parts += [f"## {path}", told(module), *in_module(module)]
    parts += ["## Options of connect()", *options()]
    return "\n\n".join(filter(None, parts)) + "\n"


def options() -> Iterator[str]:
    """Those of our own engines: other packages may be installed."""
    yield (
        "Put options into the query of the URL, or pass them to `connect()` as keywords. In a URL, a number of seconds "
        f"may have a unit: {EXAMPLES}. As a keyword it is a number. The page of each store lists the defaults. Every "
        "store takes these:"
    )
    yield table(COMMON)
    for spec in specs():
        if spec.factory.startswith("gripfast.") and spec.schemes:
            yield "### " + ", ".join(f"{scheme}://" for scheme in spec.schemes)
            yield table(spec.options) if spec.options else "No others." if not spec.more_options else ""
            yield f"These URLs also take {spec.more_options}." if spec.more_options else ""


def table(known: Mapping[str, Option]) -> str:
    rows = [f"| `{name}` | {' or '.join(each.choices) or each.kind} | {each.meaning} |" for name, each in known.items()]
    return "\n".join(["| option | kind | meaning |", "|---|---|---|", *rows])


def in_module(module: ModuleType) -> Iterator[str]:
    for name in module.__all__:
        yield from described(f"{module.__name__}.{name}", getattr(module, name), "###")


def described(title: str, thing: Any, level: str) -> Iterator[str]:
    """A function, a class or the name of a type, under a heading of its own."""
    yield f"{level} {title}"
    module, _, name = title.rpartition(".")
    if inspect.isfunction(thing):
        yield from described_function(name, thing)
        return
    if not inspect.isclass(thing):
        yield code(f"{name} = {thing}".replace("typing.", ""))
        return
    if issubclass(thing, Exception):
        yield "A kind of " + " and of ".join(f"`{base.__name__}`" for base in thing.__bases__) + "."
    elif module:  # those of `gripfast` itself are not made by hand
        yield code(name + signature(thing).removesuffix(" -> None"))
    yield told(thing)
    fields = dict(field for base in reversed(ours(thing)) for field in attributes(base))
    if fields:
        yield "\n".join(f"- `{field}`{': ' if about else ''}{about}" for field, about in fields.items())
    for member, value in methods(thing).items():
        yield from described_function(f"{name}.{member}", value)


def described_function(name: str, function: Any) -> Iterator[str]:
    awaited = "await " if inspect.iscoroutinefunction(function) else ""
    yield code(awaited + name + signature(function))
    if about := told(function):
        yield about


def code(text: str) -> str:
    """Not marked as `python`: those blocks are programs, and run as tests."""
    return f"```py\n{text}\n```"


def methods(cls: type) -> dict[str, Any]:
    """The public ones, in the order of the source, those of its bases first."""
    found = {name: value for base in reversed(ours(cls)) for name, value in vars(base).items()}
    return {name: value for name, value in found.items() if inspect.isfunction(value) and not name.startswith("_")}


def attributes(cls: type) -> Iterator[tuple[str, str]]:
    """Fields, properties and what an error carries, as `name: type`, each with what is said of it."""
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    assert isinstance(body, ast.ClassDef)
    for node, after in zip(body.body, [*body.body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id[0] != "_":
            yield f"{node.target.id}: {ast.unparse(node.annotation)}", words_of(after)
        elif isinstance(node, ast.FunctionDef) and is_property(node) and node.returns and node.name[0] != "_":
            yield f"{node.name}: {ast.unparse(node.returns)}", ast.get_docstring(node) or ""
        elif isinstance(node, ast.FunctionDef) and node.name == "__init__" and issubclass(cls, Exception):
            yield from carried(node)


def carried(init: ast.FunctionDef) -> Iterator[tuple[str, str]]:
    """What an error keeps of its arguments: `self.name = name`, or `self.name: str = …`."""
    types = {each.arg: each.annotation for each in init.args.args if each.annotation is not None}
    for node in init.body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if isinstance(target, ast.Attribute) and target.attr[0] != "_":
            annotation = node.annotation if isinstance(node, ast.AnnAssign) else types[target.attr]
            yield f"{target.attr}: {ast.unparse(annotation)}", ""


def is_property(node: ast.FunctionDef) -> bool:
    return any(isinstance(each, ast.Name) and each.id == "property" for each in node.decorator_list)


def words_of(node: ast.stmt | None) -> str:
    """The text below a field, if this is one."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return inspect.cleandoc(node.value.value)
    return ""


def ours(cls: type) -> list[type]:
    """A TypedDict has no bases at run time: where it was written they are."""
    written = [typing.get_origin(base) or base for base in getattr(cls, "__orig_bases__", ())]
    bases = [base for base in written if typing.is_typeddict(base)] if typing.is_typeddict(cls) else []
    return [base for base in (*cls.__mro__, *bases) if base.__module__.startswith("gripfast.")]


def told(thing: Any) -> str:
    return inspect.cleandoc(thing.__doc__ or "")


class AsWritten:
    """An annotation that prints without quotes around it."""

    def __init__(self, annotation: Any) -> None:
        self._text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)

    def __repr__(self) -> str:
        return self._text


def signature(function: Any) -> str:
    """On one line, or on one for each parameter if that is too long."""
    given = inspect.signature(function)
    kept = [each.replace(annotation=AsWritten(each.annotation)) for name, each in given.parameters.items()]
    kept = [each for each in kept if each.name != "self"]
    returns = f" -> {AsWritten(given.return_annotation)!r}"
    words = [str(each) for each in kept]
    named = next((at for at, each in enumerate(kept) if each.kind is each.KEYWORD_ONLY), None)
    if named is not None and not any(each.kind is each.VAR_POSITIONAL for each in kept):
        words.insert(named, "*")
    line = f"({', '.join(words)}){returns}"
    return line if len(line) <= WIDTH else "(\n" + "".join(f"    {each},\n" for each in words) + f"){returns}"


# -- docs/cli.md -------------------------------------------------------------------------------------------------------


def command_line() -> str:
    parts = [
        "# The command line",
        "Written by `scripts/reference.py`: this is what `--help` prints.",
        *helps(cli, click.Context(cli, info_name="gripfast", terminal_width=WIDTH, **cli.context_settings)),
    ]
    return "\n\n".join(parts) + "\n"


def helps(command: click.Command, context: click.Context) -> Iterator[str]:
    yield f"## {context.command_path}\n\n```text\n{command.get_help(context).rstrip()}\n```"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            if below is not None and not below.hidden:
                yield from helps(below, click.Context(below, context, info_name=name))


# -- docs/doctor.md ----------------------------------------------------------------------------------------------------

FINDINGS = "\n## Every finding\n"
"""What stands before it on the page is written by hand."""


AS_REDIS = "The same as for `redis://`."


def findings() -> str:
    by_hand = (DOCS / "doctor.md").read_text(encoding="utf-8").partition(FINDINGS)[0]
    found = {title: checks_in(importlib.import_module(module)) for title, module in doctors()}
    parts = [f"{title}\n\n{table_of(checks) if checks else AS_REDIS}" for title, checks in found.items()]
    about = "Written by `scripts/reference.py` from the code. What is in italics is replaced by what was found."
    return by_hand + FINDINGS + "\n" + "\n\n".join([about, *parts]) + "\n"


def doctors() -> Iterator[tuple[str, str]]:
    """A title, and the module that has the checks."""
    yield "### Every store", "gripfast.stores.doctor"
    for spec in specs():
        if spec.doctor.startswith("gripfast."):
            yield "### " + ", ".join(f"{scheme}://" for scheme in spec.schemes), spec.doctor
    yield "### Every database", "gripfast.stores.sql.doctor"


def table_of(checks: list[Check]) -> str:
    rows = [
        f"| `{check.name}` | {check.kind} | {cell(check.what)} | {cell(check.why)} | {cell(check.todo)} |"
        for check in checks
    ]
    return "\n".join(["| finding | kind | what | why it matters | what to do |", "|---|---|---|---|---|", *rows])


def cell(words: str) -> str:
    return re.sub(r"\{(\w+)\}", r"*\1*", re.sub(r"([*|<>])", r"\\\1", words))


if __name__ == "__main__":
    for file, text in pages().items():
        (DOCS / file).write_text(text, encoding="utf-8")
