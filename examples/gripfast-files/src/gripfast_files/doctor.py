"""What `gripfast doctor` finds at the folder."""

from __future__ import annotations

import os
from collections.abc import Iterator

from gripfast.stores.doctor import Examination, Finding, Terms, problem
from gripfast_files.factory import FilesFactory

OTHERS_WRITE = problem(
    "files-others-write",
    "other users may write in the folder (mode {mode:04o})",
    why="Whoever can write there can break locks.",
    todo="chmod go-w {folder}",
)


def examine(factory: FilesFactory, terms: Terms) -> Examination:
    folder = factory.where.removeprefix("files://")
    return Examination("a folder of files", [*judge(folder, os.stat(folder).st_mode & 0o777)])


def judge(folder: str, mode: int) -> Iterator[Finding]:
    if mode & 0o022:
        yield OTHERS_WRITE(mode=mode, folder=folder)
