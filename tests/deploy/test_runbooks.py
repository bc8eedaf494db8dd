"""The runbooks: exactly one for each alert and each reason."""

from __future__ import annotations

import re
from typing import Final

import pytest

from deploy.prometheus_rules import ALERTS, RUNBOOK_URL, RUNBOOKS, dashboard, documented, names
from sidecar.core.explain.reasons import FAILURES, MESSAGE_RUNBOOKS, REFUSALS, runbook
from sidecar.notify.rules import LEVELS

TEXT: Final = RUNBOOKS.read_text()
COMMANDS: Final = {"why", "fleet", "events", "report", "hold", "release", "cull", "revive", "doctor"}
PARTS: Final = ("Means", "Look first", "Do", "Leave it alone when")


def _sections(under: str) -> dict[str, str]:
    """The sections below a main heading, by their heading."""
    chapter = re.split(r"^## ", TEXT, flags=re.MULTILINE)
    text = next(one for one in chapter if one.startswith(f"{under}\n"))
    return dict(re.findall(r"^### (\S+)\n\n(.*?)(?=^### |\Z)", text, re.MULTILINE | re.DOTALL))


def _anchor(heading: str) -> str:
    """The anchor of a heading of one word."""
    return heading.lower()


ALERT_SECTIONS: Final = _sections("Alerts")
REASON_SECTIONS: Final = _sections("Why there is no token")


def test_every_alert_has_a_runbook_and_every_runbook_an_alert() -> None:
    assert [*ALERT_SECTIONS] == names(ALERTS, "alert")


def test_every_heading_is_a_section() -> None:
    assert len(re.findall(r"^### ", TEXT, re.MULTILINE)) == len(ALERT_SECTIONS) + len(REASON_SECTIONS)


def test_links_of_alerts_lead_to_a_heading() -> None:
    anchors = re.findall(rf"runbook_url: {re.escape(RUNBOOK_URL)}#(\S+)", ALERTS.read_text())
    assert anchors == [_anchor(heading) for heading in ALERT_SECTIONS]


def test_placeholder_address_is_explained_beside_every_use() -> None:
    assert RUNBOOK_URL in TEXT
    assert f"s|{RUNBOOK_URL}|" in ALERTS.read_text()
    assert ALERTS.read_text().count("https://runbooks.example") == len(ALERT_SECTIONS) + 2


@pytest.mark.parametrize("alert", ALERT_SECTIONS)
def test_runbook_has_its_four_parts(alert: str) -> None:
    said = re.findall(r"^- \*\*(.+?):\*\* \S.*", ALERT_SECTIONS[alert], re.MULTILINE)
    assert tuple(said) == PARTS


@pytest.mark.parametrize("alert", ALERT_SECTIONS)
def test_runbook_is_short(alert: str) -> None:
    assert 40 < len(ALERT_SECTIONS[alert].split()) < 130


def test_runbooks_name_commands_metrics_alerts_and_panels_that_exist() -> None:
    assert set(re.findall(r"`health-arbiter (\w+)", TEXT)) == COMMANDS
    assert set(re.findall(r"\barbiter_\w+", TEXT)) <= documented()
    assert set(re.findall(r"\bArbiter[A-Z]\w+", TEXT)) == set(names(ALERTS, "alert"))
    panels = {panel["title"] for panel in dashboard()["panels"]}
    assert set(re.findall(r'the panel "([^"]+)"', TEXT)) <= panels


def test_every_word_leads_to_a_heading_and_every_heading_is_linked_to() -> None:
    messages = {word for levels in LEVELS.values() for word, _ in levels}
    words = {*REFUSALS, *FAILURES, *MESSAGE_RUNBOOKS}
    assert messages <= words
    assert MESSAGE_RUNBOOKS.keys() <= messages
    assert {runbook(word) for word in words} == {_anchor(heading) for heading in REASON_SECTIONS}


@pytest.mark.parametrize("word", REFUSALS)
def test_page_names_the_word_of_a_refusal(word: str) -> None:
    section = REASON_SECTIONS[runbook(word)]
    assert f"`{word}`" in section or runbook(word) == word
