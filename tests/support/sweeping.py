"""Sweeps: one scenario over and over, broken at another point each time.

Theory of operation. A *trial* knows how to set a scenario up (`begin`, which hands back the part that is swept) and how
to tell afterwards what is wrong (`problem`). A sweep first lets the scenario run unbroken and counts its points, then
breaks it at point 1, 1 + stride, 1 + 2 × stride … until a run ends before its point comes up.

- `sweep_interrupts`: a point is one opcode of a frame whose file lies below `target`, on this thread. KeyboardInterrupt
  is raised there and must come out of the scenario. Inside a finaliser nothing can come out: Python hands the exception
  to `sys.unraisablehook`, which is where it is then looked for.
- `sweep_cancels`: a point is one suspension of the scenario's coroutine. Its task is cancelled there and must end as
  cancelled.

Strides are primes chosen by the number of points alone, so every run of the suite breaks at the same places.
GRIPFAST_SWEEP=full makes the stride 1.
"""

import asyncio
import dis
import enum
import os
import sys
from collections.abc import Callable, Coroutine, Generator, Sequence
from dataclasses import dataclass, field
from types import FrameType, TracebackType
from typing import Any, Protocol

FULL = os.environ.get("GRIPFAST_SWEEP") == "full"
ENOUGH_FINDINGS = 25
RUNAWAY = 4
"""A scenario that keeps running into ever later points is stopped at this multiple of its first count."""

Action = Callable[[], object]


class Trial(Protocol):
    def begin(self) -> Action:
        """Set the scenario up; what is returned is swept."""

    def problem(self) -> str | None:
        """Called once the swept part and its exception are gone: what is wrong now, None if nothing."""


class AsyncTrial(Protocol):
    async def begin(self) -> Coroutine[Any, Any, object]:
        """Set the scenario up; the coroutine that is returned is swept."""

    async def problem(self) -> str | None:
        """Called once the swept part and its exception are gone: what is wrong now, None if nothing."""


@dataclass(frozen=True)
class Finding:
    point: int
    where: str
    problem: str

    def __str__(self) -> str:
        return f"point {self.point}, {self.where}: {self.problem}"


@dataclass
class Swept:
    """What a sweep did and found."""

    total: int
    """Points of an unbroken run."""
    stride: int
    broken: int = 0
    """Runs that were broken at their point."""
    in_finalisers: int = 0
    missed: int = 0
    """Runs that ended before their point: waiting scenarios differ a little from run to run."""
    findings: list[Finding] = field(default_factory=list)

    def __str__(self) -> str:
        extra = f", {self.in_finalisers} in finalisers" if self.in_finalisers else ""
        extra += f", {self.missed} not reached" if self.missed else ""
        return (
            f"{self.broken} points broken of {self.total} (stride {self.stride}{extra}), {len(self.findings)} findings"
        )

    def explain(self) -> str:
        return "\n  ".join([str(self), *map(str, self.findings)])


def combined(sweeps: Sequence[Swept]) -> Swept:
    """Several sweeps of the same scenario as one."""
    whole = Swept(total=0, stride=1)
    for each in sweeps:
        whole.total += each.total
        whole.stride = max(whole.stride, each.stride)
        whole.broken += each.broken
        whole.in_finalisers += each.in_finalisers
        whole.missed += each.missed
        whole.findings += each.findings
    return whole


Report = Callable[[Swept], None]
"""Where a sweep's result is handed in: it is listed, and it fails the test if it found anything."""


def stride_for(total: int, budget: int) -> int:
    """The smallest prime that keeps a sweep within its budget of points; 1 if every point fits or is asked for."""
    if FULL or total <= budget:
        return 1
    stride = -(-total // budget)
    while any(stride % divisor == 0 for divisor in range(2, int(stride**0.5) + 1)):
        stride += 1
    return stride


# KeyboardInterrupt at an opcode -------------------------------------------------------------------------------------


class Interrupter:
    """Counts the opcodes that frames below `target` run on this thread; raises KeyboardInterrupt before the `at`-th."""

    def __init__(self, target: str, at: int) -> None:
        self._target = target
        self._at = at
        self.seen = 0
        self.where = ""

    def __enter__(self) -> None:
        sys.settrace(self._on_call)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        sys.settrace(None)

    def _on_call(self, frame: FrameType, event: str, argument: object) -> Callable[..., Any] | None:
        if not frame.f_code.co_filename.startswith(self._target):
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return self._on_opcode

    def _on_opcode(self, frame: FrameType, event: str, argument: object) -> Callable[..., Any]:
        if event == "opcode":
            self.seen += 1
            if self.seen == self._at:
                self.where = _place(frame)
                # Python stops tracing when a trace function raises, so clean-ups run undisturbed.
                raise KeyboardInterrupt
        return self._on_opcode


def _place(frame: FrameType) -> str:
    code = frame.f_code
    operation = dis.opname[code.co_code[frame.f_lasti]]
    return f"{os.path.relpath(code.co_filename)}:{frame.f_lineno} in {code.co_qualname} at {operation}"


@dataclass(frozen=True)
class _Run:
    seen: int
    where: str
    came_out: str
    unraisable: int


class _Unraisable:
    """Counts KeyboardInterrupts that hit a finaliser; everything else goes to the hook that was there before."""

    def __enter__(self) -> "_Unraisable":
        self.count = 0
        self._before = sys.unraisablehook
        sys.unraisablehook = self._hook
        return self

    def __exit__(self, *_: object) -> None:
        sys.unraisablehook = self._before

    def _hook(self, args: "sys.UnraisableHookArgs") -> None:
        if issubclass(args.exc_type, KeyboardInterrupt):
            self.count += 1
        else:
            self._before(args)


def _confined(action: Action) -> Generator[object, None, None]:
    """Run the action with a "current exception" of its own, as every generator has one.

    PUSH_EXC_INFO and POP_EXCEPT are points, too, but CPython itself never raises there. An exception from a trace
    function makes it leave the exception that was being handled behind as the current one, with all that hangs on it.
    Here that goes with the generator; otherwise it would stay with the thread, and look like a leak.
    """
    yield action()


def _run(action: Action, target: str, at: int) -> _Run:
    interrupter = Interrupter(target, at)
    came_out = ""
    with _Unraisable() as unraisable:
        try:
            with interrupter:
                next(_confined(action))
        except KeyboardInterrupt:
            came_out = "KeyboardInterrupt"
        except BaseException as error:
            came_out = f"{type(error).__name__}: {error}"
    return _Run(interrupter.seen, interrupter.where, came_out, unraisable.count)


def _broken_run(trial: Trial, target: str, at: int) -> _Run:
    """Only this frame holds the action: when it returns, everything that the action kept alive is gone."""
    return _run(trial.begin(), target, at)


def _swallowed(run: _Run) -> str | None:
    if not run.where:
        return f"an unbroken run raised {run.came_out}" if run.came_out else None
    if run.came_out == "KeyboardInterrupt" or (run.unraisable and not run.came_out):
        return None
    return f"KeyboardInterrupt did not come out, but {run.came_out or 'nothing'} did"


def sweep_interrupts(trial: Trial, target: str, budget: int) -> Swept:
    """`target` is a folder (ending in a separator) or a file; `budget` is how many points to break unless FULL."""
    _counted(trial, target)  # what is done once and kept is not counted again
    total = max(_counted(trial, target) for _ in range(2))
    swept = Swept(total, stride_for(total, budget))
    at = 1
    while len(swept.findings) < ENOUGH_FINDINGS and at < RUNAWAY * total:
        run = _broken_run(trial, target, at)
        problem = trial.problem()
        problem = _swallowed(run) or problem
        if problem:
            swept.findings.append(Finding(at, run.where or "unbroken", problem))
        if not run.where and at > total:
            break
        swept.broken += bool(run.where)
        swept.missed += not run.where
        swept.in_finalisers += run.unraisable > 0
        at += swept.stride
    return swept


def _counted(trial: Trial, target: str) -> int:
    run = _broken_run(trial, target, at=0)
    problem = _swallowed(run) or trial.problem()
    assert problem is None, f"without any interrupt: {problem}"
    return run.seen


# Cancel at a suspension ---------------------------------------------------------------------------------------------


class Moment(enum.Enum):
    """When, at a suspension, the cancel comes."""

    SUSPENDING = "as it suspends"
    WAKING = "when what it awaits is done, but it has not run yet"
    REPEATED = "as it suspends, and again at every later suspension"


class Canceller:
    """Awaits a coroutine, counts its suspensions, and cancels the task that awaits at the `at`-th."""

    def __init__(self, coroutine: Coroutine[Any, Any, object], at: int, moment: Moment) -> None:
        self._coroutine = coroutine
        self._at = at
        self._moment = moment
        self.seen = 0
        self.struck = False

    def __await__(self) -> Generator[Any, Any, None]:
        thrown: list[BaseException] = []  # popped into the call: this frame, which tracebacks keep, must not keep them
        while True:
            try:
                awaited = self._coroutine.throw(thrown.pop()) if thrown else self._coroutine.send(None)
            except StopIteration:
                return
            self._suspended(awaited)
            try:
                yield awaited
            except BaseException as error:
                thrown.append(error)

    def _suspended(self, awaited: Any) -> None:
        self.seen += 1
        later = self._moment is Moment.REPEATED and self.struck
        if self.seen != self._at and not later:
            return
        self.struck = True
        task = asyncio.current_task()
        assert task is not None
        if self._moment is Moment.WAKING and awaited is not None:
            # Runs before the task's own wake-up, which is added only when the task sees what was yielded.
            awaited.add_done_callback(lambda _: task.cancel())
        else:
            task.cancel()


async def _cancelled_run(trial: AsyncTrial, at: int, moment: Moment) -> tuple[Canceller, str]:
    canceller = Canceller(await trial.begin(), at, moment)

    async def swept() -> None:
        await canceller

    task = asyncio.create_task(swept())
    await asyncio.wait([task])
    if task.cancelled():
        return canceller, "CancelledError"
    error = task.exception()
    return canceller, f"{type(error).__name__}: {error}" if error else ""


def _uncancelled(canceller: Canceller, came_out: str) -> str | None:
    if not canceller.struck:
        return f"an unbroken run raised {came_out}" if came_out else None
    return None if came_out == "CancelledError" else f"the cancel did not come out, but {came_out or 'nothing'} did"


async def sweep_cancels(trial: AsyncTrial, moment: Moment) -> Swept:
    """Every suspension is taken: there are few."""
    canceller, came_out = await _cancelled_run(trial, 0, moment)
    problem = _uncancelled(canceller, came_out) or await trial.problem()
    assert problem is None, f"without any cancel: {problem}"
    swept = Swept(canceller.seen, 1)
    at = 1
    while len(swept.findings) < ENOUGH_FINDINGS and at <= RUNAWAY * (swept.total + 1):
        canceller, came_out = await _cancelled_run(trial, at, moment)
        problem = await trial.problem()
        problem = _uncancelled(canceller, came_out) or problem
        if problem:
            swept.findings.append(Finding(at, f"cancelled {moment.value}" if canceller.struck else "unbroken", problem))
        if not canceller.struck and at > swept.total:
            break
        swept.broken += canceller.struck
        swept.missed += not canceller.struck
        at += 1
    return swept
