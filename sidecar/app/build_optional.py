"""Builds the parts that few sidecars have: the hook and the action of a cull, the scraper, the messages.

Imported only if one of them is configured: together 0.7 MiB and 15 ms.
"""

from __future__ import annotations

import logging
import os
import random
import shlex
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sidecar.actions.actuator import TIMEOUT_S, Action, ActionResult, Actuator, AskedFile
from sidecar.actions.nomad import missing, nomad_action
from sidecar.actions.program import CommandAction, Hook
from sidecar.client.redaction import redacted
from sidecar.config import syntax
from sidecar.config.addresses import parse_target
from sidecar.config.selectors import parse_selectors
from sidecar.controller.journal import path_of
from sidecar.core.app_reports import Missed, Report, Sample
from sidecar.core.explain.samples import MESSAGE_LIMIT
from sidecar.core.types import Entry
from sidecar.inputs.scrape import Scraper
from sidecar.inputs.series_selection import SeriesSelection
from sidecar.notify.messages import Alert, fields_of
from sidecar.notify.messenger import Delivery, Messenger
from sidecar.notify.webhook import UndeliveredError, Webhook
from sidecar.telemetry.log import logger

if TYPE_CHECKING:
    from sidecar.config.settings import ActionConfig, Config, NotifyConfig
    from sidecar.core.explain.samples import ErrorSample
    from sidecar.store.budget import FleetBudget
    from sidecar.telemetry import Observers
    from sidecar.telemetry.log import Log
    from sidecar.telemetry.metrics import Metrics

HOOK_TIMEOUT_S: Final = 30.0
"""Maximum time of the hook: enough for a dump of the threads, or of a heap."""

SCRAPE_TIMEOUT_S: Final = 2.0
"""Maximum time of a whole scrape; never longer than the interval of scrapes."""

MOST_OF_RESULT: Final = 200
"""Number of characters of an action's result in a message; it may hold the output of a program."""

# -- a cull ------------------------------------------------------------------------------------------------------------


def hook(config: Config, observers: Observers) -> Hook | None:
    """The part that captures evidence before a cull, if there is a program for it."""
    if not config.culling.cull_hook:
        return None
    path = str(Path(config.culling.cull_hook).absolute())  # it runs in another directory
    timeout_s = min(HOOK_TIMEOUT_S, config.judging.error_window / 2)  # or the errors are forgotten before the cull
    return Hook(path, timeout_s, config.identity.service, partial(observers.failed, "hook"))


def actuator(config: Config, metrics: Metrics, observers: Observers, leave: Callable[[], None]) -> Actuator | None:
    """The part that carries out ``ARBITER_ACTION``; None if it is the failing check, which needs none.

    ``leave`` ends this process, for the action ``exit``.
    """
    name, own, directory = config.action.action, config.identity, config.state_directory
    if name == "check":
        return None
    text = "Actions that had a container restarted, or failed to; only with ARBITER_ACTION."
    actions = metrics.counter("arbiter_actions", text, {"action": [name], "outcome": ["done", "failed"]})

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

    built = Actuator(
        name,
        action(config.action, leave, os.environ, {"ARBITER_SERVICE": own.service, "ARBITER_INSTANCE": own.instance}),
        wall=time.time,
        on_result=observe,
        asked=AskedFile(path_of(directory, own.app).with_suffix(".asked")) if directory else None,
        jitter=random.random,
        missing=lambda: missing(name, os.environ),
        on_missing=logger.warning,
    )
    observers.steps.append(built.notice)
    return built


def action(
    config: ActionConfig, leave: Callable[[], None], environ: Mapping[str, str], facts: Mapping[str, str]
) -> Action:
    """The action of the settings. A command gets ``facts`` in its environment."""
    if config.action == "exit":
        return partial(_leave, leave)
    if config.action == "command":
        # The time of the action ends the program first, so that its result says what the program printed.
        return CommandAction(shlex.split(config.action_command), TIMEOUT_S * 0.9, facts)
    return nomad_action(config.action, config.nomad_task, environ)


async def _leave(leave: Callable[[], None]) -> str:
    leave()
    return "the sidecar leaves"


# -- the scraper -------------------------------------------------------------------------------------------------------


def scraper(config: Config, offer: Callable[[Sequence[Report]], bool], observers: Observers) -> Scraper:
    """The scraper, which passes its samples to ``offer`` and all results to the observers.

    If the last good scrape is older than the window, the counts since then may be too old to count now: they are
    left out.
    """
    app, judging = config.app, config.judging
    scraped_at = time.monotonic()

    def take(scraped: Sample | Missed) -> None:
        nonlocal scraped_at
        observers.scrape(scraped)
        if isinstance(scraped, Missed):
            return
        gap_s, scraped_at = time.monotonic() - scraped_at, time.monotonic()
        offer([scraped if gap_s <= judging.error_window else scraped._replace(errors={}, requests=0)])

    return Scraper(
        parse_target(app.scrape_url),
        SeriesSelection(
            parse_selectors(app.scrape_errors),
            parse_selectors(app.scrape_requests),
            parse_selectors(app.scrape_in_flight),
        ),
        interval_s=judging.check_interval,
        timeout_s=min(SCRAPE_TIMEOUT_S, judging.check_interval),
        take=take,
        on_failure=partial(observers.failed, "listener"),
        on_advice=logger.info,
        rng=_rng(),
    )


def _rng() -> random.Random:
    return random.Random()  # noqa: S311 - it spreads timers, it guards nothing


# -- the messages ------------------------------------------------------------------------------------------------------


def messenger(
    config: Config,
    budget: FleetBudget,
    metrics: Metrics,
    observers: Observers,
    log: Log,
    *,
    samples: Callable[[], Iterable[ErrorSample]],
) -> Messenger:
    """The messenger, which observes. ``samples``: the errors of the app."""
    built = Messenger(
        webhook(config.notify),
        budget,
        config.identity,
        config.notify.runbook_url,
        rng=_rng(),
        sample=partial(_sample, samples),
        observe=deliveries(metrics, log),
        on_failure=partial(observers.failed, "message"),
    )
    metrics.gauge("arbiter_messages_waiting", "Messages that wait to be sent.", partial(len, built))
    observers.steps.append(built.notice)
    observers.beats.append(built.beaten)
    observers.actions.append(
        lambda entry: built.acted(entry._replace(detail=redacted(entry.detail, MOST_OF_RESULT)))  # what a program wrote
    )
    return built


def deliveries(metrics: Metrics, log: Log) -> Callable[[Delivery], None]:
    """Return what counts the result of each attempt, and logs it: with the host at most, never with an address."""
    attempts = metrics.counter("arbiter_messages", "Messages and attempts by outcome.", {"outcome": []})

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
    return Webhook(config.webhook_url, template)


async def send_test_message(config: Config) -> tuple[str, bool]:
    """Send a test; return the result in words, and whether it was sent."""
    sentence = "This is a test of the messages of health-arbiter; nothing has happened."
    fields = fields_of(Alert("test", "test", sentence), config.identity, config.notify.runbook_url, time.time())
    try:
        return f"sent to {await webhook(config.notify).send(fields)}", True
    except UndeliveredError as error:
        return f"not sent: {error}", False


def _sample(samples: Callable[[], Iterable[ErrorSample]], cause: str) -> str:
    """The newest error of the app for this cause, redacted; empty if there is none."""
    of_cause = (sample for sample in samples() if sample.kind == cause)
    newest = max(of_cause, key=lambda sample: sample.last, default=None)
    return "" if newest is None else f"{newest.errors} x {newest.kind}: {redacted(newest.message, MESSAGE_LIMIT)}"
