"""Builds the messages to people: receivers, their outboxes and the messenger, with metrics and log of the deliveries.

Imported only if there is a receiver, because it costs 14 ms.
"""

from __future__ import annotations

import logging
import math
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from sidecar.app.build_store import known_capacity
from sidecar.config import webhook_template
from sidecar.config.addresses import listed
from sidecar.core.explain.samples import MESSAGE_LIMIT
from sidecar.core.life.delays import honour_s
from sidecar.notify import receivers as known
from sidecar.notify.details import Details
from sidecar.notify.episodes import QUIET_S, Episodes, Notification
from sidecar.notify.message import Context, Message
from sidecar.notify.messenger import Messenger
from sidecar.notify.outbox import Delivery, Outbox
from sidecar.notify.posting import UndeliveredError
from sidecar.notify.rules import Severity
from sidecar.notify.watch import Watch
from sidecar.telemetry.log import logger

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from sidecar.config.slices import Config, NotifyConfig
    from sidecar.core.explain.samples import ErrorSample
    from sidecar.core.types import Entry
    from sidecar.notify.receivers import Receiver
    from sidecar.store.budget import FleetBudget
    from sidecar.telemetry.log import Log
    from sidecar.telemetry.observers import Observers

QUIET_BEATS: Final = 3
MOST_OF_RESULT: Final = 200
"""Number of characters of an action's result in a message; it may hold the output of a program."""


def messenger(
    config: Config,
    budget: FleetBudget,
    observers: Observers,
    registry: CollectorRegistry,
    log: Log,
    *,
    samples: Callable[[], Iterable[ErrorSample]] = tuple,
) -> Messenger:
    """Build the messenger, and register it as an observer, and its metrics. ``samples``: the errors of the app."""
    rng = random.Random()  # noqa: S311 - it spreads timers, it guards nothing
    capacity = known_capacity(config.budget)
    deliveries = DeliveryTelemetry(log)
    built = Messenger(
        Episodes(
            config.identity.instance,
            quiet_s=max(QUIET_S, QUIET_BEATS * config.budget.beat_interval),
            honour_s=honour_s(config.culling.drain),
        ),
        [Outbox(one, clock=time.monotonic, rng=rng, observe=deliveries.observe) for one in receivers(config.notify)],
        budget,
        Watch(scrapes=bool(config.scrape.scrape_url)),
        _context(config),
        clock=time.monotonic,
        wall=time.time,
        rng=rng,
        on_failure=partial(observers.failed, "message"),
        capacity=0 if math.isnan(capacity) else int(capacity),
        details=Details(budget, partial(_sample, samples), time.time),
    )
    deliveries.waiting = lambda: built.waiting
    registry.register(deliveries)
    observers.steps.append(built.notice)
    observers.beats.append(built.beaten)
    observers.actions.append(lambda entry: built.acted(_without_secrets(entry)))
    return built


def _sample(samples: Callable[[], Iterable[ErrorSample]]) -> str:
    """The newest error of the app, redacted; empty if there is none."""
    from sidecar.client.redaction import redacted  # noqa: PLC0415 - its patterns take a while

    newest = max(samples(), key=lambda one: one.last, default=None)
    return "" if newest is None else f"{newest.errors} x {newest.kind}: {redacted(newest.message, MESSAGE_LIMIT)}"


def _without_secrets(entry: Entry) -> Entry:
    """The entry with its detail cut and redacted."""
    from sidecar.client.redaction import redacted  # noqa: PLC0415 - as above

    return entry._replace(detail=redacted(entry.detail, MOST_OF_RESULT))


def receivers(config: NotifyConfig) -> list[Receiver]:
    """Every configured receiver."""
    built = []
    if urls := _urls(config.webhook_url) or config.webhook_url_file:
        built.append(known.webhook(urls, _template(config.webhook_template)))
    if config.slack_url_file:
        built.append(known.slack(config.slack_url_file))
    if config.pagerduty_key_file:
        built.append(known.pagerduty(_urls(config.pagerduty_url), config.pagerduty_key_file))
    if managers := _urls(config.alertmanager_url):
        built.append(known.alertmanager(managers))
    return built


async def send_test_messages(config: Config) -> list[tuple[str, str, bool]]:
    """Send a test and its end to every receiver: its name, the result in words, and whether both were sent."""
    results = []
    for receiver in receivers(config.notify):
        try:
            for message in _test_messages(_context(config)):
                hosts = await receiver.send(message)
        except UndeliveredError as error:
            results.append((receiver.name, f"not sent: {error}", False))
        else:
            results.append((receiver.name, f"sent to {hosts}", True))
    return results


def _test_messages(context: Context) -> Iterator[Message]:
    now = time.time()
    sentence = "This is a test of the messages of health-arbiter; nothing has happened."
    for is_over in (False, True):
        notification = Notification("test", "test", Severity.WARNING, sentence, 0.0, is_over=is_over)
        yield Message(notification, context, now, time.time())


class DeliveryTelemetry(Collector):
    """Counts deliveries for the metrics, and logs them: with the host at most, never with an address."""

    def __init__(self, log: Log) -> None:
        self.waiting: Callable[[], int] = lambda: 0
        self._log = log
        self._counts: Counter[tuple[str, str]] = Counter()

    def observe(self, delivery: Delivery) -> None:
        """Count and log the result of one delivery."""
        self._counts[delivery.receiver, delivery.outcome] += 1
        word, status = delivery.message.notification.word, delivery.message.status
        fields = {"receiver": delivery.receiver, "word": word, "status": status, "detail": delivery.detail}
        text = f"message {delivery.outcome}"
        if delivery.outcome not in ("sent", "superseded"):
            self._log.sampled(f"{delivery.receiver} {delivery.detail}", logging.WARNING, text, fields)
        elif not delivery.is_repeat:
            self._log.sampled(f"{delivery.receiver} {word} {status}", logging.INFO, text, fields)

    def collect(self) -> Iterator[Metric]:
        """Return the metrics as they are now."""
        sent = CounterMetricFamily(
            "arbiter_messages",
            "Messages and attempts by receiver and outcome.",
            labels=["receiver", "outcome"],
        )
        for (receiver, outcome), count in sorted(self._counts.items()):
            sent.add_metric([receiver, outcome], count)
        yield sent
        yield GaugeMetricFamily("arbiter_messages_waiting", "Messages that wait to be sent.", value=self.waiting())


def _context(config: Config) -> Context:
    own = config.identity
    return Context(
        own.service, own.namespace, own.instance, own.mode, config.notify.runbook_url, config.notify.page_url
    )


def _urls(text: str) -> list[str]:
    return list(dict.fromkeys(listed(text)))


def _template(path: str) -> str:
    """The template; ``""``, for all fields, if it has become unusable since the start."""
    try:
        return webhook_template.read(path) if path else ""
    except ValueError as error:
        logger.error("ARBITER_WEBHOOK_TEMPLATE %s", error)
        return ""
