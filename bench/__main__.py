"""`python -m bench [WORD…]`: run the scenarios whose name contains one of the words; without words, all of them."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from bench import against, charts, report
from bench.catalogue import CATALOGUE
from bench.runner import Outcome, run
from bench.scenario import Scenario

RESULTS = Path(__file__).parent / "results"


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 1 if a promise was not kept, or could not be measured; so if a tree is slower than it may be."""
    options = _parser().parse_args(arguments)
    if options.list:
        print(*(f"{each.name}: {each.about}" for each in CATALOGUE), sep="\n")
        return 0
    if options.draw:
        return _draw(
            json.loads(options.draw.read_text(encoding="utf-8")), options.charts or options.draw.with_suffix("")
        )
    scenarios = [each for each in CATALOGUE if not options.words or any(word in each.name for word in options.words)]
    if not scenarios:
        print("No such scenario. There are:", *(each.name for each in CATALOGUE), sep="\n  ", file=sys.stderr)
        return 2
    results = {scenario: _run(scenario, options) for scenario in scenarios}
    _write(results, options)
    return 0 if all(each.kept for each in results.values()) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    add = parser.add_argument
    add("words", nargs="*", metavar="WORD", help="part of a scenario's name")
    add("--list", action="store_true", help="list the scenarios, and run nothing")
    add(
        "--against",
        type=Path,
        metavar="PATH",
        help="compare this checkout with the one at PATH, in turns; fail if this one is too much slower",
    )
    add(
        "--rounds",
        type=int,
        help="how many turns each contestant, or checkout, gets, instead of the scenario's own number",
    )
    add("--quick", action="store_true", help="small and short, only to see that everything works")
    add(
        "--json",
        type=Path,
        metavar="FILE",
        help=f"write the figures here; without this, to a new file in {RESULTS.name}/",
    )
    add("--charts", type=Path, metavar="FOLDER", help="write the charts here; without this, beside the figures")
    add("--draw", type=Path, metavar="FILE", help="draw the charts of an earlier run's figures again, and run nothing")
    return parser


def _run(scenario: Scenario, options: argparse.Namespace) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="gripfast-bench-") as folder:
        if options.against:
            outcome = against.run(scenario, Path(folder), options.against.resolve(), options.rounds, options.quick)
        else:
            outcome = run(scenario, Path(folder), options.rounds, options.quick)
    print(report.table(scenario, outcome), end="\n\n", flush=True)
    return outcome


def _write(results: report.Results, options: argparse.Namespace) -> None:
    now = datetime.now(UTC)
    path: Path = options.json or RESULTS / f"{now:%Y%m%dT%H%M%SZ}.json"
    run_told = report.as_json(results, now)
    report.write(run_told, path)
    print(f"written to {path}")
    _draw(run_told, options.charts or path.with_suffix(""))


def _draw(run_told: dict[str, object], folder: Path) -> int:
    drawn = charts.draw(run_told, folder)
    print(f"drawn: {len(drawn)} charts in {folder}")
    return 0


def _stop(number: int, _: object) -> None:
    raise SystemExit(128 + number)


if __name__ == "__main__":
    # Whoever ends a run with a plain kill must not leave a server behind.
    signal.signal(signal.SIGTERM, _stop)
    sys.exit(main())
