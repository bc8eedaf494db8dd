"""The report as one file: everything in it, nothing from elsewhere, and no markup but ours."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from harness.binaries import require
from harness.weeks import SINCE_S, UNTIL_S, busy_week, shadow_week
from sidecar.cli.report import charts
from sidecar.cli.report.figures import Bin, Cause, report
from sidecar.cli.report.html_report import html
from sidecar.core.types import Entry

HOSTILE = (
    "</title></svg><script>alert(1)</script><img src=x onerror=alert(1)>\"' onload='x' ]]> "
    "{{ $body &amp; \x00\x1b\ud800"
)
TAGS = {
    *("html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "i", "table", "tr", "th", "td"),
    *("ul", "li", "footer", "svg", "rect", "text"),
}
ATTRIBUTES = {
    *("lang", "charset", "http-equiv", "content", "name", "class", "scope", "viewbox", "width", "height", "role"),
    *("aria-label", "x", "y", "text-anchor"),
}


class Parsed(HTMLParser):
    """Every tag, every attribute, and the text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.open: list[str] = []
        self.said: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.said.append(data)


def hostile_week() -> list[Entry]:
    at = SINCE_S + 10
    return [
        Entry("culled", at, HOSTILE, HOSTILE, HOSTILE, HOSTILE, 1.0, HOSTILE),
        Entry("helped", at, HOSTILE, HOSTILE),
        Entry("denied", at, HOSTILE, HOSTILE, HOSTILE),
        Entry("paused", at, "", HOSTILE),
        Entry("duplicate", at, HOSTILE),
        Entry("not_honoured", at, HOSTILE),
        Entry("hold", at, HOSTILE, "", HOSTILE, HOSTILE, 60.0),
        Entry("would_cull", at, HOSTILE),
    ]


def page_of(entries: list[Entry], service: str = "web") -> str:
    return html(report(entries, SINCE_S, UNTIL_S, UNTIL_S, service=service))


@pytest.mark.parametrize(
    "entries", [[], busy_week(), shadow_week(), hostile_week()], ids=["empty", "busy", "shadow", "hostile"]
)
def test_page_has_no_markup_but_ours_and_loads_nothing(entries: list[Entry]) -> None:
    page = page_of(entries, HOSTILE)
    parsed = Parsed(page)
    assert parsed.tags <= TAGS
    assert parsed.attributes <= ATTRIBUTES
    assert parsed.open == []
    assert not re.search(r"https?://|url\(|@import|javascript:", page)
    page.encode()


def test_busy_week_is_all_there() -> None:
    parsed = Parsed(page_of(busy_week()))
    said = " ".join(parsed.said)
    for words in (
        "web: 7 days until 2026-01-08 12:00 UTC",
        "9 (1 by order): 7 helped, 1 did not, 1 unclear",
        "half within 23s, 95 % within 27s, all within 27s",
        "ann held the service for 30m of 1h: migration of the <b>database</b>",
        "redis: 7 helped",
        "2026-01-07 00:00: 3 refused",
    ):
        assert words in said


def test_shadow_week_says_its_sentence() -> None:
    assert "7 days in shadow: 3 would have been culled, 2 of them recovered by themselves" in page_of(shadow_week())


@pytest.mark.parametrize(
    ("drawn", "rectangles"),
    [
        (charts.over_time([Bin(0.0, 2, 0, 1, 1), Bin(86400.0)]), 3),
        (charts.over_time([Bin(float(day), 1) for day in range(400)]), 400),
        (charts.by_cause([Cause("redis", 8, 5, 1, 0), Cause(HOSTILE, 1)]), 4),
        (charts.by_cause([Cause("late", 0, 3, 0, 0)]), 1),
        (charts.by_cause([Cause(str(number), 1) for number in range(50)]), 20),
    ],
    ids=["stacked", "long", "outcomes", "more judged than culled", "many causes"],
)
def test_charts_are_well_formed_and_stay_within_their_frame(drawn: str, rectangles: int) -> None:
    svg = ET.fromstring(drawn)
    _, _, width, height = map(float, svg.attrib["viewBox"].split())
    boxes = [{name: float(rect.attrib[name]) for name in ("x", "y", "width", "height")} for rect in svg.iter("rect")]
    assert len(boxes) == rectangles
    for box in boxes:
        assert 0 <= box["x"] <= box["x"] + box["width"] <= width + 0.2
        assert 0 <= box["y"] <= box["y"] + box["height"] <= height + 0.2


def test_nothing_that_happened_is_no_chart() -> None:
    assert charts.over_time([Bin(0.0), Bin(86400.0)]) == charts.over_time([]) == charts.by_cause([]) == ""


# -- a browser ------------------------------------------------------------------------------------------------


@pytest.fixture
def chromium() -> str:
    return require("chromium")


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_browser_shows_it_by_day_and_by_night_without_a_complaint(
    chromium: str, tmp_path: Path, scheme: str
) -> None:
    from playwright.async_api import async_playwright  # noqa: PLC0415 - slow to import

    file = tmp_path / "report.html"
    file.write_text(page_of([*busy_week(), *hostile_week()], HOSTILE))
    complaints: list[str] = []
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = await browser.new_page(viewport={"width": 390, "height": 800}, color_scheme=scheme)  # type: ignore[arg-type]  # one of two words
        page.on("console", lambda message: complaints.append(message.text))
        page.on("dialog", lambda dialog: complaints.append(dialog.message))
        await page.goto(file.as_uri())
        background = await page.evaluate("getComputedStyle(document.body).backgroundColor")
        overflow = await page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        bars = await page.locator("svg rect").count()
        await browser.close()
    assert complaints == []
    assert background == {"light": "rgb(255, 255, 255)", "dark": "rgb(13, 17, 23)"}[scheme]
    assert overflow <= 0
    assert bars > 10
