"""What `make test` leaves out, and how it chooses: an explicit rotation, told at the start of every run.

A test that can run over every store, in sync and async, is one test times thirty-six. Of these `--sample n` takes:

- memory, in both: the cheapest store tells most;
- one step of OTHERS: the test with the number i takes the step (n + i), round and round.

So neighbours run over different stores, every store has its share of every run, and the runs 0 to 37 together leave
none out. The rest is left out by three more rules:

- Of the files in TURNS every second or third takes its turn. Their tests of all stores run in every turn.
- A test that costs much for each of its many parameters has the mark `in_turn(of)`: one of so many takes its turn. In a
  file of TURNS, the next one takes it when it is the file's turn again.
- A test of a crowd takes a fifth of it (the fixture `is_sampled`), a property fewer examples (`conftest.py`).

`--sample all` (`make test-all`) takes everything, as do `make sweep`, `make chaos` and who asks for tests by name.
"""

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch

import pytest

from support.colours import COLOURS
from support.family import LONG
from support.stores import STORES, StoreUnderTest
from support.sweeping import FULL

ALL = "all"
SYNC, ASYNC = COLOURS
Step = tuple[str, str]

NEAR: list[Step] = [
    ("sqlite", SYNC), ("redis", ASYNC), ("sentinel", SYNC), ("valkey", ASYNC),
    ("redis-grace", SYNC), ("redis-replicas", ASYNC), ("cluster", SYNC), ("sentinel-replicas", ASYNC),
    ("cluster-replicas", SYNC),
    ("sqlite", ASYNC), ("redis", SYNC), ("sentinel", ASYNC), ("valkey", SYNC),
    ("redis-grace", ASYNC), ("redis-replicas", SYNC), ("cluster", ASYNC), ("sentinel-replicas", SYNC),
    ("cluster-replicas", ASYNC),
]  # fmt: skip
"""Stores that answer in microseconds."""
FAR: list[Step] = [
    ("postgres", SYNC), ("redlock", ASYNC), ("mysql-row", SYNC), ("zookeeper", ASYNC),
    ("mysql", ASYNC), ("postgres-advisory", SYNC), ("zookeeper", SYNC), ("postgres-row", ASYNC),
    ("redlock", SYNC), ("mysql-advisory", ASYNC), ("postgres", ASYNC), ("mysql-row", ASYNC),
    ("mysql", SYNC), ("postgres-row", SYNC), ("mysql-advisory", SYNC), ("postgres-advisory", ASYNC),
    ("etcd", ASYNC), ("etcd-trio", SYNC), ("etcd", SYNC), ("etcd-trio", ASYNC),
]  # fmt: skip
"""Stores whose answers take milliseconds."""
OTHERS = [step for pair in itertools.zip_longest(NEAR, FAR) for step in pair if step is not None]

TURNS = {
    **{f"tests/{folder}/*": 3 for folder in ("chaos", "cli", "regressions", "sim", "stores")},
    **{f"tests/{folder}/*": 2 for folder in ("contrib", "interop", "processes")},
    "tests/quality/*_bench*": 2,
    "tests/quality/*_server*": 2,
}
"""Files that start servers and processes, or compute for long: one of so many takes its turn."""
BY_NAME = "tests/sweeps/"
"""Where stores are only named, because each sweep makes its own."""
_BY_NAME = {store.name: store.name for store in STORES} | {f"{e}-lease": e for e in ("postgres", "mysql")}


def add_option(parser: pytest.Parser) -> None:
    parser.addoption("--sample", default="0", help="which turn of the rotation over stores, a number; or 'all'")


def is_everything(config: pytest.Config) -> bool:
    asked_by_name = config.option.keyword or any("::" in argument for argument in config.args)
    return FULL or LONG or bool(asked_by_name) or config.getoption("sample") == ALL


def describe(config: pytest.Config) -> str:
    if is_everything(config):
        return "sample: every test over every store, in sync and async"
    turn = config.getoption("sample")
    files = f"; one file in three of {_folders(3)}, one in two of {_folders(2)}" * takes_turns(config)
    return f"sample {turn}: a test of all stores runs over memory and one more{files}; SAMPLE=1 takes others, =all all"


def _folders(of: int) -> str:
    return ", ".join(pattern.removeprefix("tests/").removesuffix("/*") for pattern, many in TURNS.items() if many == of)


def takes_turns(config: pytest.Config) -> bool:
    """Who names a file wants it."""
    return not any(argument.endswith(".py") for argument in config.args)


def left_out(items: list[pytest.Item], turn: int, by_file: bool = False) -> set[pytest.Item]:
    numbers: dict[str, int] = {}
    marked: dict[str, Iterator[int]] = defaultdict(itertools.count)
    out = set()
    turns = file_turns((_file(item) for item in items), turn) if by_file else {}
    for item in items:
        own_turn = turns.get(_file(item), turn)
        combination = _combination(item)
        if combination is not None:
            number = numbers.setdefault(_test(item), len(numbers))
            is_left_out = not is_in_turn(turn + number, *combination)
        elif (mark := item.get_closest_marker("in_turn")) is not None and hasattr(item, "callspec"):
            number = next(marked[_test(item)])
            is_left_out = own_turn is None or not is_one_of(mark.args[0], number, own_turn)
        else:
            is_left_out = own_turn is None
        if is_left_out:
            out.add(item)
    return out


def file_turns(files: Iterable[str], turn: int) -> dict[str, int | None]:
    """Of each file that takes turns: which turn of its own this one is; None if it is not its turn."""
    found = sorted(set(files))
    turns: dict[str, int | None] = {}
    for pattern, of in TURNS.items():
        for number, file in enumerate(file for file in found if fnmatch(file, pattern)):
            turns[file] = turn // of if is_one_of(of, number, turn) else None
    return turns


def is_in_turn(step: int, store: str, colour: str | None) -> bool:
    """Whether a test at this step runs over the store in this colour; None if it has but one."""
    if store == "memory":
        return True
    name, its = OTHERS[step % len(OTHERS)]
    return store == name and colour in (None, its)


def is_one_of(many: int, number: int, turn: int) -> bool:
    """Every so many-th number, one further in each round: so the last of several parameters takes turns, too."""
    return (number + number // many + turn) % many == 0


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def _combination(item: pytest.Item) -> tuple[str, str | None] | None:
    """The store and the colour of an item, if it is one of many such."""
    if not isinstance(item, pytest.Function) or not hasattr(item, "callspec"):
        return None
    chosen = item.callspec.params.values()
    stores = [value.name for value in chosen if isinstance(value, StoreUnderTest)]
    if not stores and item.nodeid.startswith(BY_NAME):
        stores = [_BY_NAME[value] for value in chosen if isinstance(value, str) and value in _BY_NAME]
    colours = [value for value in chosen if isinstance(value, str) and value in COLOURS]
    return (stores[0], next(iter(colours), None)) if stores else None


def _test(item: pytest.Item) -> str:
    """What it is called without its store and colour; the scenarios of a sweep take turns of their own."""
    assert isinstance(item, pytest.Function)
    scenario = item.callspec.params.get("scenario") or item.callspec.params.get("main")
    return item.nodeid.partition("[")[0] + getattr(scenario, "__name__", "")
