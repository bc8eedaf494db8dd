"""The report as one file: everything in it, nothing from elsewhere, and no markup but ours."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from harness.ledger_weeks import SINCE_S, UNTIL_S, busy_week, shadow_week
from sidecar.cli.report.figures import report_of
from sidecar.cli.report.html_report import html
from sidecar.cli.report.text_report import text
from sidecar.core.types import Entry

HOSTILE = (
    "</title></svg><script>alert(1)</script><img src=x onerror=alert(1)>\"' onload='x' ]]> "
    "{{ $body &amp; \x00\x1b\ud800"
)
TAGS = {"html", "head", "meta", "title", "style", "body", "h1", "p", "table", "tr", "th", "td", "footer"}
ATTRIBUTES = {"lang", "charset", "http-equiv", "content", "name", "scope"}


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
    return html(report_of(entries, SINCE_S, UNTIL_S, service=service))


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


@pytest.mark.parametrize("entries", [busy_week(), shadow_week()], ids=["busy", "shadow"])
def test_page_says_all_that_the_text_says(entries: list[Entry]) -> None:
    report = report_of(entries, SINCE_S, UNTIL_S, service="web")
    said = " ".join(Parsed(html(report)).said).split()
    assert [word for word in text(report).split() if word not in said] == []
