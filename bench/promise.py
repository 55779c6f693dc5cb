"""Promises: what the figures of a run must come to, and whether they did.

A promise is worked out for each round from the samples of all contestants. The median of the rounds must keep it; where
a single miss is a miss (`always`), the worst round must.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.scenario import Round, Spread, ratio


@dataclass(frozen=True)
class Promise:
    text: str
    value: Callable[[Round], float]
    """Raises KeyError when a contestant it is about did not take part."""
    least: float | None = None
    most: float | None = None
    always: bool = False

    def keeps(self, value: float) -> bool:
        return (self.least is None or value >= self.least) and (self.most is None or value <= self.most)


@dataclass(frozen=True)
class Verdict:
    promise: str
    value: Spread | None
    """None: it could not be measured."""
    kept: bool


def judged(promise: Promise, rounds: Sequence[Round]) -> Verdict:
    """What can't be measured is not kept."""
    try:
        values = [promise.value(each) for each in rounds]
    except KeyError:
        return Verdict(promise.text, None, False)
    if not values:
        return Verdict(promise.text, None, False)
    spread = Spread.of(values)
    decisive = [spread.least, spread.most] if promise.always else [spread.median]
    return Verdict(promise.text, spread, all(promise.keeps(value) for value in decisive))


def at_most(who: str, limit: float, figure: str, *, against: str | None = None, always: bool = False) -> Promise:
    """Of the figure itself, or of its ratio to another contestant's."""
    return Promise(_text(who, figure, "at most", limit, against), _ratio(who, figure, against), None, limit, always)


def at_least(who: str, limit: float, figure: str, *, against: str | None = None, always: bool = False) -> Promise:
    return Promise(_text(who, figure, "at least", limit, against), _ratio(who, figure, against), limit, None, always)


def faster(who: str, times: float, figure: str, *, than: str) -> Promise:
    """For figures that are times: how often `who` fits into the other's."""
    return Promise(f"{who}: at least {times:g} × as fast as {than}", _ratio(than, figure, who), times)


def at_least_best(who: str, limit: float, figure: str, *, of: Sequence[str]) -> Promise:
    """Compared with the best of those that took part, round by round."""

    def value(samples: Round) -> float:
        others = [samples[other][figure] for other in of if other in samples]
        if not others:
            raise KeyError(of[0])
        return ratio(samples[who][figure], max(others))

    return Promise(f"{who}: {figure} at least {limit:g} × the best of {', '.join(of)}", value, limit)


def _text(who: str, figure: str, bound: str, limit: float, against: str | None) -> str:
    return f"{who}: {figure} {bound} {limit:g}" + (f" × {against}" if against else "")


def _ratio(who: str, figure: str, against: str | None) -> Callable[[Round], float]:
    if against is None:
        return lambda samples: samples[who][figure]
    return lambda samples: ratio(samples[who][figure], samples[against][figure])
