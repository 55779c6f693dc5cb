"""What a run says: a table for people, JSON for programs."""

from __future__ import annotations

import json
import os
import platform
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from importlib.metadata import version
from pathlib import Path

import gripfast
from bench.etcd import server as etcd
from bench.promise import Verdict
from bench.redis import server
from bench.runner import Outcome, Standing, is_installed
from bench.scenario import Scenario, Spread
from bench.sql import servers
from bench.zookeeper import server as zookeeper

Results = Mapping[Scenario, Outcome]
"""In the order in which they were run."""

FIGURES_IN_A_ROW = 4


def table(scenario: Scenario, outcome: Outcome) -> str:
    """The figures, then what was promised, then who is missing."""
    lines = [f"{scenario.name}: {scenario.about}"]
    figures = list({figure: None for each in outcome.standings for figure in each.figures})
    for start in range(0, len(figures), FIGURES_IN_A_ROW):
        with_ratio = scenario.against is not None and start == 0
        part = figures[start : start + FIGURES_IN_A_ROW]
        lines.extend(_lines(_rows(scenario, outcome.standings, part, with_ratio)))
    lines.extend(f"  {_verdict(each)}" for each in outcome.verdicts)
    lines.extend(f"  not measured: {name} ({why})" for name, why in outcome.absent.items())
    return "\n".join(lines)


def _rows(
    scenario: Scenario, standings: Sequence[Standing], figures: Sequence[str], with_ratio: bool
) -> list[list[str]]:
    ratio = [f"{scenario.figure} × {scenario.against}"] if with_ratio else []
    rows = [["", *figures, *ratio]]
    for each in standings:
        cells = [spread_text(each.figures.get(figure)) for figure in figures]
        rows.append([each.contestant, *cells, *([spread_text(each.ratio)] if with_ratio else [])])
    return rows


def spread_text(spread: Spread | None) -> str:
    if spread is None:
        return "–"
    median, low, high = (number_text(value) for value in (spread.median, spread.low, spread.high))
    return median if low == high else f"{median} ({low}–{high})"


def number_text(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _verdict(verdict: Verdict) -> str:
    word = "goal not measured" if verdict.value is None else "goal reached" if verdict.kept else "goal not reached yet"
    measured = f" (measured {spread_text(verdict.value)})" if verdict.value else ""
    return f"{word}: {verdict.promise}{measured}"


def _lines(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for name, *cells in rows:
        right = (cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True))
        yield "  ".join(["", name.ljust(widths[0]), *right]).rstrip()


def as_json(results: Results, at: datetime) -> dict[str, object]:
    """The run as plain values."""
    scenarios = [_scenario(scenario, outcome) for scenario, outcome in results.items()]
    return {"at": at.isoformat(timespec="seconds"), "machine": machine(results), "scenarios": scenarios}


def _scenario(scenario: Scenario, outcome: Outcome) -> dict[str, object]:
    told = {"name": scenario.name, "about": scenario.about, "figure": scenario.figure, "against": scenario.against}
    return told | {"charted": [scenario.figure, *scenario.charted]} | asdict(outcome)


def write(run: Mapping[str, object], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(run, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def machine(scenarios: Iterable[Scenario]) -> dict[str, object]:
    packages = {need for scenario in scenarios for contestant in scenario.contestants for need in contestant.needs}
    return {
        "python": platform.python_version(),
        "gripfast": gripfast.__version__,
        "sqlite": sqlite3.sqlite_version,
        "redis-server": server.version(),
        "postgresql": servers.postgres_version(),
        "mariadb": servers.maria_version(),
        "zookeeper": zookeeper.version(),
        "etcd": etcd.version(),
        "packages": {package: version(package) for package in sorted(packages) if is_installed(package)},
        "system": platform.platform(),
        "cores": os.cpu_count(),
    }
