"""The Chinese pages say what the English ones say, as far as a program can tell: the same outline, programs, tables,
figures and links. A link leads to the Chinese page where there is one.

A Chinese page may have a part of its own: between `<!-- only in Chinese -->` and `<!-- /only in Chinese -->`.
"""

import posixpath
import re
from collections.abc import Callable, Iterator
from functools import cache
from itertools import zip_longest
from typing import NamedTuple
from urllib.parse import unquote

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from gripfast_lab.chinese import TABLE, Chinese, Untranslated
from support.pages import ROOT

PAIRS = {
    "README.md": "README.zh.md",
    **{f"docs/{name}.md": f"docs/zh/{name}.md" for name in ("tutorial", "choosing", "recipes", "lab")},
}
ITS_OWN = re.compile(r"^<!-- only in Chinese -->$.*?^<!-- /only in Chinese -->$", re.MULTILINE | re.DOTALL)
OTHER_LANGUAGE = re.compile(r"^\[(?:中文|English)\]\((.+)\)\n", re.MULTILINE)
FIGURE = re.compile(r"\d+(?:[.,]\d+)*")
READER = MarkdownIt("commonmark").enable("table")


class Part(NamedTuple):
    """What both languages have in common, of a heading, a paragraph, an item, a cell or a program."""

    kind: str
    program: str = ""
    spans: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    figures: frozenset[str] = frozenset()
    """Chinese may have more of them: it writes figures where English writes words."""

    def is_as(self, english: "Part") -> bool:
        return self._replace(figures=frozenset()) == english._replace(figures=frozenset()) and (
            self.figures >= english.figures
        )


@cache
def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


@cache
def common(text: str) -> list[Token]:
    """What has to be the same in both languages."""
    return READER.parse(OTHER_LANGUAGE.sub("", ITS_OWN.sub("", text)))


@cache
def anchors(text: str) -> list[str]:
    """Of each heading, in order."""
    tokens = common(text)
    titles = [tokens[place + 1].content for place, token in enumerate(tokens) if token.type == "heading_open"]
    return [re.sub(r"[^\w\- ]", "", title).lower().strip().replace(" ", "-") for title in titles]


def resolved(link: str, page: str) -> str:
    """From the root, whatever the page's folder."""
    name, _, anchor = unquote(link).partition("#")
    if "://" in link:
        return link
    target = posixpath.normpath(posixpath.join(posixpath.dirname(page), name)) if name else page
    return f"{target}#{anchor}"


def in_words(token: Token, page: str) -> Part:
    children = token.children or []
    places = [str(child.attrs.get("href") or child.attrs.get("src")) for child in children if child.attrs]
    words = " ".join(child.content for child in children if child.type in ("text", "image"))
    return Part(
        "words",
        spans=tuple(sorted(child.content for child in children if child.type == "code_inline")),
        links=tuple(sorted(resolved(place, page) for place in places)),
        figures=frozenset(FIGURE.findall(words)),
    )


def parts(text: str, page: str) -> Iterator[Part]:
    for token in common(text):
        if token.type == "inline":
            yield in_words(token, page)
        elif token.type == "fence":
            yield Part(f"program, {token.info}", token.content)
        elif token.nesting >= 0:
            yield Part(f"{token.type} {token.tag}")


def differences(page: str, chinese: str) -> list[str]:
    """Between the English page and this Chinese text of it: the first one, and what it should be."""

    def in_chinese(place: str) -> str:
        target, _, anchor = place.partition("#")
        if target not in PAIRS:
            return place
        theirs = anchors(chinese if target == page else text_of(PAIRS[target]))
        pairs = dict(zip(("", *anchors(text_of(target))), ("", *theirs), strict=False))
        return f"{PAIRS[target]}#{pairs.get(anchor, 'a heading that is not there')}"

    expected = [part._replace(links=tuple(sorted(map(in_chinese, part.links)))) for part in parts(text_of(page), page)]
    for english, found in zip_longest(expected, parts(chinese, PAIRS[page])):
        if english is None or found is None or not found.is_as(english):
            return [f"{PAIRS[page]} has:\n  {found}\nwhere {page} has, in Chinese:\n  {english}"]
    return []


@pytest.mark.parametrize("page", PAIRS)
def test_the_chinese_page_has_the_outline_programs_tables_figures_and_links_of_the_english_one(page: str) -> None:
    assert differences(page, text_of(PAIRS[page])) == []


@pytest.mark.parametrize("page", PAIRS)
def test_each_page_leads_to_the_other_language_in_its_first_lines(page: str) -> None:
    for here, there in ((page, PAIRS[page]), (PAIRS[page], page)):
        first = text_of(here).partition("\n\n```")[0]
        (link,) = OTHER_LANGUAGE.findall(first)
        assert resolved(link, here) == f"{there}#"


def test_every_chinese_page_has_its_english_one() -> None:
    chinese = [*ROOT.glob("*.zh.md"), *(ROOT / "docs" / "zh").iterdir()]
    assert {path.relative_to(ROOT).as_posix() for path in chinese} == set(PAIRS.values())


@pytest.mark.parametrize("page", PAIRS.values())
def test_no_mark_of_emphasis_is_left_in_the_text(page: str) -> None:
    """Markdown does not see the end of an emphasis between a punctuation mark and a Chinese character."""
    children = [child for token in READER.parse(text_of(page)) for child in token.children or []]
    assert any(child.type == "strong_open" for child in children)
    assert [child.content for child in children if child.type == "text" and "*" in child.content] == []


# A page that differs is found -----------------------------------------------------------------------------------------


def without_line(beginning: str) -> Callable[[str], str]:
    return lambda text: re.sub(rf"^{re.escape(beginning)}.*\n", "", text, count=1, flags=re.MULTILINE)


def with_instead(old: str, new: str) -> Callable[[str], str]:
    return lambda text: text.replace(old, new, 1)


MUTANTS = {
    "a line of a program changed": (
        "tutorial",
        with_instead('client.lock("nightly", label=', 'client.lock("daily", label='),
    ),
    "a comment of a program changed": ("tutorial", with_instead("# a table for the largest token seen", "# 一张表")),
    "a program dropped": ("choosing", lambda text: re.sub(r"^```python\n.*?^```\n", "", text, flags=re.M | re.S)),
    "a row dropped": ("choosing", without_line("| ZooKeeper |")),
    "a cell dropped": ("choosing", with_instead(" | 重启之后也行；加上", "；加上")),
    "a span in a cell changed": ("choosing", with_instead("`synchronous=full`", "`synchronous=off`")),
    "a span dropped": ("recipes", with_instead("（`date -u`）", "")),
    "a link changed": ("tutorial", with_instead("](../cli.md)", "](../api.md)")),
    "a link to the English page": ("tutorial", with_instead("](choosing.md)", "](../choosing.md)")),
    "an anchor changed": ("tutorial", with_instead("(#换一种存储)", "(#迟到的写入)")),
    "a heading renamed, and not its links": ("tutorial", with_instead("## 换一种存储", "## 别的存储")),
    "a heading dropped": ("recipes", without_line("## gevent")),
    "a heading of another level": ("recipes", with_instead("## gevent", "### gevent")),
    "an item dropped": ("recipes", without_line("- 探针的 `timeoutSeconds`")),
    "a paragraph dropped": ("choosing", without_line("有时根本不需要锁。")),
    "a figure changed": ("tutorial", with_instead("退出码是 75", "退出码是 57")),
    "a picture changed": ("lab", with_instead("lab/setnx-del.svg", "lab/setnx-expire.svg")),
    "a part of its own that is not marked": ("tutorial", without_line("<!-- only in Chinese -->")),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_planted_difference_is_found(mutant: str) -> None:
    name, changed = MUTANTS[mutant]
    chinese = text_of(f"docs/zh/{name}.md")
    assert changed(chinese) != chinese
    assert differences(f"docs/{name}.md", changed(chinese))


# The lab, which is generated ------------------------------------------------------------------------------------------


def words() -> Chinese:
    return Chinese(TABLE.read_text(encoding="utf-8"))


def test_the_lab_is_what_its_translations_make_of_the_english_page_and_none_is_left_over() -> None:
    chinese = words()
    assert chinese.page(text_of("docs/lab.md")) == text_of("docs/zh/lab.md"), "run: python -m gripfast_lab.chinese docs"
    assert chinese.unused == set()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Nobody deletes the key.", "Nobody removes the key."),
        ("## 1. SETNX and DEL", "## 1. SETNX and then DEL"),
        ("2. A crashes\n", "2. A burns\n"),
        ("progress breaks after 3 events", "progress is broken after 3 events"),
        ("| world | searched | |", "| world | visited by it | |"),
        ("*limit*: no more clients", "*limit*: no further clients"),
    ],
)
def test_a_change_of_the_english_lab_that_nobody_has_translated_is_named(old: str, new: str) -> None:
    english = text_of("docs/lab.md")
    assert old in english
    with pytest.raises(Untranslated, match=r"chinese\.toml has no Chinese for"):
        words().page(english.replace(old, new, 1))
