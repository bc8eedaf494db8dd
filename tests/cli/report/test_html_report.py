"""The report as one file: everything in it, nothing from elsewhere, and no markup but ours."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from harness.binaries import require
from harness.ledger_weeks import SINCE_S, UNTIL_S, busy_week, shadow_week
from sidecar.cli.report.figures import report_of
from sidecar.cli.report.html_report import html
from sidecar.core.types import Entry

HOSTILE = (
    "</title></svg><script>alert(1)</script><img src=x onerror=alert(1)>\"' onload='x' ]]> "
    "{{ $body &amp; \x00\x1b\ud800"
)
TAGS = {
    *("html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "table", "tr", "th", "td"),
    "footer",
}
ATTRIBUTES = {
    *("lang", "charset", "http-equiv", "content", "name", "class", "scope"),
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
    return html(report_of(entries, SINCE_S, UNTIL_S, UNTIL_S, service=service))


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
        "redis 8 7 1 0",
        "2026-01-07 00:00 1 0 3 ",
    ):
        assert words in said


def test_shadow_week_says_its_sentence() -> None:
    assert "7 days in shadow: 3 would have been culled, 2 of them recovered by themselves" in page_of(shadow_week())


def test_week_without_a_cull_has_no_other_table() -> None:
    assert page_of([]).count("<table>") == 1


# -- a browser ------------------------------------------------------------------------------------------------


@pytest.fixture
def chromium() -> str:
    return require("chromium")


@pytest.mark.site
@pytest.mark.process
async def test_browser_shows_each_page_by_day_and_by_night_without_a_complaint(chromium: str, tmp_path: Path) -> None:
    from playwright.async_api import async_playwright  # noqa: PLC0415 - slow to import

    pages = {"report": page_of([*busy_week(), *hostile_week()], HOSTILE)}
    complaints: list[str] = []
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name, text in pages.items():
            file = tmp_path / f"{name}.html"
            file.write_text(text)
            for scheme, colour in (("light", "rgb(255, 255, 255)"), ("dark", "rgb(13, 17, 23)")):
                page = await browser.new_page(viewport={"width": 390, "height": 800}, color_scheme=scheme)  # type: ignore[arg-type]  # one of two words
                page.on("console", lambda message: complaints.append(message.text))
                page.on("dialog", lambda dialog: complaints.append(dialog.message))
                await page.goto(file.as_uri())
                assert await page.evaluate("getComputedStyle(document.body).backgroundColor") == colour
                root = "document.documentElement"
                assert await page.evaluate(f"{root}.scrollWidth <= {root}.clientWidth"), name
                assert await page.locator("td").count() > 10
        await browser.close()
    assert complaints == []
