"""`python -m bench.turn SCENARIO FOLDER URL [quick]`: one turn of a tree, told as JSON (`bench/against.py`).

URL is the scenario's server, which somebody else has started; empty without one.
"""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from bench.against import ALTERNATIONS, ours
from bench.catalogue import CATALOGUE
from bench.runner import run
from bench.scenario import Scenario, Spread, more_is_better

ROUNDS = 15
"""Of a scenario whose rounds are short: some of them are disturbed by nothing."""


def main(name: str, folder: str, url: str, *flags: str) -> None:
    """The best of each figure: what else happens on the machine makes a round slower, and none faster. What is measured
    for seconds is not measured to warm up, too."""
    scenario = next(each for each in CATALOGUE if each.name == name)
    rounds = ROUNDS if scenario.rounds > 10 else max(1, scenario.rounds // ALTERNATIONS)
    own = replace(alone(scenario, url), warm_up=scenario.warm_up and rounds > 1)
    outcome = run(own, Path(folder), rounds, "quick" in flags)
    samples = {
        each.contestant: {figure: best(figure, spread) for figure, spread in each.figures.items()}
        for each in outcome.standings
    }
    json.dump({"samples": samples, "absent": outcome.absent}, sys.stdout)


def best(figure: str, spread: Spread) -> float:
    return spread.most if more_is_better(figure) else spread.least


def alone(scenario: Scenario, url: str) -> Scenario:
    """Gripfast's contestants only, on a server that is there already."""
    server = (lambda _: nullcontext(url)) if url else None
    return replace(scenario, contestants=ours(scenario), against=None, promises=(), server=server)


if __name__ == "__main__":
    main(*sys.argv[1:])
