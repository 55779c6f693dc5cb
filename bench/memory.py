"""The memory store: what Holdfast itself costs, with no engine behind it."""

from bench.holdfast_pair import by_async_with, by_calls, by_with
from bench.scenario import Scenario

PAIRS = 2000

MEMORY_PAIR = Scenario(
    name="memory pair",
    about="taking and giving back a free lock in memory",
    contestants=(
        by_calls("acquire+release", lambda _: "memory://", PAIRS),
        by_with("with lock", lambda _: "memory://", PAIRS),
        by_async_with("async with lock", lambda _: "memory://", PAIRS),
    ),
    figure="µs",
    against="acquire+release",
    at_most={},
)
