"""Builds the messages to the webhook; imported only if there is one."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, Counter, Gauge

from sidecar.client.redaction import redacted
from sidecar.config import syntax
from sidecar.core.explain.samples import MESSAGE_LIMIT
from sidecar.notify.alerts import Alert
from sidecar.notify.message import fields_of
from sidecar.notify.messenger import Messenger
from sidecar.notify.webhook import Delivery, Outbox, UndeliveredError, Webhook
from sidecar.telemetry.log import logger

if TYPE_CHECKING:
    from sidecar.config.settings import Config, NotifyConfig
    from sidecar.core.explain.samples import ErrorSample
    from sidecar.notify.messenger import FleetRecords
    from sidecar.telemetry import Observers
    from sidecar.telemetry.log import Log

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
    outbox = Outbox(webhook(config.notify), clock=time.monotonic, rng=rng, observe=deliveries(registry, log))
    waiting = Gauge("arbiter_messages_waiting", "Messages that wait to be sent.", registry=registry)
    waiting.set_function(partial(len, outbox))
    built = Messenger(
        outbox,
        records,
        config.identity,
        config.notify,
        clock=time.monotonic,
        wall=time.time,
        rng=rng,
        sample=partial(_sample, samples),
        on_failure=partial(observers.failed, "message"),
    )
    observers.steps.append(built.notice)
    observers.beats.append(built.beaten)
    observers.actions.append(
        lambda entry: built.acted(entry._replace(detail=redacted(entry.detail, MOST_OF_RESULT)))  # what a program wrote
    )
    return built


def deliveries(registry: CollectorRegistry, log: Log) -> Callable[[Delivery], None]:
    """Return what counts the result of each attempt, and logs it: with the host at most, never with an address."""
    attempts = Counter("arbiter_messages", "Messages and attempts by outcome.", ["outcome"], registry=registry)

    def observe(delivery: Delivery) -> None:
        attempts.labels(delivery.outcome).inc()
        is_sent = delivery.outcome == "sent"
        key = f"message {delivery.word if is_sent else delivery.detail}"
        fields = {"word": delivery.word, "detail": delivery.detail}
        log.sampled(key, logging.INFO if is_sent else logging.WARNING, f"message {delivery.outcome}", fields)

    return observe


def webhook(config: NotifyConfig) -> Webhook:
    """The webhook of the settings; without its template if that has become unusable since the start."""
    try:
        template = syntax.read_template(config.webhook_template) if config.webhook_template else ""
    except ValueError as error:
        logger.error("ARBITER_WEBHOOK_TEMPLATE %s", error)
        template = ""
    return Webhook(config.webhook_url, config.webhook_url_file, template)


async def send_test_message(config: Config) -> tuple[str, bool]:
    """Send a test; return the result in words, and whether it was sent."""
    sentence = "This is a test of the messages of health-arbiter; nothing has happened."
    fields = fields_of(Alert("test", "test", sentence), config.identity, config.notify, time.time())
    try:
        return f"sent to {await webhook(config.notify).send(fields)}", True
    except UndeliveredError as error:
        return f"not sent: {error}", False


def _sample(samples: Callable[[], Iterable[ErrorSample]], cause: str) -> str:
    """The newest error of the app for this cause, redacted; empty if there is none."""
    of_cause = (sample for sample in samples() if sample.kind == cause)
    newest = max(of_cause, key=lambda sample: sample.last, default=None)
    return "" if newest is None else f"{newest.errors} x {newest.kind}: {redacted(newest.message, MESSAGE_LIMIT)}"
