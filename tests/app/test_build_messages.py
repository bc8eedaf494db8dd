"""From the configuration to the messenger: the webhook, metrics and log of deliveries, the test message."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from harness import receiver as listening
from harness.waiting import wait_for
from sidecar.app import build_messages
from sidecar.config.load import load
from sidecar.config.settings import Config
from sidecar.core.app_reports import ErrorLevel
from sidecar.core.explain.samples import ErrorSample
from sidecar.core.types import Entry
from sidecar.notify.webhook import Delivery
from sidecar.telemetry import Observers
from sidecar.telemetry.log import Log


def settings(**given: object) -> Config:
    return load({}, {f"ARBITER_{name.upper()}": str(value) for name, value in given.items()})


async def test_result_of_an_action_and_a_sample_have_no_secrets(tmp_path: Path) -> None:
    """The sidecar of the container sends, without any claim, by the samples of its own app."""
    with listening.webhook() as hook:
        (tmp_path / "template").write_text('{"text": "$sentence", "sample": "$sample"}')
        observers = Observers()
        records: Any = NoMembers()
        samples = [
            ErrorSample("f", "redis", ErrorLevel.SERVER_ERROR, 3, 0.0, 2.0, "token=hunter2 refused"),
            ErrorSample("g", "", ErrorLevel.SERVER_ERROR, 2, 0.0, 1.0, "password=hunter2 of 10.1.2.3"),
        ]
        config = settings(webhook_url=hook.url, webhook_template=tmp_path / "template")
        built = build_messages.messenger(
            config, records, observers, CollectorRegistry(), Log(), samples=lambda: samples
        )
        observers.acted(Entry("action_failed", 1.0, detail=f"exit code 1: {'x ' * 70} password=hunter2 {'y ' * 70}"))
        running = asyncio.create_task(built.run())
        await asyncio.to_thread(wait_for, lambda: hook.accepted, timeout_s=60, what="the message has come")
        running.cancel()
        (message,) = hook.accepted
    assert "password=*** y" in message["text"]
    assert len(message["text"]) < build_messages.MOST_OF_RESULT + 200
    assert message["sample"] == "2 x : password=*** of 10.1.2.3"


class NoMembers:
    """The records of a fleet of none, in which nobody else claims anything."""

    async def first(self, _word: str, _for_s: float) -> bool:
        return True

    async def member_list(self) -> object:
        raise TimeoutError


def test_metrics_count_outcomes_and_the_log_has_the_host_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    registry = CollectorRegistry()
    observe = build_messages.deliveries(registry, Log(lambda: 0.0))
    for _ in range(3):
        observe(Delivery("sent", "paused", "hooks.slack.com"))
        observe(Delivery("failed", "paused", "status 500"))
    for outcome in ("sent", "failed"):
        assert registry.get_sample_value("arbiter_messages_total", {"outcome": outcome}) == 3
    assert [(record.message, record.levelname) for record in caplog.records] == [
        ("message sent", "INFO"),
        ("message failed", "WARNING"),
    ]
    assert caplog.records[0].__dict__["fields"]["detail"] == "hooks.slack.com"


async def test_template_that_has_become_unusable_gives_way_to_the_text(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "template").write_text('{"text": "$sentence"}')
    with listening.webhook() as hook:
        config = settings(webhook_url=hook.url, webhook_template=tmp_path / "template")
        (tmp_path / "template").write_text('{"text": $sentence}')
        assert await build_messages.send_test_message(config) == ("sent to 127.0.0.1", True)
        assert "This is a test of the messages" in hook.accepted[0]["text"]
    assert "ARBITER_WEBHOOK_TEMPLATE" in caplog.text


async def test_test_message_goes_to_the_url_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "hook"
    with listening.webhook() as hook:
        file.write_text(f"{hook.url}\n")
        config = settings(webhook_url_file=file, runbook_url="http://book")
        assert await build_messages.send_test_message(config) == ("sent to 127.0.0.1", True)
        assert hook.refused == []
        assert "http://book#messages" in hook.accepted[0]["text"]
    result, is_sent = await build_messages.send_test_message(config)
    assert (result, is_sent) == ("not sent: connection", False)
