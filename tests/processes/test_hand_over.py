"""A lock passes from process to process: one adopter only, and never two who have it, whoever is killed.

GRIPFAST_CHAOS=long: 1,000 texts with two adopters each, and 100 kills, on each engine; `-s` shows the figures.
"""

import itertools
import random
from pathlib import Path

import pytest

import gripfast
from gripfast.machine import boottime
from support.family import KEEPS, LONG, store_url
from support.processes import Worker

TTL, SLACK = 1.0, 5.0
"""Of the worker's locks; and seconds for requests to travel on a busy machine. What is not free then never is."""


@pytest.mark.parametrize("store", KEEPS)
@pytest.mark.in_turn(3)
def test_of_two_processes_that_adopt_at_the_same_moment_one_believes(
    store: str, tmp_path: Path, is_sampled: bool
) -> None:
    rounds, won = 1000 if LONG else 10 if is_sampled else 100, [0, 0]
    arguments = ("hand_over.py",)
    with (
        store_url(store, tmp_path) as url,
        gripfast.connect(url) as client,
        Worker(*arguments, url, tmp_path / "journal") as one,
        Worker(*arguments, url, tmp_path / "journal") as two,
    ):
        adopters = (one, two)
        for adopter in adopters:
            adopter.expect("ready")
        for _ in range(rounds):
            lease = client.lock("job", ttl=30).acquire(wait=10)
            text = lease.detach()
            for adopter in adopters:
                adopter.say(f"adopt {text}")
            answers = [adopter.line().split() for adopter in adopters]
            assert sorted(answer[0] for answer in answers) == ["adopted", "refused"]
            winner = 0 if answers[0][0] == "adopted" else 1
            assert int(answers[winner][1]) > lease.token
            won[winner] += 1
            adopters[winner].say("release")
            adopters[winner].expect("released")
            assert client.inspect("job") is None
    print(f"\n{store}: of {rounds} texts one adopter got {won[0]}, the other {won[1]}, and nobody both")


@pytest.mark.parametrize("store", KEEPS)
@pytest.mark.in_turn(6)
def test_whoever_is_killed_the_lock_is_free_after_its_ttl_and_never_held_twice(
    store: str, tmp_path: Path, is_sampled: bool
) -> None:
    rounds = 100 if LONG else 3 if is_sampled else 10
    journal, chance, longest, adopted = tmp_path / "journal", random.Random(7), 0.0, 0
    with store_url(store, tmp_path) as url, gripfast.connect(url) as client:
        for _ in range(rounds):
            with Worker("hand_over.py", url, journal) as web, Worker("hand_over.py", url, journal) as worker:
                web.expect("ready")
                worker.expect("ready")
                web.say("detach")
                (text,) = web.expect("detached")
                killed_before = chance.random() < 0.5
                if killed_before:
                    web.kill()
                worker.say(f"adopt {text}")
                worker.say("work")
                if chance.random() < 0.5:
                    adopted += worker.line().startswith("adopted")
                    worker.ended_within(chance.uniform(0.0, 0.3))
                else:
                    worker.ended_within(chance.uniform(0.0, 0.005))
                worker.kill()
                died = boottime()
                if not killed_before:
                    web.kill()
                lease = client.lock("job", ttl=TTL).acquire(wait=TTL + SLACK)
                longest = max(longest, boottime() - died)
                with journal.open("a") as log:
                    log.write(f"{lease.owner} {boottime()!r} {boottime()!r}\n")
                lease.release()
    beliefs: dict[str, tuple[float, float]] = {}
    for line in journal.read_text().splitlines():
        owner, begins, ends = line.split()
        beliefs[owner] = float(begins), float(ends)
    in_order = sorted(beliefs.values())
    assert len(in_order) > 2 * rounds - rounds // 2
    assert adopted
    assert all(earlier[1] < later[0] for earlier, later in itertools.pairwise(in_order)), in_order
    print(f"\n{store}: {rounds} rounds, {adopted} killed after they had adopted, free after {longest:.2f} s at most")
