"""An incident sends each message once: real sidecars, a real Redis, strict receivers, a real Alertmanager."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import pytest

from harness import receiver as listening
from harness.fleet_driver import FleetDriver
from harness.prometheus import Alertmanager
from harness.receiver import Receiver
from harness.sidecar import GATES, Setting, Sidecar
from harness.waiting import wait_for

if TYPE_CHECKING:
    from harness.children import Children, StartSidecar
    from harness.redis_server import RedisServer

pytestmark = [pytest.mark.redis, pytest.mark.site]

QUICK: dict[str, Setting] = {
    **GATES,
    "beat_interval": "300ms",
    "settle": "0s",
    "drain": "0s",
    "check_interval": "1s",
    "redis_timeout": "900ms",
    "after_data_loss": "continue",
}
SECRET = "s3cret"


class Receivers(NamedTuple):
    """The receivers of a fleet, listening."""

    webhook: Receiver
    slack: Receiver
    pagerduty: Receiver
    alertmanager: Alertmanager

    def settings(self, directory: Path) -> dict[str, Setting]:
        (directory / "slack").write_text(self.slack.url)
        (directory / "key").write_text(listening.ROUTING_KEY)
        return {
            "webhook_url": self.webhook.url,
            "slack_url_file": directory / "slack",
            "pagerduty_key_file": directory / "key",
            "pagerduty_url": self.pagerduty.url,
            "alertmanager_url": self.alertmanager.url,
            "runbook_url": "https://wiki/runbooks.md",
            "page_url": "https://arbiter/page",
        }

    def refused(self) -> list[str]:
        return self.webhook.refused + self.slack.refused + self.pagerduty.refused


@pytest.fixture
def targets(run_dir: Path, children: Children) -> Iterator[Receivers]:
    manager = children.adopt(Alertmanager(run_dir)).start()
    with ExitStack() as opened:
        kinds = (listening.webhook, listening.slack, listening.pagerduty)
        webhook, slack, pagerduty = (opened.enter_context(kind()) for kind in kinds)
        yield Receivers(webhook, slack, pagerduty, manager)


def firing(manager: Alertmanager) -> dict[str, str]:
    return {alert["labels"]["word"]: alert["labels"]["severity"] for alert in manager.alerts()}


def _sent(fleet: list[Sidecar]) -> float:
    wanted = 'outcome="sent",receiver="webhook"'
    return sum(value for one in fleet for key, value in one.metrics().items() if wanted in key)


def logged(fleet: list[Sidecar]) -> str:
    return "".join(sidecar.output() for sidecar in fleet)


def test_fleet_of_five_sends_one_message_to_each(
    targets: Receivers, run_dir: Path, redis_server: RedisServer, sidecar: StartSidecar
) -> None:
    fleet = sidecar.fleet(5, **QUICK, **targets.settings(run_dir), redis_url=redis_server.url)
    driver = FleetDriver(fleet)
    driver.await_metrics(fleet_alive=5)
    driver.make_sick(*fleet, kind="mysql", errors=6)
    (first,) = wait_for(driver.down, timeout_s=60, what="one is culled")
    driver.await_metrics(fleet_suspect=4)
    driver.replace(first)
    driver.make_sick(first, kind="mysql", errors=6)
    wait_for(
        lambda: firing(targets.alertmanager) == {"paused_shared": "critical"}, timeout_s=60, what="the alert fires"
    )
    wait_for(
        lambda: targets.webhook.accepted and targets.slack.accepted,
        timeout_s=60,
        what="webhook and Slack get the message",
    )
    wait_for(lambda: targets.pagerduty.accepted, timeout_s=60, what="PagerDuty gets the message")
    time.sleep(2)  # time for messages that must not come
    assert [(one["word"], one["service"]) for one in targets.webhook.accepted] == [("paused_shared", "app")]
    assert [one["payload"]["class"] for one in targets.pagerduty.accepted] == ["paused_shared"]
    (shown_in_slack,), (alert,) = targets.slack.accepted, targets.pagerduty.accepted
    assert "Culls for mysql did not help" in shown_in_slack["text"]
    for text in (shown_in_slack["text"], alert["payload"]["summary"]):
        assert "Containers: n0" in text
        assert "(mysql)" in text
    facts = alert["payload"]["custom_details"]
    assert facts["command"].startswith("health-arbiter why n0")
    assert facts["sample"].startswith("6 server errors in 60 s (6 of them mysql)")
    assert f"Run `{facts['command']}`" in str(shown_in_slack["blocks"])
    assert "status page" in str(shown_in_slack["blocks"])
    assert targets.refused() == []
    shown = targets.alertmanager.query("alertname=ArbiterCullsPausedForMost")
    assert "Most of the 5 suspects of 5 containers share one cause: mysql." in shown
    # The sender counts a message after the reply of its receiver.
    wait_for(
        lambda: _sent(fleet) == len(targets.webhook.accepted),
        timeout_s=60,
        what="every accepted message is counted as sent",
    )
    assert SECRET not in logged(fleet)
    assert listening.ROUTING_KEY not in logged(fleet)


def test_each_action_that_fails_is_one_message_and_its_restart_the_end(
    targets: Receivers, run_dir: Path, redis_server: RedisServer, sidecar: StartSidecar
) -> None:
    script = run_dir / "restart"
    script.write_text(f"#!/bin/sh\necho 'unit not found'\necho password={SECRET}\nexit 5\n")
    script.chmod(0o700)
    settings = {
        **QUICK,
        "action": "command",
        "action_command": str(script),
        "trial": "off",
        **targets.settings(run_dir),
    }
    fleet = sidecar.fleet(2, **settings, redis_url=redis_server.url)
    sick, told = fleet[0], [("action_failed", "firing"), ("action_failed", "recovered")]
    for life in (1, 2):
        sick.post_error(6, kind=f"mysql-{life}", app_start=f"life-{life}")
        _await(lambda life=life: _told(targets) == told * (life - 1) + told[:1], "the failure is told")  # type: ignore[misc]
        _await(lambda: "action_failed" in firing(targets.alertmanager), "the alert fires")
        assert sick.health("/health/nomad")[0] == 503
        sick.post_error(count=0, app_start=f"life-{life + 1}")
        _await(lambda life=life: _told(targets) == told * life, "the restart ends it")  # type: ignore[misc]
    _await(lambda: _alerted(targets) == ["trigger", "resolve"] * 2, "PagerDuty has it all")
    first = next(one for one in targets.webhook.accepted if one["topic"] == "action")
    assert (first["instance"], first["runbook"]) == ("n00", "https://wiki/runbooks.md#action-failed")
    assert "only the failing check (503) is left to restart it" in first["sentence"]
    facts = first["facts"]
    assert (facts["action"], facts["command"]) == ("command", "health-arbiter why n00")
    assert facts["result"].endswith("unit not found password=***")
    assert SECRET not in json.dumps([targets.webhook.accepted, targets.slack.accepted, targets.pagerduty.accepted])
    assert targets.refused() == []


def _await(condition: Callable[[], object], what: str) -> None:
    wait_for(condition, timeout_s=60, what=what)


def _told(targets: Receivers) -> list[tuple[str, str]]:
    """The messages about actions so far."""
    return [(one["word"], one["status"]) for one in targets.webhook.accepted if one["topic"] == "action"]


def _alerted(targets: Receivers) -> list[str]:
    """What PagerDuty got about actions so far."""
    events = targets.pagerduty.accepted
    return [event["event_action"] for event in events if event["dedup_key"].endswith("/action/n00")]


def test_receiver_that_hangs_delays_no_decision(
    targets: Receivers, run_dir: Path, redis_server: RedisServer, sidecar: StartSidecar
) -> None:
    targets.webhook.delay_s = targets.slack.delay_s = targets.pagerduty.delay_s = 30
    # Three used tokens of four cause a message, and no receiver answers.
    fleet = sidecar.fleet(
        4,
        **{**QUICK, **targets.settings(run_dir), "min_healthy": "0", "trial": "off", "refund": "off", "budget": "4"},
        redis_url=redis_server.url,
    )
    for one in fleet[:3]:
        one.post_error(6)
        wait_for(lambda one=one: one.health()[0] == 503, timeout_s=60, what=f"{one.name} is down")  # type: ignore[misc]
    wait_for(lambda: targets.webhook.tries, timeout_s=60, what="a request hangs at the receiver")
    # An answer that waited for a receiver would take seconds. The median, because a busy machine delays a few.
    assert median(_health_s(fleet[3]) for _ in range(51)) < 1
    wait_for(lambda: "message failed" in logged(fleet), timeout_s=60, what="the timeout is logged")
    assert SECRET not in logged(fleet)


def _health_s(one: Sidecar) -> float:
    began = time.perf_counter()
    assert one.health()[0] == 200
    return time.perf_counter() - began
