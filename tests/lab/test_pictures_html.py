"""One page that needs nothing else."""

import re
from html.parser import HTMLParser

from gripfast_lab.pictures.html import page
from lab.drawn_stories import STORIES

EMPTY = {"meta", "br"}


class Parsed(HTMLParser):
    """Fails on a tag that is not closed where it should be."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, str, str | None]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value) for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts.append((self.open[-1], data))


WHOLE = Parsed(page(STORIES.values(), "The <lab> & more"))


def test_every_tag_is_closed_whatever_the_texts_are() -> None:
    assert ("title", "The <lab> & more") in WHOLE.texts


def test_no_text_of_a_story_becomes_a_tag() -> None:
    assert "script" not in {tag for tag, _, _ in WHOLE.attributes}
    assert any(tag == "li" and "<script>alert(1)</script>" in text for tag, text in WHOLE.texts)


def test_it_loads_nothing() -> None:
    links = [value for _, name, value in WHOLE.attributes if name in ("href", "src", "srcset", "data", "action")]
    assert links
    assert all(str(value).startswith("#story-") for value in links)
    assert "@import" not in page(STORIES.values(), "x")


def test_ids_are_unique_and_every_link_leads_somewhere() -> None:
    ids = [value for _, name, value in WHOLE.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    assert {str(value)[1:] for _, name, value in WHOLE.attributes if name == "href"} <= set(ids)


def test_each_story_is_a_picture_and_a_numbered_list_with_what_is_broken() -> None:
    story = STORIES["paused_holder"]
    told = Parsed(page([story], "One"))
    items = [text for tag, text in told.texts if tag == "li"]
    assert items == [moment.text for moment in story.moments]
    assert ("span", "Broken: exclusion") in told.texts
    assert story.broken is not None
    assert ("p", story.broken.text) in told.texts
    assert ("h2", story.title) in told.texts


def test_a_title_is_not_said_twice() -> None:
    story = STORIES["paused_holder"]
    told = Parsed(page([story], story.title))
    assert [tag for tag, text in told.texts if text == story.title] == [
        "title",
        "h1",
        "title",
    ]  # the last: of the picture


def test_it_knows_light_and_dark() -> None:
    assert len(re.findall(r"prefers-color-scheme: dark", page([], "x"))) == 1
