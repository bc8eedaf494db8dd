"""The page without JavaScript: the same banner, this container in words, and no text that becomes markup."""

from __future__ import annotations

import re
from typing import Any

import pytest

from sidecar.server.page.containers import ContainerFacts
from sidecar.server.page.plain_page import MOST_LISTED, PARTS, plain_page
from sidecar.server.why_text import as_text

NOW_S = 1_700_000_000.0
HOSTILE = "<img src=x onerror=alert(1)>\"'</pre><script>alert(2)</script>\u202eevil\u2066&amp;$why\ud800"
BANNER = {
    "level": "critical",
    "sentence": "All 10 tokens are in use.",
    "action": "Look for what they have in common.",
    "command": "health-arbiter why 'a b'",
    "anchor": "budget",
    "runbook": "https://wiki/runbooks#budget",
}
WHY: dict[str, Any] = {
    **dict.fromkeys(("incarnation", "would", "claim", "budget", "fleet", "hold", "capture", "last_cull", "action")),
    **dict.fromkeys(("alone", "spared", "runbook"), ""),
    **{name: [] for name in ("rules", "remedies", "samples", "history")},
    "service": "web",
    "instance": "web-1",
    "mode": "enforce",
    "state": "suspect",
    "since": NOW_S - 60,
    "health": {"haproxy": True, "nomad": True},
    "weight": 40,
    "soft_drained": True,
    "sentence": "9 server errors in 60 s, the limit is 5",
    "window": {"seconds": 60, "errors": 9, "usual": 0.0, "limit": 5, "kinds": {"redis": 9}, "requests": 0, "failed": 0},
}


def _page(**parts: Any) -> str:
    return plain_page({"why": WHY, "banner": BANNER, **parts}, NOW_S).decode()


def _listed(page: str) -> list[str]:
    return [re.sub("<[^>]*>", "", item) for item in re.findall("<li>(.*?)</li>", page)]


def test_banner_and_container_are_in_words() -> None:
    page = _page()
    assert '<section id="banner" class="critical">' in page
    assert "All 10 tokens are in use." in page
    assert "<code>health-arbiter why &#x27;a b&#x27;</code>" in page
    assert '<a href="https://wiki/runbooks#budget">Runbook</a>' in page
    first, *_ = as_text({**WHY, "at": NOW_S}).splitlines()
    assert f"<pre>{first}\n" in page
    assert "as of 22:13:20 UTC" in page
    assert "known at" not in page


def test_containers_in_trouble_are_listed_and_the_others_counted() -> None:
    suspect = ContainerFacts("b", "suspect", "redis", int(NOW_S) - 5, 9, 5, 40, "0.2.0")
    blocks = {"containers0": [ContainerFacts("a", "up"), suspect], "containers1": [ContainerFacts("c", "starting")]}
    page = _page(**blocks)
    assert _listed(page) == ["b suspect since 22:13:15 UTC, because of redis, 9 errors, the limit is 5, weight 40 %"]
    assert "1 of 3 containers" in page
    double = _page(containers0=[ContainerFacts("a", "up", duplicate=True)])
    assert _listed(double) == ["a up two containers run under this name"]
    many = _page(containers0=[ContainerFacts(f"c{number}", "down") for number in range(MOST_LISTED + 7)])
    assert (len(_listed(many)), "and 7 more, 57 of 57 containers" in many) == (MOST_LISTED, True)


def test_age_of_the_data_is_told_while_the_store_is_away() -> None:
    assert "as it was known at 22:11:40 UTC" in _page(known_at=NOW_S - 100)


def test_what_is_not_known_yet_is_said() -> None:
    assert "The state of the service is not known." in plain_page({"why": WHY}, NOW_S).decode()


def test_no_text_becomes_markup_or_moves_the_text_around_it() -> None:
    banner = dict.fromkeys(BANNER, HOSTILE)
    facts = ContainerFacts(HOSTILE, "down", HOSTILE, version=HOSTILE)
    why = {**WHY, **dict.fromkeys(("service", "instance", "sentence", "spared"), HOSTILE), "capture": HOSTILE}
    page = _page(why=why, banner=banner, containers0=[facts])
    assert page.count("&lt;img src=x onerror=alert(1)&gt;") > 8
    assert not set(page) & set("\u202e\u2066")
    assert re.findall(r"<(?:img|script|iframe)", page) == []
    assert page.count("</pre>") == 1
    assert "$why" in page, "a text is no template"


@pytest.mark.parametrize("url", ["javascript:alert(1)", "data:text/html,x", "", 'https"://'])
def test_runbook_that_could_run_a_script_is_no_link(url: str) -> None:
    assert "Runbook" not in _page(banner={**BANNER, "runbook": url})


@pytest.mark.parametrize(
    ("name", "is_shown"), [("why", True), ("containers12", True), ("events", False), ("known_at", True)]
)
def test_parts_are_named_by_the_pattern(name: str, *, is_shown: bool) -> None:
    assert bool(re.fullmatch(PARTS, name)) is is_shown
