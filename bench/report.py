"""What a run says: a table for people, JSON for programs."""

from __future__ import annotations

import json
import os
import platform
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import holdfast
from bench.scenario import Scenario, Spread, Standing

Results = Mapping[Scenario, Sequence[Standing]]
"""In the order in which they were run."""


def table(scenario: Scenario, standings: Sequence[Standing]) -> str:
    figures = list(standings[0].figures)
    head = ["", *figures, f"× {scenario.against}", ""]
    rows = [head, *([each.contestant, *_cells(each, figures), _verdict(each)] for each in standings)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    return "\n".join([f"{scenario.name}: {scenario.about}", *_lines(rows, widths)])


def _cells(standing: Standing, figures: Sequence[str]) -> list[str]:
    return [*(_spread(standing.figures[figure]) for figure in figures), _spread(standing.ratio)]


def _spread(spread: Spread) -> str:
    return f"{_number(spread.median)} ({_number(spread.low)}–{_number(spread.high)})"


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _verdict(standing: Standing) -> str:
    if standing.at_most is None:
        return ""
    return f"{'kept' if standing.kept else 'BROKEN'}: at most {standing.at_most:g}"


def _lines(rows: Sequence[Sequence[str]], widths: Sequence[int]) -> Iterator[str]:
    for name, *cells in rows:
        right = (cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True))
        yield "  ".join(["", name.ljust(widths[0]), *right]).rstrip()


def write(results: Results, folder: Path) -> Path:
    """Write the run to a file of its own."""
    now = datetime.now(UTC)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{now:%Y%m%dT%H%M%SZ}.json"
    run = {"at": now.isoformat(timespec="seconds"), "machine": _machine(), "scenarios": _scenarios(results)}
    path.write_text(json.dumps(run, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def _scenarios(results: Results) -> list[dict[str, object]]:
    return [
        {"name": scenario.name, "against": scenario.against, "standings": [asdict(each) for each in standings]}
        for scenario, standings in results.items()
    ]


def _machine() -> dict[str, object]:
    return {
        "python": platform.python_version(),
        "holdfast": holdfast.__version__,
        "sqlite": sqlite3.sqlite_version,
        "system": platform.platform(),
        "cores": os.cpu_count(),
    }
