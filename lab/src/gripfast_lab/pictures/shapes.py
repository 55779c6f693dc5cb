"""The parts of an SVG picture: elements as text, arrow heads, and the little signs on the lanes."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from gripfast.errors import visible
from gripfast_lab.story import Sign

RADIUS = 9.5
"""Of a sign."""


def element(name: str, *inside: str, class_: str = "", **attributes: str | float) -> str:
    """`inside` is SVG already; use `written` for text. An underscore in a name of an attribute is a hyphen."""
    told = {"class": class_} if class_ else {}
    told |= {key.replace("_", "-"): _value(value) for key, value in attributes.items()}
    head = " ".join([name, *(f'{key}="{escape(value)}"' for key, value in told.items())])
    return f"<{head}>{''.join(inside)}</{name}>" if inside else f"<{head}/>"


def _value(value: str | float) -> str:
    return visible(value) if isinstance(value, str) else f"{value:.1f}".removesuffix(".0")


def plain(text: str) -> str:
    return escape(visible(text))


def written(x: float, y: float, text: str, class_: str = "ink", anchor: str = "start") -> str:
    return element("text", plain(text), class_=class_, x=x, y=y, text_anchor=anchor) if text else ""


def lines_written(x: float, y: float, lines: Iterable[str], step: float, class_: str, anchor: str = "start") -> str:
    """`y` is that of the first line."""
    return "".join(written(x, y + step * place, line, class_, anchor) for place, line in enumerate(lines))


def box(x: float, y: float, width: float, height: float, class_: str, radius: float = 0, **more: str | float) -> str:
    return element("rect", class_=class_, x=x, y=y, width=width, height=height, rx=radius, **more)


def line(x1: float, y1: float, x2: float, y2: float, class_: str, width: float = 1.5, **more: str | float) -> str:
    return element("line", class_=class_, x1=x1, y1=y1, x2=x2, y2=y2, stroke_width=width, **more)


def head(x: float, y: float, to_the_right: bool, class_: str) -> str:
    """Of an arrow, with its tip at x."""
    back = x - 9 if to_the_right else x + 9
    return element("polygon", class_=class_, points=f"{x:g},{y:g} {back:g},{y - 4.5:g} {back:g},{y + 4.5:g}")


def cross(x: float, y: float, size: float = 5) -> str:
    path = f"M{x - size:g} {y - size:g}l{2 * size:g} {2 * size:g}m0 {-2 * size:g}l{-2 * size:g} {2 * size:g}"
    return element("path", class_="alarm-edge open", d=path, stroke_width=2.6, stroke_linecap="round")


# Signs: a ring, and in it strokes around 0, 0 ------------------------------------------------------------------------

_INSIDE: dict[Sign, str] = {
    "leave": "M-4 0l3 3.5l5 -7",
    "refused": "M-6.7 6.7L6.7 -6.7",
    "slow": "M-3.5 -4.5h7l-7 9h7z",
    "pause": "M-2.5 -4v8M2.5 -4v8",
    "resume": "M-2.5 -4.5l6.5 4.5l-6.5 4.5z",
    "restart": "M4.5 -1.5a4.8 4.8 0 1 0 0 3.4M5 -5.5v4h-4",
    "jump": "M0 -5v5l4 -3M-6 0h2M4 3l3 0",
    "cut": "M-6 0h3.5M2.5 0h3.5M-2.5 -4l2 8M.5 -4l2 8",
    "time": "M0 -5.5v5.5h4.5",
    "other": "M-3.5 0h.1M0 0h.1M3.5 0h.1",
}
_ALARMING: tuple[Sign, ...] = ("crash", "lost")


def sign(kind: Sign, x: float, y: float) -> str:
    edge = "alarm-edge" if kind in _ALARMING else "edge"
    ring = element("circle", class_=f"page {edge}", cx=x, cy=y, r=RADIUS, stroke_width=1.5)
    if kind in _ALARMING:
        return ring + cross(x, y, 4)
    inside = _INSIDE.get(kind, _INSIDE["other"])
    at, round_ = f"translate({x:g} {y:g})", "round"
    path = element(
        "path",
        class_="edge open",
        d=inside,
        transform=at,
        stroke_width=1.7,
        stroke_linecap=round_,
        stroke_linejoin=round_,
    )
    return ring + path
