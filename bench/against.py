"""Two trees beside each other: `python -m bench --against PATH`.

Each alternation measures a scenario once in the other tree and once in this one, and the order changes every time. A
turn (`bench/turn.py`) is a new process: its addresses and hashes differ from those of the one before, so what depends
on them evens out. Interpreter, packages, server and benchmark are the same for both trees; only the `src` differs.

Only Gripfast's contestants take part. A ratio above one means that this tree is slower, for figures per second too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.promise import Promise, judged
from bench.runner import QUICK_ROUNDS, Outcome, pinned, served, standing
from bench.scenario import OURS, Contestant, Round, Sample, Scenario, more_is_better, ratio

ROOT = Path(__file__).resolve().parents[1]
ALTERNATIONS = 7
BEFORE = "before: "
NOW = ""


def run(scenario: Scenario, folder: Path, other: Path, alternations: int | None = None, quick: bool = False) -> Outcome:
    """Contestants of the other tree are named `before: …`."""
    environment(other)  # what is wrong with it is told before anything is started
    absent: dict[str, str] = {}
    with pinned(scenario.pinned), served(scenario, folder) as url:
        rounds = [
            _alternation(scenario, folder / f"turn-{number}", url, other, bool(number % 2), quick, absent)
            for number in range(alternations or (QUICK_ROUNDS if quick else ALTERNATIONS))
        ]
    return _outcome(scenario, rounds, absent)


def ours(scenario: Scenario) -> tuple[Contestant, ...]:
    return tuple(each for each in scenario.contestants if each.name.startswith(OURS))


def environment(tree: Path) -> dict[str, str]:
    """In it `import gripfast` means that tree's, whichever is installed."""
    if not (tree / "src" / "gripfast" / "__init__.py").is_file():
        raise SystemExit(f"{tree} is no checkout of Gripfast: it has no src/gripfast")
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(tree / "src"), str(ROOT)])}


def _alternation(
    scenario: Scenario, folder: Path, url: str, other: Path, old_first: bool, quick: bool, absent: dict[str, str]
) -> Round:
    samples: dict[str, Sample] = {}
    for when, tree in sorted([(NOW, ROOT), (BEFORE, other)], reverse=old_first):
        own = folder / ("before" if when else "now")
        own.mkdir(parents=True)
        command = [sys.executable, "-m", "bench.turn", scenario.name, str(own), url, *(["quick"] if quick else [])]
        done = subprocess.run(command, cwd=ROOT, env=environment(tree), stdout=subprocess.PIPE, check=False)
        if done.returncode:
            absent |= {when + each.name: f"failed: exit status {done.returncode}" for each in ours(scenario)}
        else:
            told = json.loads(done.stdout)
            absent |= {when + name: why for name, why in told["absent"].items()}
            samples |= {when + name: sample for name, sample in told["samples"].items()}
    return samples


def _outcome(scenario: Scenario, rounds: Sequence[Round], absent: dict[str, str]) -> Outcome:
    names = [when + each.name for each in ours(scenario) for when in (BEFORE, NOW)]
    present = [name for name in names if name not in absent]
    promises = (no_slower(each.name, scenario.figure, scenario.slower) for each in ours(scenario))
    standings = [standing(name, rounds) for name in present]
    return Outcome(standings, [judged(promise, rounds) for promise in promises], absent)


def no_slower(name: str, figure: str, limit: float) -> Promise:
    def times_slower(samples: Round) -> float:
        before, now = samples[BEFORE + name][figure], samples[NOW + name][figure]
        if before == now:
            return 1.0  # both may be nothing
        return ratio(before, now) if more_is_better(figure) else ratio(now, before)

    return Promise(f"{name}: {figure} at most {limit:g} × as slow as before", times_slower, most=limit)
