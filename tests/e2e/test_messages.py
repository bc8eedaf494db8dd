"""An incident is one message of the fleet: real sidecars, a real Redis, a webhook that takes only what is right."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from harness import receiver as listening
from harness.fleet_driver import FleetDriver
from harness.sidecar import GATES, Setting, Sidecar
from harness.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.children import StartSidecar
    from harness.receiver import Receiver
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
