"""Interrupts a loop at many instructions of its shared connection to Redis; ends with an error if a reply went astray.

Arguments: URL, the stride, and "connected" or "connecting".
"""

import asyncio
import contextlib
import sys
import warnings
from types import FrameType
from typing import Any

import gripfast

BROKEN = ("redis/aio.py", "redis/conversation.py", "redis/opening.py", "redis/shared.py")


class Trap:
    """Raises KeyboardInterrupt before the instruction of that number, counted in the files above."""

    def __init__(self, number: int) -> None:
        self.left = number
        self.where = ""

    def enters(self, frame: FrameType, event: str, arg: object) -> Any:
        if not frame.f_code.co_filename.endswith(BROKEN):
            return None
        frame.f_trace_opcodes = True
        return self._steps

    def _steps(self, frame: FrameType, event: str, arg: object) -> Any:
        self.left -= event == "opcode"
        if self.left == 0:
            sys.settrace(None)
            self.where = f"{frame.f_code.co_qualname}:{frame.f_lineno}"
            raise KeyboardInterrupt
        return self._steps


async def use(client: gripfast.AsyncClient) -> None:
    async def one(number: int) -> None:
        async with client.lock(f"free-{number}"):
            pass

    await asyncio.gather(*(one(number) for number in range(3)))


async def check(client: gripfast.AsyncClient) -> list[gripfast.AsyncLease]:
    """Free ones beside one that somebody holds; those who were granted the latter."""
    wrong: list[gripfast.AsyncLease] = []

    async def held() -> None:
        if lease := await client.lock("held").acquire(wait=0.001):
            wrong.append(lease)

    async def free(number: int) -> None:
        await (await client.lock(f"other-{number}").acquire(wait=10)).release()

    tries = [held() if number % 2 else free(number) for number in range(6)]
    answers = await asyncio.wait_for(asyncio.gather(*tries, return_exceptions=True), 20)
    assert all(isinstance(answer, gripfast.GripfastError | None) for answer in answers), answers
    assert not any(answers[::2]), answers
    return wrong


def end_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """As `asyncio.run` does. The interrupt goes on from the task that it struck to those that wait for it."""
    while tasks := asyncio.all_tasks(loop):
        for task in tasks:
            task.cancel()
        with contextlib.suppress(KeyboardInterrupt):
            loop.run_until_complete(asyncio.wait(tasks))


def interrupted(url: str, number: int, is_warm: bool) -> str:
    """Where it struck; empty if the program was over before."""
    trap = Trap(number)
    loop = asyncio.new_event_loop()
    client = gripfast.connect_async(url, request_timeout=1.0)
    try:
        if is_warm:
            loop.run_until_complete(use(client))
        sys.settrace(trap.enters)
        try:
            loop.run_until_complete(use(client))
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(None)
        end_tasks(loop)
        assert loop.run_until_complete(check(client)) == [], trap.where
        loop.run_until_complete(client.aclose())
    finally:
        loop.close()
    return trap.where


def main(url: str, stride: int, is_warm: bool) -> int:
    """How many points there were."""
    warnings.simplefilter("ignore", ResourceWarning)
    with gripfast.connect(url) as holder, holder.lock("held", ttl=600):
        number = 1
        while interrupted(url, number, is_warm):
            number += stride
    return number // stride


if __name__ == "__main__":
    print(main(sys.argv[1], int(sys.argv[2]), sys.argv[3] == "connected"))
