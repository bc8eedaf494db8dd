"""The runbooks: one for each alert and each word by which the sidecar says no, none more, and all links lead on."""

from __future__ import annotations

import re
from typing import Final

import pytest

from deploy.prometheus_rules import ALERTS, RUNBOOK_URL, RUNBOOKS, dashboard, documented, names
from sidecar.config.settings import Settings
from sidecar.config.sources import variable
from sidecar.core.explain.reasons import DENIED, UNKNOWN
from sidecar.core.explain.runbooks import ANCHORS
from sidecar.notify.rules import LEVELS

TEXT: Final = RUNBOOKS.read_text()
COMMANDS: Final = {"why", "fleet", "events", "report", "hold", "release", "cull", "revive", "doctor"}
PARTS: Final = ("Means", "Look first", "Do", "Leave it alone when")


def _sections(under: str) -> dict[str, str]:
    """Heading -> text of what stands under a main heading."""
    chapter = re.split(r"^## ", TEXT, flags=re.MULTILINE)
    text = next(one for one in chapter if one.startswith(f"{under}\n"))
    return dict(re.findall(r"^### (\S+)\n\n(.*?)(?=^### |\Z)", text, re.MULTILINE | re.DOTALL))


def _anchor(heading: str) -> str:
    """As the pages of code hosts and wikis make it of one word."""
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


def test_address_to_replace_is_told_where_it_is_replaced() -> None:
    assert RUNBOOK_URL in TEXT
    assert f"s|{RUNBOOK_URL}|" in ALERTS.read_text()
    assert ALERTS.read_text().count("https://runbooks.example") == len(ALERT_SECTIONS) + 2


@pytest.mark.parametrize("alert", ALERT_SECTIONS)
def test_runbook_says_what_it_means_where_to_look_what_to_do_and_when_not_to(alert: str) -> None:
    said = re.findall(r"^- \*\*(.+?):\*\* \S.*", ALERT_SECTIONS[alert], re.MULTILINE)
    assert tuple(said) == PARTS


@pytest.mark.parametrize("alert", ALERT_SECTIONS)
def test_runbook_is_short_enough_for_the_night(alert: str) -> None:
    assert 40 < len(ALERT_SECTIONS[alert].split()) < 130


def test_runbooks_name_commands_settings_and_metrics_that_exist() -> None:
    assert set(re.findall(r"`health-arbiter (\w+)", TEXT)) == COMMANDS
    assert set(re.findall(r"\bARBITER_[A-Z_]+", TEXT)) <= {
        *map(variable, Settings.model_fields),
        variable("lifetime_max"),
    }
    assert set(re.findall(r"\barbiter_\w+", TEXT)) <= documented()
    assert set(re.findall(r"\bArbiter[A-Z]\w+", TEXT)) == set(names(ALERTS, "alert"))
    panels = {panel["title"] for panel in dashboard()["panels"]}
    assert set(re.findall(r'the panel "([^"]+)"', TEXT)) <= panels


def test_links_to_files_lead_somewhere() -> None:
    linked = re.findall(r"\]\(([^)#]+)\)", TEXT)
    assert linked
    assert [path for path in linked if not (RUNBOOKS.parent / path).exists()] == []


@pytest.mark.parametrize("word", [*DENIED, *UNKNOWN, *(word for levels in LEVELS.values() for word, _ in levels)])
def test_word_by_which_the_sidecar_says_no_leads_to_a_heading(word: str) -> None:
    assert ANCHORS[word] in {_anchor(heading) for heading in REASON_SECTIONS}


def test_every_reason_on_the_page_is_linked_to_and_no_word_is_unknown() -> None:
    messages = {word for levels in LEVELS.values() for word, _ in levels}
    assert set(ANCHORS) == {*DENIED, *UNKNOWN, *messages}
    assert set(ANCHORS.values()) == {_anchor(heading) for heading in REASON_SECTIONS}


@pytest.mark.parametrize("word", DENIED)
def test_page_names_the_word_of_a_refusal(word: str) -> None:
    section = REASON_SECTIONS[ANCHORS[word]]
    assert f"`{word}`" in section or ANCHORS[word] == word
