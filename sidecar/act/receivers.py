"""Those who are told: each has its addresses, its secret, and its way to write a message.

A secret is read from its file when a message is sent, so that a new one needs no restart and none stays in memory.
Several addresses are nodes of a ``Cascade``: one of them is enough, except where each of them has to know.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from sidecar.act import payloads
from sidecar.act.message import Message
from sidecar.act.posting import UndeliveredError
from sidecar.core.cascade import Cascade
from sidecar.core.occasions import Occasion
from sidecar.core.topics import LEVELS, Severity

Post = Callable[[str, bytes], Awaitable[None]]
Courses = Callable[[Sequence[int]], "Cascade[int]"]
"""Makes the cascade over so many addresses, by number: what is tried is logged, and an address may be a secret."""

REPEAT_S: Final = 60.0
LASTS_S: Final = 4 * REPEAT_S
"""How long an alert lasts that is not sent again; Prometheus, too, lets four repeats pass."""

_SECRET_MOST: Final = 4096


@dataclass(frozen=True)
class Receiver:
    """One who is told. ``addresses`` returns as many URLs as the cascade has nodes, and ``write`` the body for one.

    ``reaches_all``: not one of the addresses but each of them has to know. ``repeats``: what lasts is sent every
    ``REPEAT_S``. ``quietest`` says from which severity on it wants to hear of anything.
    """

    name: str
    addresses: Callable[[], Sequence[str]]
    write: Callable[[Message], Any]
    cascade: Cascade[int]
    post: Post
    reaches_all: bool = False
    repeats: bool = False
    quietest: Severity = Severity.INFO

    def wants(self, occasion: Occasion) -> bool:
        """Whether the occasion is loud enough for this receiver; the end of what may have been so always is."""
        order = list(Severity)
        _, loudest = LEVELS[occasion.topic][-1]
        severity = loudest if occasion.is_over else occasion.severity
        return order.index(severity) >= order.index(self.quietest)

    async def send(self, message: Message) -> str:
        """Deliver once, or raise UndeliveredError; the hosts that have it, by their names without port and path."""
        addresses, body = await asyncio.to_thread(self._prepare, message)

        async def call(node: int) -> str:
            await self.post(addresses[node], body)
            return urlsplit(addresses[node]).hostname or ""

        if not self.reaches_all:
            walk = await self.cascade.walk(call)
            if walk.settled:
                return walk.result()
            raise _undelivered(list(walk.errors.values()))
        # An Alertmanager does not pass alerts on to its peers.
        results = await asyncio.gather(
            *(self.cascade.attempt(node, call) for node in range(len(addresses))), return_exceptions=True
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
    """Sum up why nobody took it: there is no hope if none of them has any."""
    known = [error for error in errors if isinstance(error, UndeliveredError)]
    words = dict.fromkeys("timeout" if isinstance(error, TimeoutError) else str(error) for error in errors)
    return UndeliveredError(
        ", ".join(words),
        is_final=len(known) == len(errors) and all(error.is_final for error in known),
        retry_after_s=min((error.retry_after_s for error in known), default=0.0),
    )


def secret(path: str) -> str:
    """Read the one line of a file. Raises OSError, and UndeliveredError if it is empty or not a line."""
    with Path(path).open(encoding="utf-8") as file:
        text = file.read(_SECRET_MOST).strip()
    if not text or "\n" in text:
        raise UndeliveredError("secret file: has to hold one line")
    return text


def webhook(urls: Sequence[str], template: str, courses: Courses, post: Post) -> Receiver:
    """Return who is told in JSON, by a template if that is not empty."""
    return Receiver(
        "webhook",
        lambda: urls,
        (lambda message: payloads.templated(template, message)) if template else payloads.webhook,
        courses(range(len(urls))),
        post,
    )


def slack(path: str, courses: Courses, post: Post) -> Receiver:
    """Return Slack, whose address is the secret."""
    return Receiver("slack", lambda: [secret(path)], payloads.slack, courses(range(1)), post)


def pagerduty(urls: Sequence[str], path: str, courses: Courses, post: Post) -> Receiver:
    """Return PagerDuty, which nobody wants to be called by for an information."""
    return Receiver(
        "pagerduty",
        lambda: urls,
        lambda message: payloads.pagerduty(message, secret(path)),
        courses(range(len(urls))),
        post,
        quietest=Severity.WARNING,
    )


def alertmanager(urls: Sequence[str], courses: Courses, post: Post) -> Receiver:
    """Return the Alertmanagers, each of which has to know."""
    places = [f"{url.rstrip('/')}/api/v2/alerts" for url in urls]
    return Receiver(
        "alertmanager",
        lambda: places,
        lambda message: payloads.alertmanager(message, LASTS_S),
        courses(range(len(places))),
        post,
        reaches_all=True,
        repeats=True,
    )
