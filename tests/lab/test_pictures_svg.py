"""SVG that is well-formed, stands alone, and can be read by everybody."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations

import pytest

from gripfast_lab.pictures import colours
from gripfast_lab.pictures.colours import Shade
from gripfast_lab.pictures.svg import drawn
from gripfast_lab.story import Story
from lab.drawn_stories import STORIES

SVG = "{http://www.w3.org/2000/svg}"
EACH = pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)


def picture(story: Story) -> ET.Element:
    return ET.fromstring(drawn(story))


def texts(root: ET.Element) -> list[str]:
    return [each.text or "" for each in root.iter(f"{SVG}text")]


def of_class(root: ET.Element, name: str) -> list[ET.Element]:
    return [each for each in root.iter() if name in each.get("class", "").split()]


def hatched(root: ET.Element) -> list[ET.Element]:
    return [each for each in root.iter(f"{SVG}rect") if each.get("fill", "").endswith("-alarm)")]


@EACH
def test_every_story_is_drawn_well_formed_whatever_its_texts_are(story: Story) -> None:
    assert picture(story).tag == f"{SVG}svg"


@EACH
def test_the_same_story_is_the_same_picture(story: Story) -> None:
    assert drawn(story) == drawn(replace(story))


@EACH
def test_it_needs_nothing_else(story: Story) -> None:
    root = picture(story)
    assert {each.tag.removeprefix(SVG) for each in root.iter()}.isdisjoint({"image", "script", "use", "foreignObject"})
    assert not any(
        name.endswith(("href", "src")) or name.startswith("on") for each in root.iter() for name in each.attrib
    )
    (style,) = root.iter(f"{SVG}style")
    assert "url(" not in str(style.text)
    assert "@import" not in str(style.text)


@EACH
def test_it_can_be_heard(story: Story) -> None:
    root = picture(story)
    ids = {each.get("id"): each for each in root.iter() if each.get("id")}
    assert root.get("role") == "img"
    title, description = (ids[name] for name in root.get("aria-labelledby", "").split())
    assert (title.tag, description.tag) == (f"{SVG}title", f"{SVG}desc")
    assert all(f"{number}. " in str(description.text) for number in range(1, len(story.moments) + 1))


@EACH
def test_whatever_it_refers_to_is_in_it(story: Story) -> None:
    ids = re.findall(r'id="([^"]*)"', drawn(story))
    assert len(ids) == len(set(ids))
    assert set(re.findall(r"url\(#([^)]*)\)", drawn(story))) <= set(ids)


@EACH
def test_nothing_is_outside_of_it(story: Story) -> None:
    root = picture(story)
    width, height = float(root.get("width", 0)), float(root.get("height", 0))
    for x, y in places(root):
        assert 0 <= x <= width
        assert 0 <= y <= height


def places(root: ET.Element) -> Iterator[tuple[float, float]]:
    """Of everything that is drawn where it says, and of where its texts end, with rather wide letters."""
    for each in root.iter():
        if each.tag == f"{SVG}rect":
            x, y = float(each.get("x", 0)), float(each.get("y", 0))
            yield x, y
            yield x + float(each.get("width", 0)), y + float(each.get("height", 0))
        elif each.tag == f"{SVG}text" and each.get("text-anchor") == "start" and str(each.text).isascii():
            yield float(each.get("x", 0)) + 6.9 * len(str(each.text)), float(each.get("y", 0))


def test_every_moment_has_its_number_and_its_words() -> None:
    story = STORIES["paused_holder"]
    told = texts(picture(story))
    assert [text for text in told if text.isdigit() and text != "0"] == ["1", "2", "3", "4", "5", "6"]
    assert "A: SET lock A NX PX 30000 → OK" in told
    assert "30.1 s" in told


def test_holds_are_bars_that_say_whose_they_are_and_their_token() -> None:
    told = texts(picture(STORIES["paused_holder"]))
    assert [text for text in told if text.endswith("holds")] == ["A holds", "B holds"]
    assert [text for text in told if text.startswith("token")] == ["token 33", "token 34"]


def test_bars_say_what_they_stand_for() -> None:
    told = texts(picture(replace(STORIES["paused_holder"], verbs=("leads", "lead"))))
    assert [text for text in told if text.endswith("leads")] == ["A leads", "B leads"]
    assert "both lead" in told


def test_an_overlap_is_hatched_in_both_bars_outlined_and_labelled() -> None:
    root = picture(STORIES["paused_holder"])
    assert len(hatched(root)) == 2
    assert texts(root).count("both hold") == 1
    assert [zone.get("stroke-dasharray") for zone in of_class(root, "alarmed") if zone.get("stroke-width")] == ["6 4"]


@pytest.mark.parametrize("name", ["crashed_holder", "token_that_went_down", "empty_story"])
def test_nothing_is_hatched_where_nothing_overlaps(name: str) -> None:
    root = picture(STORIES[name])
    assert hatched(root) == []
    assert "both hold" not in texts(root)


def test_what_goes_on_for_ever_is_said() -> None:
    told = " ".join(texts(picture(STORIES["crashed_holder"])))
    assert "and so on: B and C ask again and are refused, for ever" in told
    assert "Broken: progress" in told


def test_the_wrong_tokens_stand_out_by_more_than_colour() -> None:
    root = picture(STORIES["token_that_went_down"])
    wrong = [each for each in of_class(root, "alarm") if each.text == "token 8"]
    assert len(wrong) == 2
    assert all("strong" in each.get("class", "") for each in wrong)


def test_lost_messages_end_in_a_cross() -> None:
    def crosses(story: Story) -> int:
        return len([each for each in of_class(picture(story), "alarm-edge") if each.tag == f"{SVG}path"])

    story = STORIES["crashed_holder"]
    arrived = tuple(
        replace(moment, arrows=tuple(replace(arrow, is_lost=False, is_back_lost=False) for arrow in moment.arrows))
        for moment in story.moments
    )
    assert crosses(story) == crosses(replace(story, moments=arrived)) + 2


def test_who_is_paused_is_framed_for_as_long_as_it_is() -> None:
    root = picture(STORIES["paused_holder"])
    (frame,) = [each for each in root.iter(f"{SVG}rect") if each.get("stroke-dasharray") == "4 3"]
    numbers = {each.text: float(each.get("y", 0)) for each in root.iter(f"{SVG}text") if each.get("x") == "31"}
    top = float(frame.get("y", 0))
    assert numbers["1"] < top < numbers["3"]
    assert numbers["4"] < top + float(frame.get("height", 0)) <= numbers["5"]


def test_a_long_story_says_how_long_it_is_and_names_its_lanes_again() -> None:
    told = texts(picture(STORIES["long_story"]))
    assert "64 moments, from top to bottom" in told
    assert told.count("p1/b") == 3


def test_five_nodes_fit_on_a_page() -> None:
    assert float(picture(STORIES["restarted_node"]).get("width", 0)) < 1200


def test_the_title_can_be_left_to_the_page() -> None:
    story = STORIES["paused_holder"]
    assert story.title in texts(picture(story))
    assert story.title not in texts(ET.fromstring(drawn(story, has_title=False)))


# Colours ------------------------------------------------------------------------------------------------------------

LETTERS = [
    (colours.INK, (colours.PAGE, colours.STRIPE, colours.ALARMED, colours.NODE)),
    (colours.FAINT, (colours.PAGE, colours.STRIPE, colours.ALARMED)),
    (colours.ALARM, (colours.PAGE,)),
    (colours.WHITE, (colours.LABEL,)),
]
SCHEMES = pytest.mark.parametrize("is_dark", [False, True], ids=["light", "dark"])


def channels(colour: str) -> list[float]:
    """Linear red, green and blue."""
    values = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    return [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in values]


def contrast(one: str, other: str) -> float:
    lights = sorted(sum(part * share for part, share in zip(channels(each), (0.2126, 0.7152, 0.0722), strict=True))
                    for each in (one, other))  # fmt: skip
    return (lights[1] + 0.05) / (lights[0] + 0.05)


@SCHEMES
@pytest.mark.parametrize(("letters", "grounds"), LETTERS)
def test_letters_have_contrast_in_both_schemes(letters: Shade, grounds: tuple[Shade, ...], is_dark: bool) -> None:
    assert min(contrast(letters[is_dark], ground[is_dark]) for ground in grounds) >= 4.5


@SCHEMES
def test_what_is_drawn_has_contrast_in_both_schemes(is_dark: bool) -> None:
    """Bars have an edge of ink, since not every hue of them is dark enough on white."""
    assert contrast(colours.ALARM[is_dark], colours.ALARMED[is_dark]) >= 3
    assert contrast(colours.INK[is_dark], colours.ALARMED[is_dark]) >= 3


SEEN_BY = {
    "everybody": ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)),
    "who sees no red": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "who sees no green": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.01182, 0.04294, 0.968881),
    ),
}
"""How red, green and blue come out."""


def seen(colour: str, by: str) -> list[float]:
    linear = channels(colour)
    mixed = [sum(share * part for share, part in zip(row, linear, strict=True)) for row in SEEN_BY[by]]
    return [max(0.0, value) ** (1 / 2.4) for value in mixed]


@SCHEMES
@pytest.mark.parametrize("by", SEEN_BY)
def test_the_first_clients_and_the_alarm_are_different_colours_for(by: str, is_dark: bool) -> None:
    told_apart = [*colours.CLIENTS[:3], colours.LABEL]
    for one, other in combinations([seen(shade[is_dark], by) for shade in told_apart], 2):
        assert sum((a - b) ** 2 for a, b in zip(one, other, strict=True)) ** 0.5 > 0.2


def test_each_scheme_paints_its_own_ground() -> None:
    root = picture(STORIES["empty_story"])
    (style,) = root.iter(f"{SVG}style")
    light, dark = str(style.text).split("@media (prefers-color-scheme: dark)")
    assert f".page {{ fill: {colours.PAGE.light}; }}" in light
    assert f".page {{ fill: {colours.PAGE.dark}; }}" in dark
    assert of_class(root, "page")[0].get("width") == root.get("width")
