"""`python -m bench [WORD…]`: run the scenarios whose name has one of the words; all without any."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench import report
from bench.catalogue import CATALOGUE
from bench.scenario import Scenario, Standing, run

RESULTS = Path(__file__).parent / "results"


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 1 if a promised ratio was not kept."""
    options = _parser().parse_args(arguments)
    scenarios = [each for each in CATALOGUE if not options.words or any(word in each.name for word in options.words)]
    if not scenarios:
        print("No such scenario. There are:", *(each.name for each in CATALOGUE), sep="\n  ", file=sys.stderr)
        return 2
    results = {scenario: _run(scenario, options.rounds) for scenario in scenarios}
    print(f"written to {report.write(results, options.results)}")
    return 0 if all(each.kept for standings in results.values() for each in standings) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("words", nargs="*", metavar="WORD", help="part of a scenario's name")
    parser.add_argument(
        "--rounds", type=int, help="how often the contestants take turns, instead of each scenario's own"
    )
    parser.add_argument("--results", type=Path, default=RESULTS, help="the folder that the JSON is written to")
    return parser


def _run(scenario: Scenario, rounds: int | None) -> list[Standing]:
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        standings = run(scenario, Path(folder), rounds)
    print(report.table(scenario, standings), end="\n\n", flush=True)
    return standings


if __name__ == "__main__":
    sys.exit(main())
