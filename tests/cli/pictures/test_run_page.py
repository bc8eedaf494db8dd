"""The page of a simulated day: everything in it, nothing from elsewhere, no markup but ours, and not too large."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pytest

from harness import simulation_result
from sidecar.cli.pictures.run_page import MOST_CULLS, html

HOSTILE = "</title></svg><script>alert(1)</script><img src=x onerror=alert(1)>\"' onload='x' ]]> &amp; \x00\x1b\ud800"
TAGS = {
    *("html", "head", "meta", "title", "style", "body", "h1", "h2", "h3", "p", "i", "table", "tr", "th", "td", "div"),
    *("footer", "figure", "figcaption", "span", "svg", "g", "path"),
}
ATTRIBUTES = {
    *("lang", "charset", "http-equiv", "content", "name", "class", "scope", "style", "viewbox", "role", "aria-label"),
    *("preserveaspectratio", "d", "shape-rendering"),
}
MOST_BYTES = 2_000_000


class Parsed(HTMLParser):
    """Every tag, every attribute, and the text; each tag is closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.open: list[str] = []
        self.said: list[str] = []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.said += [value or "" for name, value in attrs if name == "aria-label"]
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.said.append(data)


def hostile(value: Any) -> Any:
    """The value with a hostile text in place of each text that comes from outside."""
    if isinstance(value, dict):
        return {key: hostile(one) if key not in ("kind", "state", "swept") else one for key, one in value.items()}
    if isinstance(value, list):
        return [hostile(one) for one in value]
    return HOSTILE if isinstance(value, str) else value


RESULTS = {
    "day": simulation_result.day(12, 2, 10.0),
    "sweep": simulation_result.sweep(),
    "suggestion": simulation_result.suggestion(),
}


@pytest.mark.parametrize("kind", RESULTS)
def test_page_has_no_markup_but_ours_and_loads_nothing(kind: str) -> None:
    for result in (RESULTS[kind], hostile(RESULTS[kind])):
        page = html(result)
        parsed = Parsed(page)
        assert parsed.tags <= TAGS
        assert parsed.attributes <= ATTRIBUTES
        assert not re.search(r"https?:|url\(|@import|javascript:", page)
        assert "default-src 'none'" in page
        page.encode()
    assert any("alert(1)" in said for said in parsed.said)


@pytest.mark.parametrize(
    ("containers", "hours", "step_s", "noise"),
    [(200, 24, 60.0, 0.6), (200, 720, 900.0, 0.3), (2000, 2, 10.0, 0.02)],
    ids=["a noisy day", "a month", "a large fleet"],
)
def test_page_stays_small(containers: int, hours: float, step_s: float, noise: float) -> None:
    result = simulation_result.day(containers, hours, step_s, noise)
    yours = result["rules"][-1]
    yours["each_refusal"] = yours["each_refusal"] * 100
    yours["each_cull"] = (yours["each_cull"] * 1000)[:5000]
    page = html(result)
    assert len(page) < MOST_BYTES
    assert f"And {5000 - MOST_CULLS:,} more: --json has all." in page


def test_page_of_a_day_has_each_picture_and_each_answer() -> None:
    said = " ".join(Parsed(html(RESULTS["day"])).said)
    for words in (
        "Tokens in use: at most",
        "Errors over time of 12 containers",
        "The most eventful containers",
        "c009: culled once",
        "Weight at the balancer: the whole fleet had",
        "avoidable failed requests",
        "do nothing",
        "7 server errors in 60 s (7 of them redis), the limit is 5",
        "4,321 failed requests fewer than without culls",
        "Simulated with seed 1.",
    ):
        assert words in said


def test_container_that_was_refused_again_and_again_counts_once() -> None:
    result = simulation_result.day(12, 2, 10.0)
    yours = result["rules"][-1]
    refused = {one["container"] for one in yours["each_refusal"]}
    yours["each_refusal"] = yours["each_refusal"] * 7
    assert f"{len(refused)} containers refused" in " ".join(Parsed(html(result)).said)


@pytest.mark.parametrize(("hours", "is_shown"), [(2.0, False), (24.0, True)])
def test_culls_a_day_are_of_whole_days(hours: float, *, is_shown: bool) -> None:
    """Two culls in two hours are not 24 a day."""
    said = Parsed(html(simulation_result.day(12, hours, 60.0))).said
    assert ("culls per day" in said) == is_shown


def test_culls_and_refusals_are_marks_of_different_form() -> None:
    result = RESULTS["day"]
    page = html(result)
    heat = page.split('<g class="heat"')[1].split("</svg>")[0]
    yours = result["rules"][-1]
    assert heat.count('class="cull"') == len(yours["each_cull"]) > 0
    assert heat.count('class="refused"') == len(yours["each_refusal"])
    assert {"square", "round"} <= set(re.findall(r"stroke-linecap:(\w+)", page))


@pytest.mark.parametrize("dark", ["prefers-color-scheme:dark"])
def test_page_has_colours_for_light_and_dark(dark: str) -> None:
    style = html(RESULTS["day"]).split("<style>")[1].split("</style>")[0]
    names = set(re.findall(r"var\((--\w+)", style)) - {"--of"}
    night = "".join(re.findall(rf"@media \({dark}\){{:root{{([^}}]*)}}", style))
    assert names == set(re.findall(r"(--\w+):", night))


def test_suggestion_shows_the_chosen_limit_and_the_goals() -> None:
    page = html(RESULTS["suggestion"])
    said = " ".join(Parsed(page).said)
    assert "error_limit = 18, budget = 10" in said
    assert re.findall(r"the line is the goal, (\d+)", said)[::2] == ["1", "30"]
    assert page.count('class="chosen"') == 4
    assert ">chosen<" in page


def test_sweep_has_a_grid_for_each_figure_and_names_the_best() -> None:
    page = html(RESULTS["sweep"])
    assert page.count('class="wide grid"') == 4
    best = page.split("Nothing is better in both than the squares: ")[1]
    assert best.startswith("error_limit 12, budget 20; error_limit 18, budget 20")


def test_result_with_little_in_it_is_a_page() -> None:
    for result in (
        {},
        {"kind": "sweep"},
        {"kind": "suggestion"},
        {"rules": [{"rules": "yours", "series": {"step_s": 5}}]},
    ):
        assert "<h1>a day: 0 containers</h1>" in html(result)


def test_record_with_a_date_shows_its_times() -> None:
    result = {**simulation_result.day(12, 2, 10.0), "start_unix": 1_800_000_000.0}
    assert "<span>08:00</span>" in html(result)
