"""Builds the parts that a sidecar has only if it is configured so: port, datagrams, scraper, hook, action, messages."""

from __future__ import annotations

import logging
import os
import random
import shlex
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, Counter, Gauge

from sidecar.actions.actuator import TIMEOUT_S, Action, ActionResult, Actuator
from sidecar.actions.asked_file import AskedFile
from sidecar.actions.nomad import missing, nomad_action
from sidecar.actions.program import CommandAction, Hook
from sidecar.client.redaction import redacted
from sidecar.config import addresses, webhook_template
from sidecar.config.selectors import parse_selectors
from sidecar.config.urls import parse_target
from sidecar.controller.journal import path_of
from sidecar.core.explain.samples import MESSAGE_LIMIT
from sidecar.core.types import Entry, Report, Sample, State
from sidecar.inputs.app_port import AppPort
from sidecar.inputs.datagram import Datagrams
from sidecar.inputs.scrape import Scraper
from sidecar.inputs.series_selection import SeriesSelection
from sidecar.net.sockets import naming_setting
from sidecar.notify.alerts import Alert
from sidecar.notify.messenger import Messenger, fields_of
from sidecar.notify.webhook import Delivery, Outbox, UndeliveredError, Webhook
from sidecar.telemetry.log import logger
from sidecar.telemetry.readings import DatagramReadings

if TYPE_CHECKING:
    from sidecar.config.settings import ActionConfig, Config, JudgingConfig, NotifyConfig, ScrapeConfig, StatsdConfig
    from sidecar.controller.container_controller import Controller
    from sidecar.core.explain.samples import ErrorSample
    from sidecar.notify.messenger import FleetRecords
    from sidecar.telemetry.log import Log
    from sidecar.telemetry.observers import Observers

Offer = Callable[[Sequence[Report]], bool]
"""Takes reports; False if too many are waiting."""

SCRAPE_TIMEOUT_S: Final = 2.0
"""Maximum time of a whole scrape; never longer than the interval of scrapes."""

HOOK_TIMEOUT_S: Final = 30.0
"""Maximum time of the hook: enough for a dump of the threads, or of a heap."""

MOST_OF_RESULT: Final = 200
"""Number of characters of an action's result in a message; it may hold the output of a program."""


# -- inputs -----------------------------------------------------------------------------------------------------------


def app_port(
    config: Config, controller: Controller, offer: Offer, observers: Observers, registry: CollectorRegistry
) -> AppPort:
    """Build the watch of ``ARBITER_APP_PORT``, and the metric that shows what it sees."""
    at = config.app.app_port
    watch = AppPort(
        addresses.port_of(at),
        offer=offer,
        is_well=lambda: controller.snapshot.container.state is State.UP,
        on_failure=partial(observers.failed, "app_port"),
        on_absent=lambda: logger.warning(nobody_listens(at)),
        grace_s=config.judging.grace,
        known=controller.ids.socket,
    )
    show_listening(registry, lambda: watch.is_listening)
    return watch


def nobody_listens(at: str) -> str:
    """The sentence for a person about the value of ``ARBITER_APP_PORT``."""
    return f"nobody listens at ARBITER_APP_PORT {at}: a restart of the app in place is not noticed"


def show_listening(registry: CollectorRegistry, is_listening: Callable[[], bool]) -> None:
    """Add the metric that shows what the last look at the port has seen."""
    help_text = "Whether something listens at the app's port; only with ARBITER_APP_PORT."
    Gauge("arbiter_app_listening", help_text, registry=registry).set_function(lambda: float(is_listening()))


async def open_datagrams(
    config: StatsdConfig, offer: Offer, *, registry: CollectorRegistry, on_failure: Callable[[Exception], None]
) -> Datagrams:
    """Open the sockets for datagrams. Raises ``CannotListenError``."""
    datagrams = Datagrams(offer, on_failure=on_failure, on_advice=logger.warning, prefix=config.statsd_prefix)
    try:
        if config.statsd_listen != addresses.OFF:
            with naming_setting("ARBITER_STATSD_LISTEN", config.statsd_listen):
                await datagrams.open_udp(*addresses.split(config.statsd_listen))
        if config.statsd_socket:
            with naming_setting("ARBITER_STATSD_SOCKET", config.statsd_socket):
                await datagrams.open_unix(config.statsd_socket)
    except BaseException:
        datagrams.close()
        raise
    registry.register(DatagramReadings(lambda: datagrams.counts))
    return datagrams


def scraper(config: ScrapeConfig, judging: JudgingConfig, offer: Offer, observers: Observers) -> Scraper:
    """Build the scraper, which passes its reports to ``offer`` and to the observers.

    If the last good scrape is older than the window, the counts since then may be too old to count now: they are
    left out.
    """
    scraped_at = time.monotonic()

    def dated(report: Report) -> Report:
        nonlocal scraped_at
        observers.scrape(report)
        if not isinstance(report, Sample):
            return report
        gap_s, scraped_at = time.monotonic() - scraped_at, time.monotonic()
        return report if gap_s <= judging.error_window else replace(report, errors={}, requests=0)

    return Scraper(
        parse_target(config.scrape_url),
        SeriesSelection(
            parse_selectors(config.scrape_errors),
            parse_selectors(config.scrape_requests),
            parse_selectors(config.scrape_in_flight),
        ),
        interval_s=judging.check_interval,
        timeout_s=min(SCRAPE_TIMEOUT_S, judging.check_interval),
        offer=lambda reports: offer([dated(report) for report in reports]),
        on_failure=partial(observers.failed, "listener"),
        on_advice=logger.warning,
        rng=random.Random(),  # noqa: S311 - it spreads timers, it guards nothing
    )


# -- a cull -----------------------------------------------------------------------------------------------------------


def hook(config: Config, observers: Observers) -> Hook | None:
    """Build the part that captures evidence before a cull, if there is a program for it."""
    if not config.hook.cull_hook:
        return None
    path = str(Path(config.hook.cull_hook).absolute())  # it runs in another directory
    timeout_s = min(HOOK_TIMEOUT_S, config.judging.error_window / 2)  # or the errors are forgotten before the cull
    return Hook(path, timeout_s, config.identity.service, partial(observers.failed, "hook"))


def actuator(
    config: Config, registry: CollectorRegistry, observers: Observers, leave: Callable[[], None]
) -> Actuator | None:
    """Build the part that carries out ``ARBITER_ACTION``; None if it is the failing check, which needs none.

    ``leave`` ends this process, for the action ``exit``.
    """
    name, own = config.action.action, config.identity
    if name == "check":
        return None
    actions = counter(registry, name)

    def observe(result: ActionResult) -> None:
        outcome = "failed" if result.failed else "done"
        actions.labels(result.action, outcome).inc()
        took_s = round(result.took_s, 3)
        fields = {"action": result.action, "detail": result.sentence, "took_s": took_s}
        log = logger.error if result.failed else logger.warning
        log("the action has failed" if result.failed else "the action is done", extra={"fields": fields})
        what = "action_failed" if result.failed else "acted"
        entry = Entry(what, result.at, own.instance, reason=result.action, seconds=took_s, detail=result.sentence)
        observers.acted(entry)

    facts = {"ARBITER_SERVICE": own.service, "ARBITER_INSTANCE": own.instance}
    act = action(config.action, leave, environ=os.environ, facts=facts)
    directory = config.state_directory
    built = Actuator(
        name,
        act,
        wall=time.time,
        on_result=observe,
        asked=AskedFile(path_of(directory, own.app).with_suffix(".asked")) if directory else None,
        jitter=random.random,
        missing=lambda: missing(name, os.environ),
        on_missing=logger.warning,
    )
    observers.steps.append(built.notice)
    return built


def counter(registry: CollectorRegistry, action: str) -> Counter:
    """Add the metric of the actions, with both outcomes of ``action`` at 0."""
    help_text = "Actions that had a container restarted, or failed to; only with ARBITER_ACTION."
    actions = Counter("arbiter_actions", help_text, ["action", "outcome"], registry=registry)
    for outcome in ("done", "failed"):
        actions.labels(action, outcome)
    return actions


def action(
    config: ActionConfig, leave: Callable[[], None], *, environ: Mapping[str, str], facts: Mapping[str, str]
) -> Action:
    """The action of the settings. A command gets ``facts`` in its environment."""
    if config.action == "exit":
        return partial(_leave, leave)
    if config.action == "command":
        # The time of the action ends the program first, so that its result says what the program printed.
        return CommandAction(shlex.split(config.action_command), TIMEOUT_S * 0.9, facts)
    # The other half is for the answer, which comes when the app has ended.
    return nomad_action(config.action, config.nomad_task, environ)


async def _leave(leave: Callable[[], None]) -> str:
    leave()
    return "the sidecar leaves"


# -- messages ---------------------------------------------------------------------------------------------------------


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
        template = webhook_template.read(config.webhook_template) if config.webhook_template else ""
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
