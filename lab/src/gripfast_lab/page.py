"""`docs/lab.md` and its pictures, written from what the search finds: `python -m gripfast_lab.page docs`."""

from __future__ import annotations

import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

from gripfast_lab.beside import NAME as BESIDE
from gripfast_lab.beside import beside
from gripfast_lab.entries import ENTRIES
from gripfast_lab.entry import Entry
from gripfast_lab.own import NOT_HERE, OWN
from gripfast_lab.pictures import svg
from gripfast_lab.verdicts import OwnVerdict, Verdict, judged, judged_own

HEAD = Path(__file__).with_name("page_head.md")
RULES = {
    "exclusion": "**Exclusion** breaks: two clients {hold} at the same time.",
    "limit": "**The limit** breaks: more clients hold a permit than there are permits.",
    "progress": "**Progress** breaks: nobody who waits will ever get the lock, although nothing more goes wrong.",
    "token": "**The token** breaks: a later grant does not have a larger token.",
    "permit": "**A permit** is lost: never again can all of them be held at the same time.",
    "turn": "**The turn** breaks: a client can wait for ever, while others come and go.",
    "again": "**Once** breaks: the work is begun again after it was done.",
    "never": "**Once** breaks: the work was begun, and will never be done.",
}


def source_of(entry: Entry) -> str:
    """The program, as it stands in the code."""
    return textwrap.dedent(inspect.getsource(entry.protocol().attempt)).rstrip()


def written(folder: Path) -> Iterator[Path]:
    """Every file that was written."""
    pictures = folder / "lab"
    pictures.mkdir(exist_ok=True)
    verdicts = [judged(entry) for entry in ENTRIES]
    for verdict in verdicts:
        if verdict.story is not None:
            yield _write(pictures / f"{verdict.entry.name}.svg", svg.drawn(verdict.story))
    yield _write(pictures / f"{BESIDE}.svg", svg.drawn(beside()))
    own = [judged_own(each) for each in OWN]
    yield _write(folder / "lab.md", "\n\n".join(_page(verdicts, own)) + "\n")


def _write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def _page(verdicts: list[Verdict], own: list[OwnVerdict]) -> Iterator[str]:
    yield HEAD.read_text(encoding="utf-8").strip()
    yield "\n".join(_table(verdicts, own))
    for number, verdict in enumerate(verdicts, 1):
        yield from _section(number, verdict)
    yield from _own_sections(len(verdicts) + 1, own)


def _table(verdicts: list[Verdict], own: list[OwnVerdict]) -> Iterator[str]:
    yield "| | protocol | verdict |\n|---|---|---|"
    for number, verdict in enumerate(verdicts, 1):
        yield f"| {number} | {link(number, verdict.entry.title)} | {verdict} |"
    for number, each in enumerate(own, len(verdicts) + 1):
        yield f"| {number} | {link(number, each.own.title)} | {each} |"


def link(number: int | str, title: str) -> str:
    """To its heading, by the anchor that code hosts and the site make of it."""
    anchor = re.sub(r"[^\w\- ]", "", f"{number}. {title}".lower()).replace(" ", "-")
    return f"[{title}](#{anchor})"


def _section(number: int, verdict: Verdict) -> Iterator[str]:
    entry, story = verdict.entry, verdict.story
    yield f"## {number}. {entry.title}"
    yield entry.idea
    yield f"```py\n{source_of(entry)}\n```"
    if story is None:
        yield str(verdict)
        return
    calm = verdict.calm
    without = f"Without a fault the rule is kept, in all {calm.states:,} states of this protocol."
    rule = RULES[verdict.rule].format(hold=entry.protocol().words.hold)
    yield f"{rule} {without if calm.ended else 'No fault is needed.'}"
    yield f"![{story.title}: {verdict.rule} breaks](lab/{entry.name}.svg)"
    yield "\n".join(f"{place}. {_escaped(moment.text)}" for place, moment in enumerate(story.moments, 1))
    if story.goes_on:
        yield story.goes_on
    yield f"{entry.happens}"
    yield f"**The notes.** {entry.notes}" if entry.notes else f"**Seen.** {entry.seen}"
    yield f"**Gripfast.** {entry.answer}"


def _own_sections(first: int, own: list[OwnVerdict]) -> Iterator[str]:
    for number, verdict in enumerate(own, first):
        yield f"## {number}. {verdict.own.title}"
        yield verdict.own.text
        rows = [
            f"| {each.where} | {each.number:,} {each.unit} | {each.wrong or 'nothing found'} |"
            for each in verdict.searched
        ]
        yield "\n".join(["| world | searched | |\n|---|---|---|", *rows])
    yield f"{NOT_HERE} [The simulation](simulation.md) says what worlds and seeds are."


def _escaped(text: str) -> str:
    """What Markdown would read otherwise."""
    return text.replace("*", r"\*").replace("_", r"\_").replace("<", r"\<")


if __name__ == "__main__":
    for path in written(Path(sys.argv[1])):
        sys.stdout.write(f"{path}\n")
