"""The receivers of messages: each has its addresses, its secret, and its payload.

A secret is read from its file for each message, so a new one needs no restart and none stays in memory. Several
addresses are the nodes of a ``Cascade``: one of them is enough, except for Alertmanager, where each needs the message.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from sidecar.cascade.fallback import Cascade
from sidecar.notify import payloads, posting
from sidecar.notify.episodes import Notification
from sidecar.notify.message import Message
from sidecar.notify.posting import UndeliveredError
from sidecar.notify.rules import LEVELS, Severity

REPEAT_S: Final = 60.0
LASTS_S: Final = 4 * REPEAT_S
"""How long an alert lasts that is not sent again; Prometheus also lets four repeats pass."""

_MAX_SECRET: Final = 4096


def _cascades() -> Callable[[int], Cascade[int]]:
    """Return a function from the number of addresses to their cascade. Its nodes are numbers: addresses may be secret.

    With another number of addresses the cascade starts afresh.
    """
    return lru_cache(maxsize=1)(lambda count: Cascade(range(count), random.Random(), time.monotonic))  # noqa: S311 - it orders addresses


@dataclass(frozen=True)
class Receiver:
    """One receiver. ``addresses`` returns its URLs, and ``write`` the body of a message.

    ``reaches_all``: every address gets the message, not only one. ``repeats``: it gets ongoing conditions again every
    ``REPEAT_S``. ``min_severity``: the lowest severity that it gets.
    """

    name: str
    addresses: Callable[[], Sequence[str]]
    write: Callable[[Message], Any]
    reaches_all: bool = False
    repeats: bool = False
    min_severity: Severity = Severity.INFO
    post: Callable[[str, bytes], Awaitable[None]] = posting.post
    cascade: Callable[[int], Cascade[int]] = field(default_factory=_cascades)

    def wants(self, notification: Notification) -> bool:
        """Whether the notification is severe enough; for an end, whether its episode may have been severe enough."""
        order = list(Severity)
        _, highest = LEVELS[notification.topic][-1]
        severity = highest if notification.is_over else notification.severity
        return order.index(severity) >= order.index(self.min_severity)

    async def send(self, message: Message) -> str:
        """Deliver once; return the names of the hosts that accepted it. Raises UndeliveredError."""
        addresses, body = await asyncio.to_thread(self._prepare, message)
        cascade = self.cascade(len(addresses))

        async def call(node: int) -> str:
            await self.post(addresses[node], body)
            return urlsplit(addresses[node]).hostname or ""

        if not self.reaches_all:
            walk = await cascade.walk(call)
            if walk.settled:
                return walk.result()
            raise _undelivered(list(walk.errors.values()))
        # Alertmanagers do not pass alerts on to their peers.
        results = await asyncio.gather(
            *(cascade.attempt(node, call) for node in range(len(addresses))), return_exceptions=True
        )
        if hosts := [result for result in results if isinstance(result, str)]:
            return ",".join(hosts)
        raise _undelivered([error for error in results if isinstance(error, Exception)])

    def _prepare(self, message: Message) -> tuple[Sequence[str], bytes]:
        try:
            body = self.write(message)
            return self.addresses(), (body if isinstance(body, str) else json.dumps(body)).encode()
        except OSError as error:
            raise UndeliveredError(f"secret file: {error.strerror}") from None
        except UnicodeDecodeError:
            raise UndeliveredError("secret file: not UTF-8") from None


def _undelivered(errors: Sequence[Exception]) -> UndeliveredError:
    """Combine the failures of all addresses: final only if each of them is."""
    known = [error for error in errors if isinstance(error, UndeliveredError)]
    words = dict.fromkeys("timeout" if isinstance(error, TimeoutError) else str(error) for error in errors)
    return UndeliveredError(
        ", ".join(words),
        is_final=len(known) == len(errors) and all(error.is_final for error in known),
        retry_after_s=min((error.retry_after_s for error in known), default=0.0),
    )


def secret(path: str) -> str:
    """Read a file of one line. Raises OSError, and UndeliveredError for any other content."""
    lines = _lines(path)
    if len(lines) != 1:
        raise UndeliveredError("secret file: has to hold one line")
    return lines[0]


def secret_urls(path: str) -> list[str]:
    """Read a file of URLs, one per line. Raises OSError, and UndeliveredError for any other content."""
    urls = list(dict.fromkeys(_lines(path)))
    if not urls or not all(url.lower().startswith(("http://", "https://")) for url in urls):
        raise UndeliveredError("secret file: has to hold URLs, one a line")
    return urls


def _lines(path: str) -> list[str]:
    """Return the lines that are not empty; none of a file that is too long, because half a secret is useless."""
    with Path(path).open(encoding="utf-8") as file:
        text = file.read(_MAX_SECRET + 1)
    return [] if len(text) > _MAX_SECRET else list(filter(None, map(str.strip, text.splitlines())))


def webhook(urls: Sequence[str] | str, template: str) -> Receiver:
    """Return the webhook at these URLs, or at those in a file; ``template`` may be empty."""
    return Receiver(
        "webhook",
        partial(secret_urls, urls) if isinstance(urls, str) else partial(list, urls),
        partial(payloads.templated, template) if template else payloads.webhook,
    )


def slack(path: str) -> Receiver:
    """Return Slack, whose URL is the secret in the file ``path``."""
    return Receiver("slack", lambda: [secret(path)], payloads.slack)


def pagerduty(urls: Sequence[str], path: str) -> Receiver:
    """Return PagerDuty, with the routing key in the file ``path``. Severity ``info`` must not page a person."""
    return Receiver(
        "pagerduty",
        lambda: urls,
        lambda message: payloads.pagerduty(message, secret(path)),
        min_severity=Severity.WARNING,
    )


def alertmanager(urls: Sequence[str]) -> Receiver:
    """Return the Alertmanagers at these base URLs."""
    addresses = [f"{url.rstrip('/')}/api/v2/alerts" for url in urls]
    return Receiver(
        "alertmanager",
        lambda: addresses,
        lambda message: payloads.alertmanager(message, LASTS_S),
        reaches_all=True,
        repeats=True,
    )
