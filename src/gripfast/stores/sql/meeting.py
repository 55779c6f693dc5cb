"""How a new connection looks at the layout of the tables: see `stores/layout.py` for the rules.

Missing tables are created now. If the first request created them, another client could create them before it, in
another layout.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gripfast.stores import layout
from gripfast.stores.sql import protocol
from gripfast.stores.sql.conversation import TRIES, was_undone
from gripfast.stores.sql.ports import Answer, Dialect, Fault, LinkDown, Refusal, Rows
from gripfast.stores.sql.statement import Query

Run = Callable[[Sequence[Query]], Answer]
"""Blocks, on the new connection. Raises LinkDown if that breaks."""


def meet(dialect: Dialect, run: Run) -> None:
    """Raises LinkDown unless the layout is this version's."""
    scripts, mode = dialect.scripts, dialect.mode
    found = run(scripts.layout_read(mode))
    if isinstance(found, Refusal) and found.kind == "no_table":
        _make_tables(dialect, run, found)
        found = run(scripts.layout_read(mode))
    if isinstance(found, list) and not found[-1].rows:
        written = run(scripts.layout_write(mode, str(layout.SQL)))
        found = written if isinstance(written, Refusal) else run(scripts.layout_read(mode))
    fault = dialect.refused(found) if isinstance(found, Refusal) else other_layout(dialect, found)
    if fault is not None:
        raise LinkDown(fault)


def _make_tables(dialect: Dialect, run: Run, lacking: Refusal) -> None:
    """Several clients may do this at once; some servers handle that badly."""
    refusal = lacking
    for _ in range(TRIES):
        made = run([Query(each) for each in dialect.scripts.SCHEMA])
        if not isinstance(made, Refusal):
            return
        refusal = made
        if not was_undone(refusal):
            break
    if refusal.kind == "read_only":  # whether it has tables is not what is wrong with it
        raise LinkDown(dialect.refused(refusal))
    raise LinkDown(dialect.refused(lacking)._replace(kind=refusal.kind))


def other_layout(dialect: Dialect, answer: list[Rows]) -> Fault | None:
    """Checks the answer of `layout_read`."""
    row = protocol.only(answer)
    found = "None" if row is None else protocol.text(row[0])
    if found == str(layout.SQL):
        return None
    return Fault(layout.refusal(dialect.where, found, layout.SQL, "another database or schema"), "unfit")
