"""Three incidents at a site of twenty: page, commands, messages, alerts, ledger, metrics and report agree.

The scenario is played once. The facts of each source at the end of each phase are compared with the truth, and the
sources at the end with one another.
"""

from __future__ import annotations

import json
from collections import Counter
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from harness import receiver
from harness.browser import Browser, Window
from harness.children import Children
from harness.prometheus import AlertHistory
from harness.sidecar import Sidecar, command
from harness.site import SERVICE, Site, SiteApps
from harness.site_scenario import AUTHOR, PHASES, REASON, Recording, SiteScenario, differences, is_asked
from harness.site_sources import NAMES, events, sources
from harness.waiting import wait_for

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.redis, pytest.mark.haproxy, pytest.mark.site]

QUIET_S = 60.0
"""How long a topic is quiet before its end is sent."""
SINCE = ("--since", "1h")
Ledgers = tuple[list[dict[str, Any]], dict[str, Any], list[dict[str, Any]], list[str]]
"""The entries, the report, the entries by the command, and the lines of the page."""


class Recorded(NamedTuple):
    """Everything that the sources showed, at the end."""

    found: Recording
    events: list[dict[str, Any]]
    messages: list[dict[str, Any]]
    alerts: AlertHistory
    report: dict[str, Any]
    commanded: list[dict[str, Any]]
    page: list[str]
    complaints: list[str]
    log: str

    def entries(self, what: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["what"] == what]


@pytest.fixture(scope="module")
def recording(shared_dir: Path) -> Recorded:
    children = Children()
    try:
        with receiver.webhook() as messages, SiteApps() as apps:
            site = Site(shared_dir, children, messages, apps).launch()
            with Browser() as browser:
                site.ready()
                return _play_all(site, browser)
    except BaseException as error:
        # The outputs help with a failure on the way; a wrong fact is shown without them.
        for _, shown in children.outputs():
            error.add_note(shown)
        raise
    finally:
        children.stop()


def _play_all(site: Site, browser: Browser) -> Recorded:
    observer = site.fleet[0]
    page = browser.open("http://{}:{}/page".format(*observer.address("local")))
    with AlertHistory(site.alerts) as alerts:
        found = SiteScenario(site, sources(site, page), alerts).play()
        wait_for(lambda: alerts.now == {"ArbiterCulls"}, timeout_s=QUIET_S + 60, what="every other alert is over")
    ((told, report, commanded, lines),) = wait_for(
        lambda: _ledger(observer, page), timeout_s=90, what="no event comes while all sources are read"
    )
    log = "".join(one.output() for one in site.fleet)
    complaints = [*page.complaints, *site.messages.refused]
    return Recorded(found, told, site.messages.accepted, alerts, report, commanded, lines, complaints, log)


def _ledger(observer: Sidecar, page: Window) -> list[Ledgers]:
    """What every reader of the ledger shows; nothing if an event came meanwhile, or the page does not have all yet.

    On a busy machine a late answer of Redis is an event too.
    """
    told = events(observer)
    report = json.loads(command(observer, "report", *SINCE, "--json").out)
    commanded = [json.loads(line) for line in command(observer, "events", *SINCE, "--json").out.splitlines()]
    lines = page.page.locator("#events > li").all_inner_texts()
    is_quiet = events(observer) == told and len(lines) == len(told)
    return [(told, report, commanded, lines)] if is_quiet else []


@pytest.mark.parametrize(("phase", "source"), [pair for pair in product(PHASES, NAMES) if is_asked(*pair[::-1])])
def test_source_shows_the_facts_of_the_phase(recording: Recorded, phase: str, source: str) -> None:
    facts = recording.found.phases[phase, source]
    assert facts.keys() & PHASES[phase].keys(), "it shows no fact"
    assert differences(facts, PHASES[phase]) == []


# -- culls ----------------------------------------------------------------------------------------------------------


def test_ledger_has_every_cull_with_its_grant_and_its_outcome(recording: Recorded) -> None:
    culls = Counter((event["instance"], event["kind"]) for event in recording.entries("culled"))
    granted = Counter((event["instance"], event["kind"]) for event in recording.entries("granted"))
    assert culls == granted
    assert Counter(kind for _, kind in culls) == {"mysql": 1, "redis": 2, "rabbitmq": 1}
    assert Counter(event["kind"] for event in recording.entries("helped")) == {"redis": 2, "rabbitmq": 1}
    assert Counter(event["kind"] for event in recording.entries("unhelped")) == {"mysql": 1}


def test_report_has_the_sums_of_the_ledger(recording: Recorded) -> None:
    report = recording.report
    whats = Counter(event["what"] for event in recording.events)
    assert (report["service"], report["entries"]) == (SERVICE, len(recording.events))
    assert (report["culls"], report["suspects"], report["near_misses"]) == (
        whats["culled"],
        whats["suspect"],
        whats["recovered"],
    )
    assert report["refusals"] == Counter(event["reason"] for event in recording.entries("denied"))
    assert report["paused"] == {"mysql": 1}
    causes = {cause["kind"]: (cause["culls"], cause["helped"], cause["unhelped"]) for cause in report["causes"]}
    assert causes == {"mysql": (1, 0, 1), "redis": (2, 2, 0), "rabbitmq": (1, 1, 0)}


def test_page_has_a_line_for_every_event(recording: Recorded) -> None:
    whats = Counter(event["what"].replace("_", " ") for event in recording.events)
    shown = Counter(what for line in recording.page for what in whats if f"\n{what}\n" in f"\n{line}\n")
    assert shown == whats
    assert recording.complaints == []


# -- the hold -------------------------------------------------------------------------------------------------------


def test_no_container_is_culled_during_the_hold(recording: Recorded) -> None:
    since, until = recording.found.held_at
    within = [event for event in recording.events if since <= event["at"] <= until]
    assert [event["what"] for event in within if event["what"] in ("granted", "culled")] == []
    assert sorted((event["what"], event["reason"]) for event in within if event["what"] == "denied") == [
        ("denied", "hold"),
        ("denied", "hold"),
    ]


def test_hold_has_its_author_and_reason_in_the_ledger_the_message_and_the_log(recording: Recorded) -> None:
    (hold,) = recording.entries("hold")
    (message,) = [one for one in recording.messages if one["word"] == "hold"]
    (reported,) = recording.report["holds"]
    for found in (hold, reported):
        assert (found["author"], found["reason"]) == (AUTHOR, REASON)
    refusals = [event["detail"] for event in recording.entries("denied") if event["reason"] == "hold"]
    for text in (*refusals, message["sentence"], recording.log):
        assert AUTHOR in text
        assert REASON in text
    (release,) = recording.entries("release")
    assert reported["released_at"] == release["at"]


# -- messages -------------------------------------------------------------------------------------------


def test_each_message_is_sent_once(recording: Recorded) -> None:
    assert Counter(one["word"] for one in recording.messages) == {"paused_shared": 1, "hold": 1}


def test_prometheus_sends_the_alerts(recording: Recorded) -> None:
    assert recording.alerts.severities == {
        "ArbiterCullsPausedForMost": "critical",
        "ArbiterCullsPaused": "warning",
        "ArbiterCulls": "info",
        "ArbiterHeldLong": "warning",
    }
    assert recording.alerts.now == {"ArbiterCulls"}
