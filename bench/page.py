"""The parts of docs/benchmarks.md that are figures: `python -m bench.page` writes them from the charts in docs/charts.

A table for each engine, with a row for each figure: what Gripfast takes, what other libraries take, and what the least
program takes that could be a lock. At the end, the goals that were not reached when the charts were drawn.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bench.catalogue import CATALOGUE
from bench.report import number_text
from bench.runner import slug
from bench.scenario import OURS, more_is_better

DOCS = Path(__file__).resolve().parents[1] / "docs"
LEAST = re.compile(r"(?:\d+ )?bare |one commit|python alone")
"""How the name of a contestant begins that is no library, but a limit."""
ENGINES = {
    "redis": "Redis",
    "redlock": "Redlock, on five nodes",
    "sql": "PostgreSQL and MariaDB",
    "zookeeper": "ZooKeeper",
    "etcd": "etcd",
    "embedded": "Without a server",
    "memory": "Without a server",
    "start": "The start of a process",
}
"""By the first word of a scenario's name, in the order of the page."""
HEADING = "| | Gripfast | other libraries | the least |\n|---|---|---|---|"

Figures = Mapping[str, Any]


def figures(folder: Path) -> Iterator[Figures]:
    """Of each scenario, as its chart has them."""
    for scenario in CATALOGUE:
        text = (folder / f"{slug(scenario.name)}.svg").read_text(encoding="utf-8")
        yield json.loads(html.unescape(text.partition("<metadata>")[2].partition("</metadata>")[0]))


def tables(measured: list[Figures]) -> str:
    by_engine: dict[str, list[str]] = {title: [] for title in ENGINES.values()}
    for each in measured:
        by_engine[ENGINES[re.split(r"\W", each["name"])[0]]].extend(_rows(each))
    return "\n\n".join(f"### {title}\n\n{HEADING}\n" + "\n".join(rows) for title, rows in by_engine.items())


def _rows(scenario: Figures) -> Iterator[str]:
    for figure in scenario["charted"]:
        better = "more" if more_is_better(figure) else "less"
        what = f"{scenario['name']}: {figure} ({better} is better)"
        yield f"| {what} | {' | '.join(_cells(scenario, figure))} |"


def _cells(scenario: Figures, figure: str) -> Iterator[str]:
    """Gripfast, the libraries, the limits."""
    named = [(each["contestant"], each["figures"].get(figure)) for each in scenario["standings"]]
    told = {name: number_text(spread["median"]) for name, spread in named if spread}
    ours = {name.removeprefix(OURS).strip(" ,"): value for name, value in told.items() if name.startswith(OURS)}
    least = {name: value for name, value in told.items() if LEAST.match(name)}
    others = {name: value for name, value in told.items() if not name.startswith(OURS) and name not in least}
    for cell in (ours, others, least):
        yield "<br>".join(f"**{value}** {name}".strip() for name, value in cell.items())


def goals(measured: list[Figures]) -> str:
    rows = [
        f"| {scenario['name']} | {verdict['promise']} | {_measured(verdict)} |"
        for scenario in measured
        for verdict in scenario["verdicts"]
        if not verdict["kept"]
    ]
    return "\n".join(["| | goal | measured |\n|---|---|---|", *rows])


def _measured(verdict: Mapping[str, Any]) -> str:
    return number_text(verdict["value"]["median"]) if verdict["value"] else "not measured"


def written(page: str, measured: list[Figures]) -> str:
    """The page, with what stands between the marks replaced."""
    for mark, text in {"figures": tables(measured), "goals": goals(measured)}.items():
        between = re.compile(f"(<!-- {mark}: written by bench/page.py -->\n).*?(<!-- end -->)", re.DOTALL)
        page = between.sub(lambda found, text=text: f"{found[1]}\n{text}\n\n{found[2]}", page)  # type: ignore[misc]
    return page


if __name__ == "__main__":
    path = DOCS / "benchmarks.md"
    path.write_text(written(path.read_text(encoding="utf-8"), list(figures(DOCS / "charts"))), encoding="utf-8")
