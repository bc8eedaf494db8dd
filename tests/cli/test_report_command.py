"""The report as people read it in a terminal, word for word, and as one HTML file without markup of others."""

from __future__ import annotations

import re
from html import unescape

import pytest

from harness.ledger_weeks import DAY_S, SINCE_S, UNTIL_S, busy_week, shadow_week
from sidecar.cli import report_command
from sidecar.cli.report_command import WIDTH, html, text
from sidecar.cli.report_figures import report_of
from sidecar.core.types import Entry

BUSY = """\
web: 7 days until 2026-01-08 12:00 UTC

culls         9 (1 by order): 7 helped, 1 did not, 1 unclear
              redis                    8: 7 helped, 1 did not, 0 unclear
              unknown                  1: 0 helped, 0 did not, 1 unclear
replaced      half within 23s, all within 27s
refusals      3: paused 2, window 1
near misses   1 of 9 suspects recovered before a cull
retired       once (web-5): replaced because of their age
not honoured  once (web-3): still there long after the cull
action failed once (web-4): `events` says why, and if the sidecar asked again
paused        2 times (http): a cull did not help, so the next ones waited
hold          2 times (ann, bob): a person froze culls; `events` says why, and
              for how long
revived       once (web-2): back in service by an order, without a replacement
restarted     2 times (web-4, web-6): another process of the app in the same
              place
duplicate     once (web-7): two containers under one instance name
data loss     once: Redis lost its record of earlier culls
redis away    once (web-1): Redis did not answer a sidecar

from 63 events, the first of 2026-01-01 12:00 UTC"""

SHADOW = """\
web: 7 days until 2026-01-08 12:00 UTC
only the containers in shadow mode

enforcing     3 culls (0.43 a day), 2 of them recovered without it, at most 3
              tokens in 10 minutes, no claim refused
culls         none
refusals      none
near misses   none

from 5 events, the first of 2026-01-01 12:00 UTC"""


def test_busy_week_reads_like_this() -> None:
    assert text(report_of(busy_week(), SINCE_S, UNTIL_S, service="web")) == BUSY


def test_week_in_shadow_reads_like_this() -> None:
    assert text(report_of(shadow_week(), SINCE_S, UNTIL_S, service="web", mode="shadow")) == SHADOW


@pytest.mark.parametrize(
    ("mode", "percent", "line"),
    [
        ("enforce", 100, ""),
        ("enforce", 10, "only the 10 % that enforce; ask one of the others, in shadow mode, too"),
        ("shadow", 10, "only the containers in shadow mode; ask one of the 10 % that enforce too"),
        ("shadow", 0, "only the containers in shadow mode"),
        ("shadow", 100, "only the containers in shadow mode"),
    ],
)
def test_head_says_of_which_part_of_a_service_it_tells(mode: str, percent: int, line: str) -> None:
    shown = text(report_of([], SINCE_S, UNTIL_S, mode=mode, enforce_percent=percent)).splitlines()
    assert shown[1] == line


@pytest.mark.parametrize(
    ("seconds", "period"),
    [(86_400.0, "1 day"), (172_800.0, "2 days"), (129_600.0, "36 hours"), (3_600.0, "1 hour"), (90.0, "1m 30s")],
)
def test_title_has_the_time_in_whole_units(seconds: float, period: str) -> None:
    shown = text(report_of([], UNTIL_S - seconds, UNTIL_S, service="web"))
    assert shown.startswith(f"web: {period} until ")


def test_culls_that_are_not_judged_yet_are_counted() -> None:
    entries = [Entry("culled", SINCE_S + number, f"web-{number}", "redis") for number in range(3)]
    shown = text(report_of([*entries, Entry("helped", SINCE_S + 9, "", "redis")], SINCE_S, UNTIL_S))
    sentence = "3: 1 helped, 0 did not, 0 unclear, 2 not judged yet"
    assert f"culls {sentence} redis {sentence} " in " ".join(shown.split())


@pytest.mark.parametrize(
    ("mode", "would_culls", "refused", "sentence"),
    [
        ("shadow", 0, 0, "0 culls, no claim refused"),
        ("shadow", 1, 1, "1 cull (1 a day), none of them recovered without it, at most 1 token in 10 minutes, 1 claim"),
        ("enforce", 2, 2, "2 culls (2 a day), none of them recovered without it, at most 2 tokens in 10 minutes, 2 cl"),
        ("enforce", 0, 0, ""),
    ],
)
def test_cost_of_enforcing_is_summed_up_where_it_was_shadow_mode(
    mode: str, would_culls: int, refused: int, sentence: str
) -> None:
    entries = [Entry("would_cull", UNTIL_S - DAY_S, str(number)) for number in range(would_culls)]
    entries += [Entry("denied", UNTIL_S - 50, str(number)) for number in range(refused)]
    rows = dict(report_command.rows(report_of(entries, SINCE_S, UNTIL_S, mode=mode)))
    assert rows.get("enforcing", "")[: len(sentence) or 1] == sentence


# -- what others wrote, and the page ----------------------------------------------------------------------------

HOSTILE = "</title><script>alert(1)</script>\"' onload='x' {{ $body &amp; \x00\x1b[2J\r\n\ud800"
HOSTILE += "long " * 60 + "x" * 200
TAGS = {*["!DOCTYPE", "html", "head", "meta", "title", "style", "body", "h1", "p", "table", "tr", "th", "td", "footer"]}


def hostile_week() -> list[Entry]:
    at = SINCE_S + 10
    return [
        Entry("culled", at, HOSTILE, HOSTILE, HOSTILE, HOSTILE, 1.0, HOSTILE),
        Entry("denied", at, HOSTILE, HOSTILE, HOSTILE),
        Entry("paused", at, "", HOSTILE),
        Entry("not_honoured", at, HOSTILE),
        Entry("hold", at, HOSTILE, "", HOSTILE, HOSTILE, 60.0),
    ]


def test_what_others_wrote_neither_moves_the_cursor_nor_breaks_the_width() -> None:
    shown = text(report_of(hostile_week(), SINCE_S, UNTIL_S, service=HOSTILE))
    assert shown.replace("\n", "").isprintable()
    assert max(map(len, shown.splitlines())) <= WIDTH


def test_page_has_no_markup_but_ours_and_loads_nothing() -> None:
    page = html(report_of(hostile_week(), SINCE_S, UNTIL_S, service=HOSTILE))
    assert {*re.findall(r"</?([^\s>]+)", page)} <= TAGS
    assert not re.search(r"https?://|url\(|@import|javascript:", page)
    page.encode()


@pytest.mark.parametrize("entries", [busy_week(), shadow_week()], ids=["busy", "shadow"])
def test_page_says_all_that_the_text_says(entries: list[Entry]) -> None:
    report = report_of(entries, SINCE_S, UNTIL_S, service="web")
    said = unescape(re.sub(r"<[^>]+>", " ", html(report))).split()
    assert [word for word in text(report).split() if word not in said] == []
