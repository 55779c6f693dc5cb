"""Stops a writer where it matters: after its read, before its write. See `at_work`."""

from collections.abc import Sequence
from pathlib import Path

from support.processes import Worker
from support.waiting import until


def stop_one_at_work(writers: Sequence[Worker], folder: Path) -> Worker:
    def stopped() -> Worker | None:
        for writer in writers:
            if (folder / str(writer.pid)).exists():
                writer.stop()
                if (folder / str(writer.pid)).exists():
                    return writer
                writer.go_on()
        return None

    return until(stopped, within=20.0)
