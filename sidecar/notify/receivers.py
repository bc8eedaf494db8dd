"""Those who are told: each has its addresses, its secret, and its way to write a message.

A secret is read from its file when a message is sent, so that a new one needs no restart and none stays in memory.
Several addresses are nodes of a ``Cascade``: one of them is enough, except where each of them has to know.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from sidecar.cascade.fallback import Cascade
from sidecar.notify import payloads
from sidecar.notify.episodes import Occasion
from sidecar.notify.message import Message
from sidecar.notify.posting import UndeliveredError
from sidecar.notify.rules import LEVELS, Severity

Post = Callable[[str, bytes], Awaitable[None]]
Courses = Callable[[Sequence[int]], "Cascade[int]"]
"""Makes the cascade over so many addresses, by number: what is tried is logged, and an address may be a secret."""

REPEAT_S: Final = 60.0
LASTS_S: Final = 4 * REPEAT_S
"""How long an alert lasts that is not sent again; Prometheus, too, lets four repeats pass."""

_SECRET_MOST: Final = 4096


@dataclass(frozen=True)
class Receiver:
    """One who is told. ``addresses`` returns URLs, ``cascade`` one over so many, and ``write`` the body for one.

    ``reaches_all``: not one of the addresses but each of them has to know. ``repeats``: what lasts is sent every
    ``REPEAT_S``. ``quietest`` says from which severity on it wants to hear of anything.
    """

    name: str
    addresses: Callable[[], Sequence[str]]
    write: Callable[[Message], Any]
    cascade: Callable[[int], Cascade[int]]
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
        cascade = self.cascade(len(addresses))

        async def call(node: int) -> str:
            await self.post(addresses[node], body)
            return urlsplit(addresses[node]).hostname or ""

        if not self.reaches_all:
            walk = await cascade.walk(call)
            if walk.settled:
                return walk.result()
            raise _undelivered(list(walk.errors.values()))
        # An Alertmanager does not pass alerts on to its peers.
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
    lines = _lines(path)
    if len(lines) != 1:
        raise UndeliveredError("secret file: has to hold one line")
    return lines[0]


def secret_urls(path: str) -> list[str]:
    """Read the URLs of a file, one a line. Raises OSError, and UndeliveredError if there are none or other lines."""
    urls = list(dict.fromkeys(_lines(path)))
    if not urls or not all(url.lower().startswith(("http://", "https://")) for url in urls):
        raise UndeliveredError("secret file: has to hold URLs, one a line")
    return urls


def _lines(path: str) -> list[str]:
    """The lines that are not empty; of what is too long none, for half a secret is of no use to anybody."""
    with Path(path).open(encoding="utf-8") as file:
        text = file.read(_SECRET_MOST + 1)
    return [] if len(text) > _SECRET_MOST else list(filter(None, map(str.strip, text.splitlines())))


def _renewed(courses: Courses) -> Callable[[int], Cascade[int]]:
    """The cascade over so many addresses: what it has learned lasts as long as they are as many."""
    return lru_cache(maxsize=1)(lambda count: courses(range(count)))


def webhook(urls: Sequence[str] | str, template: str, courses: Courses, post: Post) -> Receiver:
    """Return who is told in JSON, at these URLs or at those in a file, by a template if that is not empty."""
    return Receiver(
        "webhook",
        partial(secret_urls, urls) if isinstance(urls, str) else partial(list, urls),
        (lambda message: payloads.templated(template, message)) if template else payloads.webhook,
        _renewed(courses),
        post,
    )


def slack(path: str, courses: Courses, post: Post) -> Receiver:
    """Return Slack, whose address is the secret."""
    return Receiver("slack", lambda: [secret(path)], payloads.slack, _renewed(courses), post)


def pagerduty(urls: Sequence[str], path: str, courses: Courses, post: Post) -> Receiver:
    """Return PagerDuty, which nobody wants to be called by for an information."""
    return Receiver(
        "pagerduty",
        lambda: urls,
        lambda message: payloads.pagerduty(message, secret(path)),
        _renewed(courses),
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
        _renewed(courses),
        post,
        reaches_all=True,
        repeats=True,
    )
