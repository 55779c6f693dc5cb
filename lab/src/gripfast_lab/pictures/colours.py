"""The colours, for light and for dark pages.

The clients have those of Okabe and Ito, which stay apart for whoever sees fewer colours; nothing is told by colour
alone. Each is written out for both schemes, not as a variable: not every program that shows SVG knows variables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple


class Shade(NamedTuple):
    light: str
    dark: str


PAGE = Shade("#ffffff", "#14181d")
STRIPE = Shade("#f4f6f8", "#1a1f26")
ALARMED = Shade("#fdecec", "#381a1e")
"""Behind the moment in which a rule is broken."""
INK = Shade("#1b2330", "#e7ebf1")
FAINT = Shade("#566070", "#a9b3c1")
LINE = Shade("#a3adba", "#566170")
NODE = Shade("#e6eaef", "#2a313b")
ALARM = Shade("#b00020", "#ff8a8a")
LABEL = Shade("#b00020", "#a3001d")
"""Behind white letters, and over bars."""
WHITE = Shade("#ffffff", "#ffffff")

CLIENTS = (
    Shade("#0072b2", "#3a9bd6"),
    Shade("#e69f00", "#e69f00"),
    Shade("#009e73", "#1fb58b"),
    Shade("#cc79a7", "#d68fb7"),
    Shade("#56b4e9", "#7cc7f0"),
    Shade("#f0e442", "#f0e442"),
)

FILLS: Mapping[str, Shade] = {
    "page": PAGE, "stripe": STRIPE, "alarmed": ALARMED, "ink": INK, "faint": FAINT, "node": NODE, "alarm": ALARM,
    "label": LABEL, "white": WHITE, "plain": LINE, **{f"client{place}": shade for place, shade in enumerate(CLIENTS)},
}  # fmt: skip
STROKES: Mapping[str, Shade] = {
    "line": LINE, "edge": INK, "soft-edge": FAINT, "alarm-edge": ALARM, "hatch": LABEL, "page-halo": PAGE,
    "stripe-halo": STRIPE, "alarmed-halo": ALARMED,
    **{f"client{place}-edge": shade for place, shade in enumerate(CLIENTS)},
}  # fmt: skip

SANS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'DejaVu Sans', sans-serif"
MONO = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"


def client(place: int) -> str:
    return f"client{place % len(CLIENTS)}"


def css(scope: str) -> str:
    """Only inside of what has this class: a page may have several pictures, and a style of its own."""
    dark = " ".join(_rules(scope, is_dark=True))
    return (
        f".{scope} text {{ font: 13px {SANS}; }} .{scope} .code {{ font: 11px {MONO}; }} "
        f".{scope} .small {{ font-size: 11px; }} .{scope} .strong {{ font-weight: 600; }} "
        f".{scope} .heading {{ font-size: 16px; font-weight: 600; }} "
        f".{scope} .haloed {{ paint-order: stroke; stroke-width: 4px; stroke-linejoin: round; }} "
        f".{scope} .open {{ fill: none; }} "
        f"{' '.join(_rules(scope, is_dark=False))} @media (prefers-color-scheme: dark) {{ {dark} }}"
    )


def _rules(scope: str, is_dark: bool) -> Iterator[str]:
    for what, shades in (("fill", FILLS), ("stroke", STROKES)):
        for name, shade in shades.items():
            yield f".{scope} .{name} {{ {what}: {shade[is_dark]}; }}"
