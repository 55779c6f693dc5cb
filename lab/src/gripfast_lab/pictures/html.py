"""Stories as one page of HTML that needs nothing else, on paper and on a screen, light and dark."""

from __future__ import annotations

from collections.abc import Iterable

from gripfast_lab.pictures import colours, svg
from gripfast_lab.pictures.shapes import plain
from gripfast_lab.story import Story

_STYLE = f"""
:root {{ color-scheme: light dark; }}
body {{ margin: 0 auto; max-width: 72rem; padding: 1.5rem; font: 16px/1.5 {colours.SANS};
  background: {colours.PAGE.light}; color: {colours.INK.light}; }}
h1 {{ font-size: 1.5rem; }}
h2 {{ font-size: 1.2rem; margin: 2.5rem 0 .75rem; }}
.picture {{ overflow-x: auto; border: 1px solid {colours.LINE.light}; border-radius: 8px; }}
.picture svg {{ display: block; margin: 0 auto; }}
.broken {{ font-weight: 600; color: {colours.ALARM.light}; }}
summary {{ cursor: pointer; margin-top: .75rem; }}
li {{ margin: .2rem 0; overflow-wrap: anywhere; }}
@media (prefers-color-scheme: dark) {{
  body {{ background: {colours.PAGE.dark}; color: {colours.INK.dark}; }}
  .picture {{ border-color: {colours.LINE.dark}; }}
  .broken {{ color: {colours.ALARM.dark}; }}
  a {{ color: {colours.CLIENTS[4].dark}; }}
}}
"""


def page(stories: Iterable[Story], title: str) -> str:
    told = list(stories)
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en">',
            '<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{plain(title)}</title><style>{_STYLE}</style></head>",
            f"<body><h1>{plain(title)}</h1>",
            *([_contents(told)] if len(told) > 1 else []),
            *(_section(place, story, title) for place, story in enumerate(told, 1)),
            "</body></html>",
            "",
        ]
    )


def _contents(stories: list[Story]) -> str:
    items = (f'<li><a href="#story-{place}">{plain(story.title)}</a></li>' for place, story in enumerate(stories, 1))
    return f"<nav><ol>{''.join(items)}</ol></nav>"


def _section(place: int, story: Story, title: str) -> str:
    heading = f"<h2>{plain(story.title)}</h2>" if story.title != title else ""
    return "\n".join(
        [
            f'<section id="story-{place}">{heading}',
            f'<div class="picture" tabindex="0">{svg.drawn(story, has_title=False)}</div>',
            f"<details><summary>The same in words</summary>{_words(story)}</details></section>",
        ]
    )


def _words(story: Story) -> str:
    items = "".join(f"<li>{plain(moment.text)}</li>" for moment in story.moments)
    goes_on = f"<p>And so on: {plain(story.goes_on)}</p>" if story.goes_on else ""
    return f"<ol>{items}</ol>{goes_on}{_verdict(story)}"


def _verdict(story: Story) -> str:
    if story.broken is None:
        return "<p>Nothing is broken.</p>"
    return f'<p><span class="broken">Broken: {plain(story.broken.rule)}</span><br>{plain(story.broken.text)}</p>'
