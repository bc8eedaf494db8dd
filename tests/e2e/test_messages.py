"""An incident is one message of the fleet: real sidecars, a real Redis, a webhook that takes only what is right."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from harness import receiver as listening
from harness.fleet_driver import FleetDriver
from harness.receiver import Receiver
from harness.sidecar import GATES, Setting, Sidecar
from harness.waiting import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from harness.children import StartSidecar
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
    "runbook_url": "https://wiki/runbooks.md",
    "page_url": "https://arbiter/page",
}
SECRET = "s3cret"


@pytest.fixture
def webhook() -> Iterator[Receiver]:
    with listening.webhook() as one:
        yield one


def _sent(fleet: list[Sidecar]) -> float:
    return sum(one.metrics().get('arbiter_messages_total{outcome="sent"}', 0) for one in fleet)


def logged(fleet: list[Sidecar]) -> str:
    return "".join(sidecar.output() for sidecar in fleet)


def test_fleet_of_five_sends_one_message(webhook: Receiver, redis_server: RedisServer, sidecar: StartSidecar) -> None:
    fleet = sidecar.fleet(5, **QUICK, webhook_url=webhook.url, redis_url=redis_server.url)
    driver = FleetDriver(fleet)
    driver.await_metrics(fleet_alive=5)
    driver.make_sick(*fleet, kind="mysql", errors=6)
    (first,) = wait_for(driver.down, timeout_s=60, what="one is culled")
    driver.await_metrics(fleet_suspect=4)
    driver.replace(first)
    driver.make_sick(first, kind="mysql", errors=6)
    wait_for(lambda: webhook.accepted, timeout_s=60, what="the webhook gets the message")
    # The sender counts a message after the reply of its receiver.
    wait_for(lambda: _sent(fleet) == 1, timeout_s=60, what="the accepted message is counted as sent")
    time.sleep(2)  # time for messages that must not come
    (message,) = webhook.accepted
    assert "Culls for mysql did not help" in message["text"]
    assert "Containers: n0" in message["text"]
    assert "Type: health-arbiter why n0" in message["text"]
    assert "https://wiki/runbooks.md#paused" in message["text"]
    assert (webhook.refused, _sent(fleet)) == ([], 1)
    assert SECRET not in logged(fleet)


def _failing_action(run_dir: Path) -> dict[str, Setting]:
    script = run_dir / "restart"
    script.write_text(f"#!/bin/sh\necho 'unit not found'\necho password={SECRET}\nexit 5\n")
    script.chmod(0o700)
    return {**QUICK, "action": "command", "action_command": str(script), "trial": "off"}


def test_each_action_that_fails_is_one_message_without_secrets(
    webhook: Receiver, run_dir: Path, redis_server: RedisServer, sidecar: StartSidecar
) -> None:
    template = run_dir / "template"
    template.write_text('{"text": "$sentence", "word": "$word", "instance": "$instance", "command": "$command"}')
    receiver: dict[str, Setting] = {"webhook_url": webhook.url, "webhook_template": str(template)}
    fleet = sidecar.fleet(2, **_failing_action(run_dir), **receiver, redis_url=redis_server.url)

    def told() -> list[dict[str, str]]:
        return [message for message in webhook.accepted if message["word"] == "action_failed"]

    sick = fleet[0]
    for life in (1, 2):
        sick.post_error(6, kind=f"mysql-{life}", app_start=f"life-{life}")
        wait_for(lambda life=life: len(told()) == life, timeout_s=60, what="the failure is told")  # type: ignore[misc]
        assert sick.health("/health/nomad")[0] == 503
        sick.post_error(count=0, app_start=f"life-{life + 1}")
        wait_for(lambda: sick.health("/health/nomad")[0] == 200, timeout_s=60, what="the restart ends it")
    for message in told():
        assert message["instance"] == "n00"
        assert "unit not found password=***" in message["text"]
        assert message["command"] == "health-arbiter why n00"
    assert SECRET not in json.dumps(webhook.accepted)
    assert webhook.refused == []


def test_webhook_that_hangs_delays_no_decision(
    webhook: Receiver, run_dir: Path, redis_server: RedisServer, sidecar: StartSidecar
) -> None:
    webhook.delay_s = 30
    fleet = sidecar.fleet(3, **_failing_action(run_dir), webhook_url=webhook.url, redis_url=redis_server.url)
    first, second, _ = fleet
    first.post_error(6)
    wait_for(lambda: webhook.tries, timeout_s=60, what="a request hangs at the webhook")
    first.post_error(count=0, app_start="restarted")
    wait_for(lambda: first.health()[0] == 200, timeout_s=60, what="the first is restarted while it hangs")
    second.post_error(6, kind="mysql")
    wait_for(lambda: second.health()[0] == 503, timeout_s=60, what="the second is culled")
    wait_for(lambda: "message failed" in logged(fleet), timeout_s=60, what="the timeout is logged")
    assert SECRET not in logged(fleet[1:])
