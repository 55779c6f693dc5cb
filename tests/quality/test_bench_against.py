"""Two trees beside each other, and the length of a pair's way: the rulers of a refactoring."""

import shutil
from pathlib import Path

import pytest

from bench import against, path
from bench.__main__ import main
from bench.memory import MEMORY_PAIR
from bench.scenario import Round
from quality.tree import PACKAGE, ROOT

SLOW = "\nimport gripfast.api.lock as _locks, time as _time\n_acquire = _locks.Lock.acquire\n"
SLOW += "_locks.Lock.acquire = lambda *args: (_time.sleep(0.005), _acquire(*args))[1]\n"


def copy_of_this_tree(folder: Path, planted: str = "", *left_out: str) -> Path:
    shutil.copytree(PACKAGE, folder / "src" / "gripfast", ignore=shutil.ignore_patterns("__pycache__", *left_out))
    with (folder / "src" / "gripfast" / "__init__.py").open("a", encoding="utf-8") as code:
        code.write(planted)
    return folder


def test_each_tree_runs_its_own_code(tmp_path: Path) -> None:
    """The other one may be older than a store that is measured elsewhere."""
    other = copy_of_this_tree(tmp_path / "other", SLOW, "etcd")
    (tmp_path / "run").mkdir()
    outcome = against.run(MEMORY_PAIR, tmp_path / "run", other, quick=True)
    assert outcome.absent == {}
    figures = {each.contestant: each.figures["µs"].median for each in outcome.standings}
    assert figures["before: gripfast acquire+release"] > 5000 > figures["gripfast acquire+release"]
    assert outcome.verdicts[0].value is not None
    assert outcome.verdicts[0].value.median < 1


def rounds(*pairs: tuple[float, float]) -> list[Round]:
    return [{"before: gripfast": {"x/s": old, "µs": old}, "gripfast": {"x/s": new, "µs": new}} for old, new in pairs]


@pytest.mark.parametrize(("figure", "old", "new"), [("µs", 100, 105), ("x/s", 105, 100), ("µs", 0, 0)])
def test_a_tree_may_be_a_little_slower(figure: str, old: float, new: float) -> None:
    assert against.no_slower("gripfast", figure, 1.05).keeps(slowness(figure, old, new))


@pytest.mark.parametrize(("figure", "old", "new"), [("µs", 100, 106), ("x/s", 106, 100), ("µs", 0, 1)])
def test_a_tree_that_is_much_slower_is_found(figure: str, old: float, new: float) -> None:
    assert not against.no_slower("gripfast", figure, 1.05).keeps(slowness(figure, old, new))


def slowness(figure: str, old: float, new: float) -> float:
    (samples,) = rounds((old, new))
    return against.no_slower("gripfast", figure, 1.05).value(samples)


def test_a_folder_without_gripfast_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no checkout of Gripfast"):
        main(["memory pair", "--against", str(tmp_path)])


def test_a_tree_that_fails_is_named(tmp_path: Path) -> None:
    other = copy_of_this_tree(tmp_path / "other", "\nraise SystemExit(3)\n")
    (tmp_path / "run").mkdir()
    outcome = against.run(MEMORY_PAIR, tmp_path / "run", other, 1, quick=True)
    assert outcome.absent["before: gripfast with lock"] == "failed: exit status 3"
    assert not outcome.kept


def test_the_way_of_a_pair_is_counted_by_calls_and_by_changes_of_file() -> None:
    assert path.length(["a", "a", "b", "a"]) == path.Length(calls=4, changes=2)
    found = dict(path.measured(["memory"]))
    assert set(found) == {"memory", "memory, asyncio"}
    assert all(each.calls > each.changes > 0 for each in found.values())


def test_the_ways_of_two_trees_stand_beside_each_other() -> None:
    before, now = {"redis": path.Length(40, 30)}, {"redis": path.Length(20, 10), "new": path.Length(1, 0)}
    _, redis, new = path.table(now, before)
    assert redis.split() == ["redis", "40", "30", "20", "10", "50%"]
    assert new.split() == ["new", "1", "0"]


def test_another_tree_is_counted_by_its_own_code(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    rules = tmp_path / "src" / "gripfast" / "core" / "acquire.py"
    text = rules.read_text(encoding="utf-8")
    planted = text.replace("    if env.is_closed:\n", "    (lambda: None)()\n    if env.is_closed:\n", 1)
    assert planted != text
    rules.write_text(planted, encoding="utf-8")
    here, there = path.in_tree(ROOT, ["memory"]), path.in_tree(tmp_path, ["memory"])
    assert there["memory"].calls == here["memory"].calls + 1
