"""Charts of a run: one SVG for each scenario, drawn by hand.

As wide as a phone, so that nobody has to zoom: names stand above their bars, numbers beside them, and a thin line goes
from low to high. Gripfast's bars are blue, everybody else's grey, so that nothing depends on telling two hues apart;
the colours follow the reader's light or dark setting. A chart also has its figures as JSON, for the tables of the page
(`page.py`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from textwrap import wrap
from typing import Any

from bench.report import number_text
from bench.runner import slug
from bench.scenario import OURS, more_is_better

WIDTH = 400
MARGIN = 12
NUMBERS = 62
BAR = 14
ROW = 40
LINE = 19
CHARACTERS = 52
"""What surely fits into a line."""

SERVERS = {
    "redis-server": "Redis",
    "postgresql": "PostgreSQL",
    "mariadb": "MariaDB",
    "zookeeper": "ZooKeeper",
    "etcd": "etcd",
}

STYLE = """
  text { font-family: system-ui, sans-serif; font-size: 14px; fill: #24292f; }
  .title { font-weight: 600; font-size: 16px; }
  .figure { font-weight: 600; }
  .small { font-size: 13px; fill: #57606a; }
  .other { fill: #8c959f; }
  .gripfast { fill: #0b65c2; }
  .spread { stroke: #24292f; stroke-width: 1.5; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; }
    .small { fill: #9aa4ae; }
    .other { fill: #7d8590; }
    .gripfast { fill: #58a6ff; }
    .spread { stroke: #e6edf3; }
  }
"""


class Canvas:
    """Lines of SVG from top to bottom."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.y = float(MARGIN)

    def text(self, words: str, kind: str = "", x: float = MARGIN) -> None:
        """On the line that begins at the current height."""
        place = f'x="{x:.1f}" y="{self.y + 14:.1f}"'
        self.parts.append(f'<text class="{kind}" {place}>{escape(words)}</text>')

    def line(self, words: str, kind: str = "") -> None:
        for part in wrap(words, CHARACTERS):
            self.text(part, kind)
            self.y += LINE

    def svg(self, label: str, data: Mapping[str, Any]) -> str:
        height = self.y + MARGIN
        size = f'width="{WIDTH}" height="{height:.0f}" viewBox="0 0 {WIDTH} {height:.0f}"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{escape(label)}">'
        figures = escape(json.dumps(data, ensure_ascii=False), quote=False)
        return "\n".join(
            [head, f"<metadata>{figures}</metadata>", f"<style>{STYLE}</style>", *self.parts, "</svg>", ""]
        )


def chart(scenario: Mapping[str, Any], footer: str) -> str:
    """Of a scenario as the JSON has it."""
    canvas = Canvas()
    canvas.line(scenario["name"], "title")
    canvas.line(scenario["about"], "small")
    for figure in scenario["charted"]:
        _panel(canvas, scenario, figure)
    for verdict in scenario["verdicts"]:
        canvas.line(_promise(verdict), "small")
    for name, why in scenario["absent"].items():
        canvas.line(f"not measured: {name} ({why})", "small")
    canvas.line(footer, "small")
    return canvas.svg(f"{scenario['name']}: {scenario['about']}", {**scenario, "footer": footer})


def _panel(canvas: Canvas, scenario: Mapping[str, Any], figure: str) -> None:
    """One figure of all contestants, the same scale for all bars."""
    canvas.y += MARGIN / 2
    canvas.line(f"{figure} ({'more' if more_is_better(figure) else 'less'} is better)", "figure")
    rows = [
        (each["contestant"], each["figures"][figure]) for each in scenario["standings"] if figure in each["figures"]
    ]
    scale = (WIDTH - 2 * MARGIN - NUMBERS) / (max((spread["high"] for _, spread in rows), default=0) or 1)
    for name, spread in rows:
        _bar(canvas, name, spread, scale)
    canvas.y += MARGIN / 2


def _bar(canvas: Canvas, name: str, spread: Mapping[str, float], scale: float) -> None:
    canvas.text(name)
    top = canvas.y + LINE
    kind = "gripfast" if name.startswith(OURS) else "other"
    size = f'width="{max(1.0, spread["median"] * scale):.1f}" height="{BAR}" rx="2"'
    canvas.parts.append(f'<rect class="{kind}" x="{MARGIN}" y="{top:.1f}" {size}/>')
    low, high = (MARGIN + spread[end] * scale for end in ("low", "high"))
    ends = f'x1="{low:.1f}" x2="{high:.1f}" y1="{top + BAR / 2:.1f}" y2="{top + BAR / 2:.1f}"'
    canvas.parts.append(f'<line class="spread" {ends}/>')
    canvas.y += LINE - 2
    canvas.text(number_text(spread["median"]), x=max(high, MARGIN + spread["median"] * scale) + 6)
    canvas.y += ROW - LINE + 2


def _promise(verdict: Mapping[str, Any]) -> str:
    if verdict["value"] is None:
        return f"– goal not measured: {verdict['promise']}"
    reached = "✓ goal" if verdict["kept"] else "goal not reached yet"
    return f"{reached}: {verdict['promise']} (measured {number_text(verdict['value']['median'])})"


def footer(run: Mapping[str, Any]) -> str:
    machine = run["machine"]
    made_of = [f"Python {machine['python']}"]
    # A run of earlier days does not tell about servers that came later.
    made_of += [f"{name} {machine[key]}" for key, name in SERVERS.items() if machine.get(key)]
    made_of += [f"{name} {version}" for name, version in machine["packages"].items()]
    return f"{run['at'][:10]} · {' · '.join(made_of)} · {machine['cores']} cores"


def draw(run: Mapping[str, Any], folder: Path) -> list[Path]:
    """A file for each scenario of the run."""
    folder.mkdir(parents=True, exist_ok=True)
    return list(_drawn(run["scenarios"], footer(run), folder))


def _drawn(scenarios: Sequence[Mapping[str, Any]], below: str, folder: Path) -> Iterator[Path]:
    for scenario in scenarios:
        path = folder / f"{slug(scenario['name'])}.svg"
        path.write_text(chart(scenario, below), encoding="utf-8")
        yield path
