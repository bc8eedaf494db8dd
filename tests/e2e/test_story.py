"""Three incidents at a site of twenty: page, commands, messages, alerts, ledger, metrics and report tell one story.

It is played once. What each told at the end of each chapter is compared with what was true then; what they have in
the end, with one another.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from harness import receiver
from harness.browser import Browser
from harness.command import command
from harness.site import BUDGET, SERVICE, Site
from harness.site_alerts import SiteAlerts
from harness.site_apps import SiteApps
from harness.starting import Children
from harness.story import AUTHOR, CHAPTERS, REASON, RELEASER, Story, Told, differences, is_asked
from harness.story_tellers import NAMES, events, tellers
from harness.waiting import wait_for

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.redis, pytest.mark.haproxy, pytest.mark.timeout(300)]

QUIET_S = 60.0
"""So long nothing is heard of a topic before people are told that it is over."""
SINCE = ("--since", "1h")


class Afternoon(NamedTuple):
    """All that was told of it, when it was over."""

    told: Told
    events: list[dict[str, Any]]
    messages: list[dict[str, Any]]
    alerts: SiteAlerts
    report: dict[str, Any]
    commanded: list[dict[str, Any]]
    page: list[str]
    complaints: list[str]
    log: str

    def entries(self, what: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["what"] == what]


@pytest.fixture(scope="module")
def afternoon(shared_dir: Path) -> Afternoon:
    children = Children()
    try:
        with receiver.webhook() as messages, SiteApps() as apps:
            site = Site(shared_dir, children, messages, apps).launch()
            with Browser() as browser:
                site.ready()
                return _played(site, browser)
    except BaseException as error:
        # Of whatever goes wrong on the way; what is told wrongly is shown without.
        for _, shown in children.outputs():
            error.add_note(shown)
        raise
    finally:
        children.stop()


def _played(site: Site, browser: Browser) -> Afternoon:
    observer = site.fleet[0]
    page = browser.open("http://{}:{}/page".format(*observer.address("local")))
    with SiteAlerts(site.alerts) as alerts:
        told = Story(site, tellers(site, page), alerts).play()
        report = json.loads(command(observer, "report", *SINCE, "--json").out)
        commanded = [json.loads(line) for line in command(observer, "events", *SINCE, "--json").out.splitlines()]
        wait_for(
            lambda: _recovered(site) == {"paused", "hold", "budget"} and not alerts.now_of("sidecar"),
            timeout_s=QUIET_S + 30,
            what="the end of every topic is told",
        )
    lines = page.page.locator("#events > li").all_inner_texts()
    log = "".join(one.output() for one in site.fleet)
    complaints = [*page.complaints, *site.messages.refused]
    return Afternoon(told, events(observer), site.messages.accepted, alerts, report, commanded, lines, complaints, log)


def _recovered(site: Site) -> set[str]:
    return {one["topic"] for one in site.messages.accepted if one["status"] == "recovered"}


@pytest.mark.parametrize(("chapter", "teller"), [pair for pair in product(CHAPTERS, NAMES) if is_asked(*pair[::-1])])
def test_everybody_tells_of_a_chapter_what_was(afternoon: Afternoon, chapter: str, teller: str) -> None:
    facts = afternoon.told.chapters[chapter, teller]
    assert facts.keys() & CHAPTERS[chapter].keys(), "it says nothing at all"
    assert differences(facts, CHAPTERS[chapter]) == []


# -- culls ----------------------------------------------------------------------------------------------------------


def test_ledger_has_every_cull_with_its_grant_and_its_outcome(afternoon: Afternoon) -> None:
    culled = Counter((event["instance"], event["kind"]) for event in afternoon.entries("culled"))
    granted = Counter((event["instance"], event["kind"]) for event in afternoon.entries("granted"))
    assert culled == granted
    assert Counter(kind for _, kind in culled) == {"mysql": 1, "redis": 3, "rabbitmq": 1}
    assert Counter(event["kind"] for event in afternoon.entries("helped")) == {"redis": 3, "rabbitmq": 1}
    assert Counter(event["kind"] for event in afternoon.entries("unhelped")) == {"mysql": 1}


def test_ledger_and_report_tell_how_long_replacements_took(afternoon: Afternoon) -> None:
    assert len(afternoon.entries("replaced")) == len(afternoon.entries("culled"))
    assert afternoon.report["replaced_s"]["count"] == len(afternoon.entries("culled"))


def test_report_adds_up_what_the_ledger_has(afternoon: Afternoon) -> None:
    report = afternoon.report
    whats = Counter(event["what"] for event in afternoon.events)
    assert (report["service"], report["entries"]) == (SERVICE, len(afternoon.events))
    assert (report["culls"], report["suspects"], report["near_misses"]) == (
        whats["culled"],
        whats["suspect"],
        whats["recovered"],
    )
    assert report["refusals"] == Counter(event["reason"] for event in afternoon.entries("denied"))
    assert report["paused"] == {"mysql": 1}
    causes = {cause["kind"]: (cause["culls"], cause["helped"], cause["unhelped"]) for cause in report["causes"]}
    assert causes == {"mysql": (1, 0, 1), "redis": (3, 3, 0), "rabbitmq": (1, 1, 0)}


def test_command_shows_the_ledger_as_the_door_has_it(afternoon: Afternoon) -> None:
    assert afternoon.commanded == afternoon.events


def test_page_has_a_line_for_every_event(afternoon: Afternoon) -> None:
    whats = Counter(event["what"].replace("_", " ") for event in afternoon.events)
    shown = Counter(what for line in afternoon.page for what in whats if f"\n{what}\n" in f"\n{line}\n")
    assert shown == whats
    assert afternoon.complaints == []


def test_culled_container_tells_at_its_door_and_by_command_why(afternoon: Afternoon) -> None:
    (cull,) = [event for event in afternoon.entries("culled") if event["kind"] == "rabbitmq"]
    sentence, evidence, *_ = cull["detail"].splitlines()
    assert re.fullmatch(r"\d+ x rabbitmq \([0-9a-f]+, \S+Z to \S+Z\): no answer from rabbitmq", evidence)
    for teller, text in afternoon.told.culled.items():
        said = " ".join(text.split())
        assert sentence in said, teller
        assert cull["instance"] in said, teller
        assert f"2 of {BUDGET}" in said, teller


# -- the trial ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("reason", "containers"), [("trial", 17), ("paused", 18)])
def test_suspects_are_refused_for_the_cull_before_them_each_once(
    afternoon: Afternoon, reason: str, containers: int
) -> None:
    refused = [event for event in afternoon.entries("denied") if (event["reason"], event["kind"]) == (reason, "mysql")]
    assert len({event["instance"] for event in refused}) == len(refused) == containers


def test_pause_is_told_once_and_so_is_its_end(afternoon: Afternoon) -> None:
    assert [event["kind"] for event in afternoon.entries("paused")] == ["mysql"]
    paused = [(one["word"], one["status"]) for one in afternoon.messages if one["topic"] == "paused"]
    assert paused == [("paused_shared", "firing"), ("paused", "recovered")]


def test_container_for_whose_cause_culls_are_paused_tells_that_a_person_can_end_it(afternoon: Afternoon) -> None:
    assert any("health-arbiter release" in sentence for sentence in afternoon.told.stuck)


# -- the hold -------------------------------------------------------------------------------------------------------


def test_nobody_is_culled_while_culls_are_held(afternoon: Afternoon) -> None:
    since, until = afternoon.told.held_at
    within = [event for event in afternoon.events if since <= event["at"] <= until]
    assert [event["what"] for event in within if event["what"] in ("granted", "culled")] == []
    assert sorted((event["what"], event["reason"]) for event in within if event["what"] == "denied") == [
        ("denied", "hold"),
        ("denied", "hold"),
    ]


def test_hold_has_its_author_and_its_reason_wherever_it_is_told(afternoon: Afternoon) -> None:
    (hold,) = afternoon.entries("hold")
    (message,) = [one for one in afternoon.messages if one["topic"] == "hold" and one["status"] == "firing"]
    (reported,) = afternoon.report["holds"]
    for told in (hold, message["facts"], reported):
        assert (told["author"], told["reason"]) == (AUTHOR, REASON)
    refusals = [event["detail"] for event in afternoon.entries("denied") if event["reason"] == "hold"]
    alert = next(text for shown, text in afternoon.alerts.ever.items() if shown.name == "ArbiterHeld")
    for text in (*refusals, message["sentence"], alert, afternoon.log):
        assert AUTHOR in text
        assert REASON in text
    (release,) = afternoon.entries("release")
    assert reported["released_at"] == release["at"]


def test_release_has_its_author(afternoon: Afternoon) -> None:
    assert [event["author"] for event in afternoon.entries("release")] == [RELEASER]


# -- what people are told -------------------------------------------------------------------------------------------


def test_people_are_told_each_thing_once(afternoon: Afternoon) -> None:
    assert Counter((one["word"], one["status"]) for one in afternoon.messages) == {
        ("paused_shared", "firing"): 1,
        ("paused", "recovered"): 1,
        ("hold", "firing"): 1,
        ("hold", "recovered"): 1,
        ("budget_50", "firing"): 1,
        ("budget_50", "recovered"): 1,
    }


def test_alertmanager_hears_the_same_from_sidecars_and_from_prometheus(afternoon: Afternoon) -> None:
    paused = {"ArbiterCullsPausedForMost": "critical", "ArbiterCullsPaused": "warning"}
    told = {**paused, "ArbiterBudgetHalf": "info"}
    assert afternoon.alerts.by("sidecar") == {**told, "ArbiterHeld": "info"}
    assert afternoon.alerts.by("prometheus") == {**told, "ArbiterCulls": "info", "ArbiterHeldLong": "warning"}
    assert afternoon.alerts.now_of("sidecar") == set()
    assert afternoon.alerts.now_of("prometheus") == {"ArbiterCulls"}
