"""One seed, one history, byte for byte: in every process, whatever Python's hashes and collector do."""

from __future__ import annotations

import gc
import hashlib
import os
import subprocess
import sys

import pytest

from holdfast.sim.history import line
from holdfast.sim.scenarios import SCENARIOS

SEEDS = range(40)
PROGRAM = """
from holdfast.sim.history import line
from holdfast.sim.scenarios import SCENARIOS
for seed in range(40):
    redis = SCENARIOS["redis"]
    for event in redis.run(redis.plan(seed)).history:
        print(line(event))
"""


def history(seed: int) -> list[str]:
    redis = SCENARIOS["redis"]
    return [line(event) for event in redis.run(redis.plan(seed)).history]


def in_another_process(hash_seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, check=True)
    return hashlib.sha256(done.stdout).hexdigest()


def test_the_same_seed_gives_the_same_history_whatever_the_hash_seed() -> None:
    here = "".join(f"{each}\n" for seed in SEEDS for each in history(seed))
    digest = hashlib.sha256(here.encode()).hexdigest()
    assert {in_another_process("1"), in_another_process("2")} == {digest}


def test_the_collector_changes_nothing() -> None:
    before = gc.get_threshold()
    gc.set_threshold(1)
    try:
        busy = [history(seed) for seed in range(3)]
    finally:
        gc.set_threshold(*before)
    assert busy == [history(seed) for seed in range(3)]


def test_what_ran_before_changes_nothing() -> None:
    alone = history(7)
    history(8)
    assert history(7) == alone


@pytest.mark.parametrize("seed", [0, 1])
def test_replaying_on_the_command_line_prints_the_history_and_nothing_else(seed: int) -> None:
    command = [sys.executable, "-m", "holdfast.sim", "--seed", str(seed)]
    done = subprocess.run(command, capture_output=True, check=True, text=True)
    assert done.stdout.splitlines() == [*history(seed), "violations: none"]
