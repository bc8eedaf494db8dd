"""deploy/messages.md: every word and alert stands there, and its examples are what is really sent."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from harness import receiver
from sidecar.config.fields import Telling
from sidecar.notify import payloads
from sidecar.notify.rules import LEVELS

PAGE = (Path(__file__).parents[2] / "deploy/messages.md").read_text()
WEBHOOK, TEMPLATE, PAGERDUTY = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
WORDS = [(topic, word, severity) for topic, levels in LEVELS.items() for word, severity in levels if topic != "test"]


@pytest.mark.parametrize(("topic", "word", "severity"), WORDS)
def test_word_stands_in_the_table_with_its_severity(topic: str, word: str, severity: str) -> None:
    assert re.search(rf"^\| (`{topic}`)? ?\| `{word}` \| {severity} \|", PAGE, re.MULTILINE)


@pytest.mark.parametrize("alert", payloads.ALERTS.values())
def test_alert_is_named(alert: str) -> None:
    assert f"`{alert}`" in PAGE


def test_example_of_the_webhook_is_as_it_is_sent() -> None:
    assert receiver.check_webhook(json.loads(WEBHOOK)) == []


def test_example_of_pagerduty_is_as_documented() -> None:
    assert receiver.check_pagerduty(json.loads(PAGERDUTY)) == []


def test_example_of_a_template_can_be_used() -> None:
    assert payloads.template_problem(TEMPLATE) == ""


@pytest.mark.parametrize("setting", sorted(set(re.findall(r"ARBITER_([A-Z_]+)", PAGE)) - {"DRAIN"}))
def test_setting_is_known(setting: str) -> None:
    assert setting.lower() in Telling.model_fields
