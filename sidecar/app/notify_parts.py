"""Builds the messenger from the settings, and tells metrics and log what becomes of its messages.

Nothing of it is imported unless a receiver is set: aiohttp's client not even before the first message.
"""

from __future__ import annotations

import asyncio
import logging
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from sidecar.app import budget_parts
from sidecar.core.life.delays import honour_s

if TYPE_CHECKING:
    from sidecar.config.settings import Settings
    from sidecar.notify.message import Context, Message
    from sidecar.notify.messenger import Bucket, Messenger
    from sidecar.notify.outbox import Posted
    from sidecar.notify.receivers import Receiver
    from sidecar.telemetry.observers import Observers

BEATS: Final = 3
TEMPLATE_MOST: Final = 64 << 10
EXIT_USAGE: Final = 2

_logger: Final = logging.getLogger("sidecar")


def messenger(settings: Settings, held: Bucket, told: Observers) -> Messenger | None:
    """Who tells people, if the settings name anybody to tell; its metrics are registered, its observers are not."""
    if not is_wanted(settings):
        return None
    from sidecar.notify.episodes import QUIET_S, Occasions  # noqa: PLC0415 - as above
    from sidecar.notify.messenger import Messenger  # noqa: PLC0415 - as the head says
    from sidecar.notify.outbox import Outbox  # noqa: PLC0415 - as above
    from sidecar.notify.watch import Watch  # noqa: PLC0415 - as above

    rng = random.Random()  # noqa: S311 - it spreads timers, it guards nothing
    tally = Tally(told)
    capacity = budget_parts.known_capacity(settings)
    made = Messenger(
        Occasions(
            settings.instance,
            quiet_s=max(QUIET_S, BEATS * settings.beat_interval),
            honour_s=honour_s(settings.drain),
        ),
        [Outbox(one, clock=time.monotonic, rng=rng, told=tally.told) for one in receivers(settings)],
        held,
        Watch(scrapes=bool(settings.scrape_url)),
        _context(settings),
        clock=time.monotonic,
        wall=time.time,
        rng=rng,
        on_failure=partial(told.failed, "message"),
        capacity=int(capacity) if capacity == capacity else 0,  # noqa: PLR0124 - what is not a number is not itself
    )
    tally.waiting = lambda: made.waiting
    told.metrics.registry.register(tally)
    return made


def is_wanted(settings: Settings) -> bool:
    """Whether there is anybody to tell."""
    files = (settings.webhook_url_file, settings.slack_url_file, settings.pagerduty_key_file)
    return settings.messages == "on" and any((settings.webhook_url, settings.alertmanager_url, *files))


def problems(settings: Settings) -> list[str]:
    """Say what is wrong with the template, as ``check-config`` and the start have it."""
    if not settings.webhook_template:
        return []
    from sidecar.notify.payloads import template_problem  # noqa: PLC0415 - as the head says

    try:
        problem = template_problem(_template(settings))
    except (OSError, UnicodeDecodeError) as error:
        problem = f"cannot be read: {error.strerror if isinstance(error, OSError) else 'not UTF-8'}"
    return [f"ARBITER_WEBHOOK_TEMPLATE {problem}"] if problem else []


def receivers(settings: Settings) -> list[Receiver]:
    """Everybody that is to be told."""
    from sidecar.cascade.fallback import Cascade  # noqa: PLC0415 - as above
    from sidecar.notify import receivers as known  # noqa: PLC0415 - as the head says
    from sidecar.notify.posting import post  # noqa: PLC0415 - as above

    def courses(nodes: object) -> Cascade[int]:
        return Cascade(nodes, random.Random(), time.monotonic)  # type: ignore[arg-type]  # noqa: S311 - it orders addresses, it guards nothing

    made = []
    if places := _urls(settings.webhook_url) or settings.webhook_url_file:
        made.append(known.webhook(places, _usable_template(settings), courses, post))
    if settings.slack_url_file:
        made.append(known.slack(settings.slack_url_file, courses, post))
    if settings.pagerduty_key_file:
        made.append(known.pagerduty(_urls(settings.pagerduty_url), settings.pagerduty_key_file, courses, post))
    if urls := _urls(settings.alertmanager_url):
        made.append(known.alertmanager(urls, courses, post))
    return made


def test_message(settings: Settings) -> int:
    """Send a test and its end to every receiver and print what came of it: 0 if all took it, 2 if there is none."""
    if not is_wanted(settings):
        sys.stderr.write("health-arbiter: nobody is told: set ARBITER_WEBHOOK_URL, ARBITER_SLACK_URL_FILE, ...\n")
        return EXIT_USAGE
    if wrong := problems(settings):
        sys.stderr.writelines(f"health-arbiter: {problem}\n" for problem in wrong)
        return EXIT_USAGE
    return asyncio.run(_test(settings))


test_message.__test__ = False  # type: ignore[attr-defined]  # pytest takes it for one of its own


async def _test(settings: Settings) -> int:
    from sidecar.notify.posting import UndeliveredError  # noqa: PLC0415 - as the head says

    exit_code = 0
    for receiver in receivers(settings):
        try:
            for message in _test_messages(_context(settings)):
                hosts = await receiver.send(message)
        except UndeliveredError as error:
            sys.stdout.write(f"{receiver.name}: not sent: {error}\n")
            exit_code = 1
        else:
            sys.stdout.write(f"{receiver.name}: sent to {hosts}\n")
    return exit_code


def _test_messages(context: Context) -> Iterator[Message]:
    from sidecar.notify.episodes import Occasion  # noqa: PLC0415 - as above
    from sidecar.notify.message import Message  # noqa: PLC0415 - as the head says
    from sidecar.notify.rules import Severity  # noqa: PLC0415 - as above

    now = time.time()
    sentence = "This is a test of the messages of health-arbiter; nothing has happened."
    for is_over in (False, True):
        occasion = Occasion("test", "test", Severity.WARNING, sentence, 0.0, is_over=is_over)
        yield Message(occasion, context, now, time.time())


class Tally:
    """Counts what becomes of messages, for the metrics, and logs it: the host at most, never an address."""

    def __init__(self, told: Observers) -> None:
        self._log = told.log
        self._counts: Counter[tuple[str, str]] = Counter()
        self.waiting: Callable[[], int] = lambda: 0

    def told(self, posted: Posted) -> None:
        """Take in what became of a message."""
        self._counts[posted.receiver, posted.outcome] += 1
        fields: dict[str, object] = {"receiver": posted.receiver, "word": posted.message.occasion.word}
        fields |= {"status": posted.message.status, "detail": posted.detail}
        text = f"message {posted.outcome}"
        if posted.outcome == "sent":
            key = f"{posted.receiver} {posted.message.occasion.word} {posted.message.status}"
            if not posted.is_repeat:
                self._log.sampled(key, logging.INFO, text, fields)
        else:
            self._log.sampled(f"{posted.receiver} {posted.detail}", logging.WARNING, text, fields)

    def collect(self) -> Iterator[Metric]:
        """Give the metrics."""
        sent = CounterMetricFamily(
            "arbiter_messages",
            "Messages for people, and attempts, by receiver and outcome.",
            labels=["receiver", "outcome"],
        )
        for (receiver, outcome), count in sorted(self._counts.items()):
            sent.add_metric([receiver, outcome], count)
        yield sent
        yield GaugeMetricFamily("arbiter_messages_waiting", "Messages that wait to be sent.", value=self.waiting())


def _context(settings: Settings) -> Context:
    from sidecar.notify.message import Context  # noqa: PLC0415 - as the head says

    return Context(
        settings.service,
        settings.namespace,
        settings.instance,
        settings.mode,
        settings.runbook_url,
        settings.page_url,
    )


def _urls(text: str) -> list[str]:
    return list(dict.fromkeys(filter(None, map(str.strip, text.split(",")))))


def _template(settings: Settings) -> str:
    with Path(settings.webhook_template).open(encoding="utf-8") as file:
        return file.read(TEMPLATE_MOST)


def _usable_template(settings: Settings) -> str:
    """Return the template; what has become unusable since it was checked gives way to the whole of the message."""
    if not settings.webhook_template or (wrong := problems(settings)):
        for problem in wrong if settings.webhook_template else ():
            _logger.error(problem)
        return ""
    return _template(settings)
