"""The memory store: what Gripfast itself costs, with no engine behind it."""

from bench.gripfast_pair import BY_ASYNC_WITH, BY_CALLS, BY_WITH, by_async_with, by_calls, by_with
from bench.scenario import Scenario

PAIRS = (2000, 20)
"""In a full and in a quick round."""

MEMORY_PAIR = Scenario(
    name="memory pair",
    about="acquiring and releasing a free lock in memory, by each way to write it",
    contestants=(
        by_calls(BY_CALLS, lambda _: "memory://", PAIRS),
        by_with(BY_WITH, lambda _: "memory://", PAIRS),
        by_async_with(BY_ASYNC_WITH, lambda _: "memory://", PAIRS),
    ),
    figure="µs",
    against=BY_CALLS,
)
