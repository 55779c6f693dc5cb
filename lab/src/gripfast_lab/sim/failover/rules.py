"""Which rule leaves no two holders: searched for each, if the primary crashes and if the old primary goes on.

`TABLE` is what the search is expected to say, as in docs/simulation.md; `searched` makes it anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import NamedTuple

from gripfast_lab.sim.explore import Report, explore
from gripfast_lab.sim.failover.model import Failovers, Rule
from gripfast_lab.sim.quiet import quietly
from gripfast_lab.sim.runner import mutants

CRASHES, GOES_ON = "the primary crashes", "the old primary goes on"
COLUMNS = {CRASHES: False, GOES_ON: True}


class Row(NamedTuple):
    rule: str
    model: Failovers
    says: tuple[int, int]
    """For each column, after how many steps there are two holders; 0: never."""
    mutant: str = ""
    """A bug that is planted for it."""


ONE_OF_TWO = "acknowledgement of one of two"
"""With this bug, production believes what one of two replicas has acknowledged."""
ROWS = (
    Row("none", Failovers("none"), (4, 3)),
    Row("grace", Failovers("grace", Rule(1)), (0, 5)),
    Row(
        "grace, and an acknowledgement of one of two replicas",
        Failovers("one", Rule(2), servers=3, promotions=1),
        (0, 6),
        ONE_OF_TWO,
    ),
    Row("grace, and acknowledgements of all replicas that may be promoted", Failovers("all", Rule(2)), (0, 0)),
)


@dataclass(frozen=True)
class Cell:
    row: Row
    column: str
    report: Report

    @property
    def steps(self) -> int:
        return len(self.report.violations[0].path) if self.report.violations else 0

    @property
    def is_as_expected(self) -> bool:
        is_done = self.report.ended or bool(self.report.violations)
        return is_done and self.steps == self.row.says[list(COLUMNS).index(self.column)]

    def __str__(self) -> str:
        if self.report.violations:
            return f"two holders, {self.steps} steps"
        return "nothing" if self.report.ended else "not complete"


class Table:
    """What `--explore failover` prints."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        self.cells = cells

    @property
    def states(self) -> int:
        return sum(cell.report.states for cell in self.cells)

    @property
    def ended(self) -> bool:
        return not self.violations

    @property
    def violations(self) -> list[str]:
        return [f"{cell.row.rule}, {cell.column}: {cell}" for cell in self.cells if not cell.is_as_expected]

    def lines(self) -> list[str]:
        rows = dict.fromkeys(cell.row.rule for cell in self.cells)
        texts = [[rule, *(str(cell) for cell in self.cells if cell.row.rule == rule)] for rule in rows]
        return [_line(["rule", *COLUMNS]), "|---|---|---|", *map(_line, texts)]

    def __str__(self) -> str:
        reports = [str(cell.report) for cell in self.cells]
        wrong = [f"not as expected: {each}" for each in self.violations]
        return "\n".join([*reports, "", *self.lines(), *wrong])


def _line(texts: Sequence[str]) -> str:
    return f"| {' | '.join(texts)} |"


def searched(rows: Sequence[Row] = ROWS, larger: bool = False) -> Table:
    return Table([_cell(row, column, larger) for row in rows for column in COLUMNS])


def _cell(row: Row, column: str, larger: bool) -> Cell:
    servers = 3 if larger else row.model.servers
    model = replace(row.model, name=f"{row.rule}, {column}", goes_on=COLUMNS[column], servers=servers)
    with planted(row.mutant):
        return Cell(row, column, explored(model))


def planted(mutant: str) -> AbstractContextManager[object]:
    return mutants()[mutant].planted() if mutant else nullcontext()


def explored(model: Failovers) -> Report:
    with quietly():
        return explore(model)


EXPLORATIONS: dict[str, Callable[[], Table]] = {
    "failover": searched,
    "failover-large": lambda: searched(larger=True),
}
