"""`docs/zh/lab.md`, from `docs/lab.md` and the translations in `chinese.toml`: `python -m gripfast_lab.chinese docs`.

Programs, pictures, figures and links are those of the English page. A text is looked up as a whole: if a word of it
changes, it has no Chinese until somebody has translated the change, and `Untranslated` names it. What the search
tells, event by event, is translated phrase by phrase.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from gripfast_lab.page import link

TABLE = Path(__file__).with_name("chinese.toml")
_BLOCK = re.compile(r"^```.*?^```$|(?:^(?!```)[^\n]+\n?)+", re.MULTILINE | re.DOTALL)
_ITEM = re.compile(r"^(- |\d+\. )(.*?)(?=\n- |\n\d+\. |\Z)", re.MULTILINE | re.DOTALL)
_WORD = re.compile(r"(?<![\w:])[a-z]{2,}(?![\w:])")
_LANGUAGE = ("[中文](zh/lab.md)", "[English](../lab.md)")


class Untranslated(Exception):
    """The table lacks the Chinese of a text."""


class Chinese:
    """Translates the page, and knows which translations it has used."""

    def __init__(self, table: str) -> None:
        parsed = tomllib.loads(table)
        self.texts: dict[str, str] = {each["en"]: each["zh"] for each in parsed["text"]}
        self.unused = set(self.texts)
        self._labels: dict[str, str] = parsed["labels"]
        self._names = frozenset(parsed["names"])
        self._phrases = [(re.compile(each["en"]), each["zh"]) for each in parsed["phrase"]]

    def page(self, english: str) -> str:
        return "\n\n".join(self._block(block) for block in blocks(english)) + "\n"

    def said(self, text: str) -> str:
        """Of a whole text, or of what the search tells."""
        text = " ".join(text.split())
        if text in self.texts:
            self.unused.discard(text)
            return self.texts[text]
        said = self._by_phrases(text)
        if unknown := [word for word in _WORD.findall(said) if word not in self._names]:
            raise Untranslated(f"{TABLE.name} has no Chinese for {text!r}: {' '.join(unknown)}. Add it there")
        return said

    def _by_phrases(self, text: str) -> str:
        for pattern, chinese in self._phrases:
            text = pattern.sub(chinese, text)
        return re.sub(r"; (?=[^;]*[\u4e00-\u9fff])", "；", text)

    def _block(self, block: str) -> str:
        if block.startswith("```"):
            return block
        if block == _LANGUAGE[0]:
            return _LANGUAGE[1]
        if heading := re.fullmatch(r"(#+ (?:\d+\. )?)(.+)", block):
            return heading[1] + self.said(heading[2])
        if picture := re.fullmatch(r"!\[(.+): (\w+ breaks)\]\((.+)\)", block):
            return f"![{self.said(picture[1])}：{self.said(picture[2])}](../{picture[3]})"
        if block.startswith("|"):
            return "\n".join(self._row(row) for row in block.splitlines())
        if _ITEM.match(block):
            return "\n".join(mark + self.said(item) for mark, item in _ITEM.findall(block))
        for label, chinese in self._labels.items():
            if block.startswith(label):
                return f"{chinese}{self.said(block.removeprefix(label))}"
        return self.said(block)

    def _row(self, row: str) -> str:
        """Of a number, a link to a section and a verdict; or of a world and what was searched in it."""
        if set(row) <= set("|- "):
            return row
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        number = cells[0]
        return f"| {' | '.join(self._cell(number, cell) for cell in cells)} |".replace("|  |", "| |")

    def _cell(self, number: str, cell: str) -> str:
        if english := re.fullmatch(r"\[(.+)\]\(#.+\)", cell):
            return link(number, self.said(english[1]))
        is_name = re.fullmatch(r"[\w-]*", cell) is not None and cell not in self.texts
        return cell if is_name else self.said(cell)


def blocks(page: str) -> Iterator[str]:
    for block in _BLOCK.findall(page):
        yield block.rstrip()


def written(folder: Path) -> Path:
    english = (folder / "lab.md").read_text(encoding="utf-8")
    chinese = folder / "zh" / "lab.md"
    chinese.write_text(Chinese(TABLE.read_text(encoding="utf-8")).page(english), encoding="utf-8")
    return chinese


if __name__ == "__main__":
    sys.stdout.write(f"{written(Path(sys.argv[1]))}\n")
