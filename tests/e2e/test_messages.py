"""One story, told once: real sidecars and a real Redis, receivers that refuse what is not documented, Alertmanager."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import pytest

from harness import receiver as listening
from harness.alertmanager import Alertmanager
from harness.crew import Crew
from harness.receiver import Receiver
from harness.sidecar import GATES, Setting, Sidecar
from harness.waiting import eventually, wait_for
from sidecar.app.budget_parts import fleet_budget, servers
from sidecar.cascade.fallback import Cascade
from sidecar.config.settings import load
from sidecar.core.types import CauseTrial, Fleet, Hold
from sidecar.notify import posting, receivers
from sidecar.notify.episodes import Occasions
from sidecar.notify.message import Context
from sidecar.notify.messenger import Messenger
from sidecar.notify.outbox import Outbox
from sidecar.notify.watch import Watch

if TYPE_CHECKING:
    from harness.redis_server import RedisServer
    from harness.starting import Children, StartSidecar

pytestmark = [pytest.mark.redis, pytest.mark.timeout(120)]

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


class Told(NamedTuple):
    """Everybody who is told, each listening."""

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
        }

    def refused(self) -> list[str]:
        return self.webhook.refused + self.slack.refused + self.pagerduty.refused

    def words(self) -> list[tuple[str, str]]:
        return [(one["word"], one["status"]) for one in self.webhook.accepted]


@pytest.fixture
def told(run_dir: Path, children: Children) -> Iterator[Told]:
    manager = children.adopt(Alertmanager(run_dir)).start()
    with ExitStack() as opened:
        kinds = (listening.webhook, listening.slack, listening.pagerduty)
        webhook, slack, pagerduty = (opened.enter_context(kind()) for kind in kinds)
        yield Told(webhook, slack, pagerduty, manager)


def firing(manager: Alertmanager) -> dict[str, str]:
    return {alert["labels"]["occasion"]: alert["labels"]["severity"] for alert in manager.alerts()}


def _sent(fleet: list[Sidecar]) -> float:
    wanted = 'outcome="sent",receiver="webhook"'
    return sum(value for one in fleet for key, value in one.metrics().items() if wanted in key)


def logged(fleet: list[Sidecar]) -> str:
    return "".join(sidecar.output() for sidecar in fleet)


def test_fleet_of_five_sends_one_message_to_each(
    told: Told, run_dir: Path, redis_server: RedisServer, sidecar: StartSidecar
) -> None:
    fleet = sidecar.fleet(5, **QUICK, **told.settings(run_dir), redis_url=redis_server.url)
    crew = Crew(fleet)
    crew.await_metrics(fleet_alive=5)
    crew.suffer(*fleet, kind="mysql", errors=6)
    (first,) = wait_for(crew.down, timeout_s=20, what="one is culled")
    crew.await_metrics(fleet_suspect=4)
    crew.replace(first)
    crew.suffer(first, kind="mysql", errors=6)
    wait_for(lambda: firing(told.alertmanager) == {"paused_shared": "critical"}, timeout_s=20, what="the alert fires")
    wait_for(lambda: told.webhook.accepted and told.slack.accepted, timeout_s=30, what="people are told")
    wait_for(lambda: told.pagerduty.accepted, timeout_s=30, what="somebody is called")
    time.sleep(2)  # for messages that should not come
    assert [(one["word"], one["service"]) for one in told.webhook.accepted] == [("paused_shared", "app")]
    assert [one["payload"]["class"] for one in told.pagerduty.accepted] == ["paused_shared"]
    assert ["Culls for mysql did not help" in one["text"] for one in told.slack.accepted] == [True]
    assert told.refused() == []
    shown = told.alertmanager.queried("alertname=ArbiterCullsPausedForMost")
    assert "Most of the 5 suspects of 5 containers share one cause: mysql." in shown
    # The receiver has it first, the sender counts it when it hears so.
    wait_for(lambda: _sent(fleet) == len(told.webhook.accepted), timeout_s=30, what="as many are sent as were taken")
    assert SECRET not in logged(fleet)
    assert listening.ROUTING_KEY not in logged(fleet)


def test_receiver_that_hangs_delays_no_decision(
    told: Told, run_dir: Path, redis_server: RedisServer, sidecar: StartSidecar
) -> None:
    told.webhook.delay_s = told.slack.delay_s = told.pagerduty.delay_s = 30
    # Three of four tokens spent are told while nobody of those who are told answers.
    fleet = sidecar.fleet(
        4,
        **{**QUICK, **told.settings(run_dir), "min_healthy": "0", "trial": "off", "refund": "off", "budget": "4"},
        redis_url=redis_server.url,
    )
    for one in fleet[:3]:
        one.post_error(6)
        wait_for(lambda one=one: one.health()[0] == 503, timeout_s=20, what=f"{one.name} is down")  # type: ignore[misc]
    wait_for(lambda: told.webhook.tries, timeout_s=20, what="somebody hangs at the receiver")
    # Whoever waited for a receiver would wait for seconds; a machine that is busy keeps some of them for a moment.
    assert median(_health_s(fleet[3]) for _ in range(51)) < 0.1
    wait_for(lambda: "message failed" in logged(fleet), timeout_s=30, what="the time-out is told")
    assert SECRET not in logged(fleet)


def _health_s(one: Sidecar) -> float:
    began = time.perf_counter()
    assert one.health()[0] == 200
    return time.perf_counter() - began


# -- five messengers in this process, whose clock runs faster --------------------------------------------------------


SPEED = 15.0
"""A minute of quiet is four seconds."""


def clock() -> float:
    return time.monotonic() * SPEED


class Messengers:
    """Five messengers with a Redis client each, sharing receivers' addresses and nothing else."""

    def __init__(self, redis_url: str, told: Told, directory: Path, urls: list[str]) -> None:
        settings = load({}, {"ARBITER_REDIS_URL": redis_url, "ARBITER_INSTANCE": "a"})
        self.buckets = [fleet_budget(settings, [(one.name, one.store) for one in servers(settings)]) for _ in range(5)]
        given = told.settings(directory)
        self.made = [self._made(f"n{number}", bucket, given, urls) for number, bucket in enumerate(self.buckets)]

    def _made(self, name: str, bucket: object, given: dict[str, Setting], urls: list[str]) -> Messenger:
        rng = random.Random(name)
        courses = partial(Cascade, rng=rng, clock=time.monotonic)
        known = [
            receivers.webhook(urls, "", courses, posting.post),
            receivers.slack(str(given["slack_url_file"]), courses, posting.post),
            receivers.pagerduty([str(given["pagerduty_url"])], str(given["pagerduty_key_file"]), courses, posting.post),
            receivers.alertmanager([str(given["alertmanager_url"])], courses, posting.post),
        ]
        return Messenger(
            Occasions(name, honour_s=300.0),
            [Outbox(one, clock=time.monotonic, rng=rng, told=lambda _: None) for one in known],
            bucket,  # type: ignore[arg-type]  # one whole budget each
            Watch(),
            Context("web", "prod", name, runbook="https://wiki/runbooks.md"),
            clock=clock,
            wall=time.time,
            rng=rng,
            on_failure=_fail,
        )

    async def beats(self, fleet: Fleet) -> None:
        for messenger in self.made:
            messenger.beaten(fleet)
            await asyncio.sleep(0.05)


def _fail(error: Exception) -> None:
    raise AssertionError from error


async def test_incident_is_told_from_its_beginning_to_its_end(
    told: Told, run_dir: Path, redis_server: RedisServer
) -> None:
    with listening.webhook() as broken:
        broken.answer = 500
        crew = Messengers(redis_server.url, told, run_dir, [broken.url, told.webhook.url])
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one.run()) for one in crew.made]
            await _incident(crew, told)
            for task in tasks:
                task.cancel()
        for bucket in crew.buckets:
            await bucket.aclose()
    assert told.refused() == []
    assert [event["event_action"] for event in told.pagerduty.accepted] == ["trigger", "trigger", "resolve"]
    assert len({event["dedup_key"] for event in told.pagerduty.accepted}) == 1
    assert len(told.slack.accepted) == 5


async def _incident(crew: Messengers, told: Told) -> None:
    """A hold is set in the middle of it, which nobody is called for."""
    manager = told.alertmanager
    await crew.beats(Fleet(5))
    await asyncio.sleep(1.1)

    async def beat_until(fleet: Fleet, wanted: dict[str, str], what: str) -> None:
        """Sidecars go on to beat, or a minute without a word of it would be the end of the incident."""

        async def is_so() -> bool:
            await crew.beats(fleet)
            return firing(manager) == wanted

        await eventually(is_so, timeout_s=30, what=what)

    paused = Fleet(5, suspect=2, trials=(CauseTrial("redis", 1, 0, 600.0, 1),))
    await beat_until(paused, {"paused": "warning"}, "the alert fires")
    hold = Hold("ann <ann@example.org>", "look & see", time.time() + 60)
    shared = replace(paused, suspect=4, cause="redis", hold=hold)
    await beat_until(shared, {"paused_shared": "critical", "hold": "info"}, "the louder alert fires alone")
    await beat_until(Fleet(5), {}, "all alerts are resolved")
    await eventually(lambda: len(told.webhook.accepted) == 5, timeout_s=30, what="the second address has it all")
    await eventually(lambda: len(told.slack.accepted) == 5, timeout_s=30, what="and so has Slack")
    await eventually(lambda: len(told.pagerduty.accepted) == 3, timeout_s=30, what="and so has PagerDuty")
    assert sorted(told.words()) == [
        ("hold", "firing"),
        ("hold", "recovered"),
        ("paused", "firing"),
        ("paused_shared", "firing"),
        ("paused_shared", "recovered"),
    ]
