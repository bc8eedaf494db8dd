"""From the configuration to the messenger: receivers, metrics and log of deliveries, the test message."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from harness import receiver as listening
from harness.ports import free_port
from sidecar.app import build_notify
from sidecar.config.settings import load_config
from sidecar.config.slices import Config, NotifyConfig
from sidecar.core.types import Entry
from sidecar.notify.episodes import Notification
from sidecar.notify.message import Context, Message
from sidecar.notify.outbox import Delivery
from sidecar.notify.rules import Severity
from sidecar.telemetry.log import Log
from sidecar.telemetry.observers import Observers


def settings(**given: object) -> Config:
    return load_config({}, {f"ARBITER_{name.upper()}": str(value) for name, value in given.items()})


class FakeBucket:
    async def first(self, _word: str, _for_s: float) -> bool:
        return True

    async def member_list(self) -> Any:
        raise AssertionError("not asked")


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def posted(outcome: str, detail: str = "") -> Delivery:
    notification = Notification("paused", "paused", Severity.ERROR, "s", 0.0)
    return Delivery("slack", outcome, Message(notification, Context("web", "prod", "a"), 0.0, 0.0), detail)


NOBODY: list[dict[str, object]] = [{}, {"webhook_url": "http://a/hook", "messages": "off"}]


@pytest.mark.parametrize("given", NOBODY, ids=["no receiver", "messages off"])
def test_no_messages_without_a_receiver(given: dict[str, object]) -> None:
    assert not settings(**given).notify.has_receivers


def test_each_receiver_that_is_set_is_told(tmp_path: Path) -> None:
    made = build_notify.receivers(
        settings(
            webhook_url="http://a/1, http://a/2",
            slack_url_file=tmp_path / "slack",
            pagerduty_key_file=tmp_path / "key",
            alertmanager_url="http://b:9093",
        ).notify
    )
    assert [one.name for one in made] == ["webhook", "slack", "pagerduty", "alertmanager"]
    assert [list(one.addresses()) for one in (made[0], made[2], made[3])] == [
        ["http://a/1", "http://a/2"],
        ["https://events.pagerduty.com/v2/enqueue"],
        ["http://b:9093/api/v2/alerts"],
    ]


async def test_webhooks_of_a_file_are_told_in_the_same_way(opened: ExitStack, tmp_path: Path) -> None:
    hook, file = opened.enter_context(listening.webhook()), tmp_path / "hooks"
    assert [one.name for one in build_notify.receivers(settings(webhook_url_file=file).notify)] == ["webhook"]
    file.write_text(hook.url)
    assert await build_notify.send_test_messages(settings(webhook_url_file=file)) == [
        ("webhook", "sent to 127.0.0.1", True)
    ]
    assert (len(hook.accepted), hook.refused) == (2, [])


def test_metrics_count_deliveries_and_what_waits() -> None:
    registry, observers = CollectorRegistry(), Observers()
    store: Any = FakeBucket()
    built = build_notify.messenger(settings(webhook_url="http://a/hook"), store, observers, registry, Log())
    assert (observers.steps, observers.beats) == ([built.notice], [built.beaten])
    assert b"arbiter_messages_waiting 0.0" in generate_latest(registry)
    observers.acted(Entry("action_failed", 1.0, detail=f"exit code 1: {'x ' * 70} password=hunter2 {'y ' * 70}"))
    failed = built._watch.observation(0.0).failed_action
    assert failed is not None
    assert "password=*** y" in failed.detail
    assert len(failed.detail) <= build_notify.MOST_OF_RESULT
    deliveries = build_notify.DeliveryTelemetry(Log())
    for outcome in ("sent", "failed", "failed"):
        deliveries.observe(posted(outcome))
    samples = {tuple(s.labels.values()): s.value for family in deliveries.collect() for s in family.samples if s.labels}
    assert samples == {("slack", "sent"): 1, ("slack", "failed"): 2}


def test_log_has_the_host_and_repeats_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    deliveries = build_notify.DeliveryTelemetry(Log(lambda: 0.0))
    deliveries.observe(posted("sent", "alerts")._replace(is_repeat=True))
    for _ in range(3):
        deliveries.observe(posted("sent", "hooks.slack.com"))
        deliveries.observe(posted("failed", "status 500"))
    assert [(record.message, record.levelname) for record in caplog.records] == [
        ("message sent", "INFO"),
        ("message failed", "WARNING"),
    ]
    assert caplog.records[0].__dict__["fields"]["detail"] == "hooks.slack.com"


def test_template_that_has_become_unusable_gives_way_to_all_fields(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "template").write_text('{"text": $sentence}')
    view = NotifyConfig(webhook_url="http://a", webhook_template=str(tmp_path / "template"))
    assert [one.name for one in build_notify.receivers(view)] == ["webhook"]
    assert "ARBITER_WEBHOOK_TEMPLATE" in caplog.text


# -- a test message ------------------------------------------------------------------------------------------------


async def test_test_message_goes_to_everybody(opened: ExitStack, tmp_path: Path) -> None:
    kinds = (listening.webhook, listening.slack, listening.pagerduty, listening.alertmanager)
    hook, slack, duty, alerts = (opened.enter_context(kind()) for kind in kinds)
    (tmp_path / "slack").write_text(slack.url)
    (tmp_path / "key").write_text(listening.ROUTING_KEY)
    chosen = settings(
        webhook_url=hook.url,
        slack_url_file=tmp_path / "slack",
        pagerduty_key_file=tmp_path / "key",
        pagerduty_url=duty.url,
        alertmanager_url=alerts.base,
    )
    results = await build_notify.send_test_messages(chosen)
    assert [result[1:] for result in results] == [("sent to 127.0.0.1", True)] * 4
    assert [one.refused for one in (hook, slack, duty, alerts)] == [[]] * 4
    assert [len(one.accepted) for one in (hook, slack, duty, alerts)] == [2] * 4
    assert [event["event_action"] for event in duty.accepted] == ["trigger", "resolve"]
    assert {message["severity"] for message in hook.accepted} == {"warning"}
    assert all("This is a test" in message["sentence"] for message in hook.accepted)


async def test_test_message_says_which_receiver_could_not_be_reached(opened: ExitStack) -> None:
    there = opened.enter_context(listening.webhook())
    chosen = settings(webhook_url=there.url, alertmanager_url=f"http://127.0.0.1:{free_port()}")
    assert await build_notify.send_test_messages(chosen) == [
        ("webhook", "sent to 127.0.0.1", True),
        ("alertmanager", "not sent: connection", False),
    ]
