"""The webhook: its JSON, and the queue in which messages wait for it, in order and bounded.

Without a template the JSON is ``{"text": ...}``, which Slack, Mattermost and Teams take as it is. A failure never
contains a part of the URL, because its path is often a secret.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import Callable, Mapping
from random import Random
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from sidecar.config import syntax

TIMEOUT_S: Final = 5.0
MOST_WAITING: Final = 100
GIVE_UP_S: Final = 3600.0
"""The maximum age of a message. What it reports may be what keeps it from being sent."""

FIRST_RETRY_S: Final = 1.0
MAX_RETRY_S: Final = 60.0
_ACCEPTED: Final = range(200, 300)
_FINAL: Final = frozenset({400, 413, 422})
"""Status codes of a receiver that will never accept the message."""

_HEADERS: Final = {"Content-Type": "application/json", "User-Agent": "health-arbiter"}


class UndeliveredError(Exception):
    """A message was not accepted; the text is a machine word. ``is_final``: it never will be."""

    def __init__(self, why: str, *, is_final: bool = False) -> None:
        super().__init__(why)
        self.is_final = is_final


class Delivery(NamedTuple):
    """The outcome of an attempt: ``sent``, ``failed`` (tried again) or ``dropped``. ``detail``: host or cause."""

    outcome: str
    word: str
    detail: str


class Webhook:
    """Posts messages to ``url``."""

    def __init__(self, url: str, template: str) -> None:
        self._url = url
        self._template = template

    async def send(self, fields: Mapping[str, str]) -> str:
        """Post once; return the name of the host. Raises UndeliveredError."""
        try:
            async with asyncio.timeout(TIMEOUT_S):
                status = await _post(self._url, body(self._template, fields).encode())
        except TimeoutError:
            raise UndeliveredError("timeout") from None
        except Exception as error:  # noqa: BLE001 - the client raises many kinds
            raise UndeliveredError(_cause(error)) from None  # the text of the cause may contain the URL
        if status not in _ACCEPTED:
            raise UndeliveredError(f"status {status}", is_final=status in _FINAL)
        return urlsplit(self._url).hostname or ""


class Outbox:
    """The messages that wait, and the task that sends them. ``clock``: monotonic seconds. ``observe``: the outcomes."""

    def __init__(
        self,
        webhook: Webhook,
        *,
        rng: Random,
        observe: Callable[[Delivery], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._webhook = webhook
        self._rng = rng
        self._observe = observe
        self._clock = clock
        self._waiting: asyncio.Queue[tuple[Mapping[str, str], float]] = asyncio.Queue(MOST_WAITING)
        self._is_sending = False

    def __len__(self) -> int:
        return self._waiting.qsize() + self._is_sending

    def put(self, fields: Mapping[str, str]) -> None:
        """Append a message. The oldest is dropped if too many wait."""
        if self._waiting.full():
            oldest, _ = self._waiting.get_nowait()
            self._observe(Delivery("dropped", oldest["word"], "too many wait"))
        self._waiting.put_nowait((fields, self._clock()))

    async def run(self) -> None:
        """Send one message after the other until cancelled."""
        while True:
            fields, put_at = await self._waiting.get()
            self._is_sending = True
            try:
                await self._deliver(fields, put_at)
            finally:
                self._is_sending = False

    async def _deliver(self, fields: Mapping[str, str], put_at: float) -> None:
        delay_s = FIRST_RETRY_S
        while True:
            try:
                host = await self._webhook.send(fields)
            except UndeliveredError as error:
                pause_s = delay_s * self._rng.uniform(0.5, 1.5)
                is_last = error.is_final or self._clock() + pause_s > put_at + GIVE_UP_S
                self._observe(Delivery("dropped" if is_last else "failed", fields["word"], str(error)))
                if is_last:
                    return
            else:
                self._observe(Delivery("sent", fields["word"], host))
                return
            await asyncio.sleep(pause_s)
            delay_s = min(MAX_RETRY_S, 2 * delay_s)


def body(template: str, fields: Mapping[str, str]) -> str:
    """Return the JSON of a message: the template with its fields, or the text alone."""
    return syntax.fill_template(template, fields) if template else json.dumps({"text": fields["text"]})


async def _post(url: str, data: bytes) -> int:
    from aiohttp import ClientSession, DummyCookieJar, TCPConnector  # noqa: PLC0415 - most sidecars send nothing

    is_tls = url.lower().startswith("https:")
    connector = TCPConnector(ssl=await asyncio.to_thread(ssl.create_default_context) if is_tls else False)
    session = ClientSession(connector=connector, cookie_jar=DummyCookieJar(), headers=_HEADERS, trust_env=is_tls)
    # Messages are rare, so no connection is kept. A redirect would receive the secret.
    async with session, session.post(url, data=data, allow_redirects=False) as response:
        return response.status


def _cause(error: Exception) -> str:
    from aiohttp import ClientConnectionError, ClientSSLError, InvalidURL  # noqa: PLC0415 - as above

    if isinstance(error, (ClientSSLError, ssl.SSLError)):
        return "tls"
    if isinstance(error, (ClientConnectionError, OSError)):
        return "connection"
    return "url" if isinstance(error, InvalidURL) else type(error).__name__
