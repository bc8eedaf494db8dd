"""Builds the messages to people: the webhook, its outbox and the messenger, with metrics and log of the deliveries.

Imported only if there is a webhook, because it costs 14 ms.
"""

from __future__ import annotations

import logging
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from sidecar.config import webhook_template
from sidecar.core.explain.samples import MESSAGE_LIMIT
from sidecar.notify.alerts import Alert
from sidecar.notify.messenger import Context, Messenger, fields_of
from sidecar.notify.webhook import Delivery, Outbox, UndeliveredError, Webhook
from sidecar.telemetry.log import logger

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from sidecar.config.settings import Config, NotifyConfig
    from sidecar.core.explain.samples import ErrorSample
    from sidecar.core.types import Entry
    from sidecar.notify.messenger import FleetRecords
    from sidecar.telemetry.log import Log
    from sidecar.telemetry.observers import Observers

MOST_OF_RESULT: Final = 200
"""Number of characters of an action's result in a message; it may hold the output of a program."""


def messenger(
    config: Config,
    records: FleetRecords,
    observers: Observers,
    registry: CollectorRegistry,
    log: Log,
    *,
    samples: Callable[[], Iterable[ErrorSample]] = tuple,
) -> Messenger:
    """Build the messenger, and register it as an observer, and its metrics. ``samples``: the errors of the app."""
    rng = random.Random()  # noqa: S311 - it spreads timers, it guards nothing
    deliveries = DeliveryTelemetry(log)
    outbox = Outbox(webhook(config.notify), clock=time.monotonic, rng=rng, observe=deliveries.observe)
    deliveries.waiting = partial(len, outbox)
    built = Messenger(
        outbox,
        records,
        _context(config),
        clock=time.monotonic,
        wall=time.time,
        rng=rng,
        sample=partial(_sample, samples),
        on_failure=partial(observers.failed, "message"),
    )
    registry.register(deliveries)
    observers.steps.append(built.notice)
    observers.beats.append(built.beaten)
    observers.actions.append(lambda entry: built.acted(_without_secrets(entry)))
    return built


def webhook(config: NotifyConfig) -> Webhook:
    """The webhook of the settings; without its template if that has become unusable since the start."""
    try:
        template = webhook_template.read(config.webhook_template) if config.webhook_template else ""
    except ValueError as error:
        logger.error("ARBITER_WEBHOOK_TEMPLATE %s", error)
        template = ""
    return Webhook(config.webhook_url, config.webhook_url_file, template)


async def send_test_message(config: Config) -> tuple[str, bool]:
    """Send a test; return the result in words, and whether it was sent."""
    sentence = "This is a test of the messages of health-arbiter; nothing has happened."
    fields = fields_of(Alert("test", "test", sentence), _context(config), time.time())
    try:
        return f"sent to {await webhook(config.notify).send(fields)}", True
    except UndeliveredError as error:
        return f"not sent: {error}", False


def _sample(samples: Callable[[], Iterable[ErrorSample]], cause: str) -> str:
    """The newest error of the app for this cause, redacted; empty if there is none."""
    from sidecar.client.redaction import redacted  # noqa: PLC0415 - its patterns take a while

    newest = max((one for one in samples() if one.kind == cause), key=lambda one: one.last, default=None)
    return "" if newest is None else f"{newest.errors} x {newest.kind}: {redacted(newest.message, MESSAGE_LIMIT)}"


def _without_secrets(entry: Entry) -> Entry:
    """The entry with its detail cut and redacted."""
    from sidecar.client.redaction import redacted  # noqa: PLC0415 - as above

    return entry._replace(detail=redacted(entry.detail, MOST_OF_RESULT))


def _context(config: Config) -> Context:
    own = config.identity
    return Context(
        own.service, own.namespace, own.instance, own.mode, config.notify.runbook_url, config.notify.page_url
    )


class DeliveryTelemetry(Collector):
    """Counts deliveries for the metrics, and logs them: with the host at most, never with an address."""

    def __init__(self, log: Log) -> None:
        self.waiting: Callable[[], int] = lambda: 0
        self._log = log
        self._counts: Counter[str] = Counter()

    def observe(self, delivery: Delivery) -> None:
        """Count and log the result of one attempt."""
        self._counts[delivery.outcome] += 1
        fields = {"word": delivery.word, "detail": delivery.detail}
        is_sent = delivery.outcome == "sent"
        key = f"message {delivery.word}" if is_sent else f"message {delivery.detail}"
        self._log.sampled(key, logging.INFO if is_sent else logging.WARNING, f"message {delivery.outcome}", fields)

    def collect(self) -> Iterator[Metric]:
        """Return the metrics as they are now."""
        sent = CounterMetricFamily("arbiter_messages", "Messages and attempts by outcome.", labels=["outcome"])
        for outcome, count in sorted(self._counts.items()):
            sent.add_metric([outcome], count)
        yield sent
        yield GaugeMetricFamily("arbiter_messages_waiting", "Messages that wait to be sent.", value=self.waiting())
