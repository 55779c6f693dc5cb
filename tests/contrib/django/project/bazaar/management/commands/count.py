"""Counts in a file, under a lock if it is told the name of one."""

import os
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand

from gripfast import Lease, current_lease
from gripfast.contrib.django import locked


class Command(BaseCommand):
    def add_arguments(self, parser: Any) -> None:
        parser.add_argument("file")
        parser.add_argument("--times", type=int, default=1)

    def handle(self, *, file: str, times: int, **options: Any) -> None:
        for _ in range(times):
            count_one(Path(file))
        self.stdout.write(f"counted, with token {os.environ.get('GRIPFAST_TOKEN')}")


def count_one(path: Path) -> None:
    number = int(path.read_text(encoding="utf-8") or 0)
    path.write_text(str(number + 1), encoding="utf-8")


class Locked(Command):
    """What `count_locked` is."""

    @locked("count:{file}", wait=0)
    def handle(self, *, file: str, times: int, **options: Any) -> None:
        super().handle(file=file, times=times, **options)


class LockedForLong(Command):
    """What `count_for_long` is. It counts while it holds its lock."""

    @locked("count:{file}", wait=0, ttl=1)
    def handle(self, *, file: str, times: int, **options: Any) -> None:
        lease = current_lease(Lease)
        for _ in range(times):
            lease.lost.wait(0.05)
            lease.ensure_held()
            count_one(Path(file))
