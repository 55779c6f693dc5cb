"""One seed, one history, byte for byte: in every process, whatever Python's hashes and collector do."""

from __future__ import annotations

import gc
import hashlib
import os
import subprocess
import sys

import pytest

from gripfast_lab.sim.history import line
from gripfast_lab.sim.scenarios import SCENARIOS

SEEDS = {"redis": 40, "permits": 20, "redlock3": 10, "redlock5": 10}
PROGRAM = """
import sys
from gripfast_lab.sim.history import line
from gripfast_lab.sim.scenarios import SCENARIOS
scenario = SCENARIOS[sys.argv[1]]
for seed in range(int(sys.argv[2])):
    for event in scenario.run(scenario.plan(seed)).history:
        print(line(event))
"""
each_scenario = pytest.mark.parametrize("name", SEEDS)


def history(name: str, seed: int) -> list[str]:
    scenario = SCENARIOS[name]
    return [line(event) for event in scenario.run(scenario.plan(seed)).history]


def in_another_process(name: str, hash_seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-c", PROGRAM, name, str(SEEDS[name])]
    done = subprocess.run(command, env=environment, capture_output=True, check=True)
    return hashlib.sha256(done.stdout).hexdigest()


@each_scenario
def test_the_same_seed_gives_the_same_history_whatever_the_hash_seed(name: str) -> None:
    here = "".join(f"{each}\n" for seed in range(SEEDS[name]) for each in history(name, seed))
    digest = hashlib.sha256(here.encode()).hexdigest()
    assert {in_another_process(name, "1"), in_another_process(name, "2")} == {digest}


@each_scenario
def test_the_collector_changes_nothing(name: str) -> None:
    before = gc.get_threshold()
    gc.set_threshold(1)
    try:
        busy = [history(name, seed) for seed in range(3)]
    finally:
        gc.set_threshold(*before)
    assert busy == [history(name, seed) for seed in range(3)]


@each_scenario
def test_what_ran_before_changes_nothing(name: str) -> None:
    alone = history(name, 7)
    history(name, 8)
    assert history(name, 7) == alone


@pytest.mark.parametrize("seed", [0, 1])
def test_replaying_on_the_command_line_prints_the_history_and_nothing_else(seed: int) -> None:
    command = [sys.executable, "-m", "gripfast_lab.sim", "--seed", str(seed)]
    done = subprocess.run(command, capture_output=True, check=True, text=True)
    assert done.stdout.splitlines() == [*history("redis", seed), "violations: none"]
