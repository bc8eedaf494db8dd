"""Posts JSON to one URL. Every failure is an ``UndeliveredError`` whose text never contains a part of the URL.

The first message imports aiohttp's client, and only https reads certificates: most sidecars send nothing.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Final

TIMEOUT_S: Final = 5.0
MAX_RETRY_AFTER_S: Final = 120.0
HEADERS: Final = {"Content-Type": "application/json", "User-Agent": "health-arbiter"}
_ACCEPTED: Final = range(200, 300)
_FINAL: Final = frozenset({400, 413, 422})
"""The status codes of a receiver that will never accept the message."""


class UndeliveredError(Exception):
    """A message was not accepted; the text is the machine word for the cause.

    ``is_final``: it never will be. ``retry_after_s``: seconds before the receiver wants another attempt.
    """

    def __init__(self, why: str, *, is_final: bool = False, retry_after_s: float = 0.0) -> None:
        super().__init__(why)
        self.is_final = is_final
        self.retry_after_s = retry_after_s


async def post(url: str, body: bytes, timeout_s: float = TIMEOUT_S) -> None:
    """Post once. Raises UndeliveredError, and TimeoutError, which a cascade counts as an overloaded node."""
    try:
        async with asyncio.timeout(timeout_s):
            status, retry_after = await _post(url, body)
    except (TimeoutError, UndeliveredError):
        raise
    except Exception as error:  # noqa: BLE001 - the client raises many kinds
        raise UndeliveredError(_cause(error)) from None  # the text of the cause may contain the URL
    if status not in _ACCEPTED:
        raise UndeliveredError(f"status {status}", is_final=status in _FINAL, retry_after_s=_seconds(retry_after))


async def _post(url: str, body: bytes) -> tuple[int, str]:
    from aiohttp import ClientSession, DummyCookieJar, TCPConnector  # noqa: PLC0415 - as the head says

    is_tls = url.lower().startswith("https:")
    connector = TCPConnector(ssl=await asyncio.to_thread(ssl.create_default_context) if is_tls else False)
    session = ClientSession(connector=connector, cookie_jar=DummyCookieJar(), headers=HEADERS, trust_env=is_tls)
    # Messages are rare, so no connection is kept. A redirect would receive the secret.
    async with session, session.post(url, data=body, allow_redirects=False) as response:
        return response.status, response.headers.get("Retry-After", "")


def _cause(error: Exception) -> str:
    from aiohttp import ClientConnectionError, ClientSSLError, InvalidURL  # noqa: PLC0415 - as the head says

    if isinstance(error, (ClientSSLError, ssl.SSLError)):
        return "tls"
    if isinstance(error, (ClientConnectionError, OSError)):
        return "connection"
    return "url" if isinstance(error, InvalidURL) else type(error).__name__


def _seconds(text: str) -> float:
    try:
        return min(MAX_RETRY_AFTER_S, max(0.0, float(text)))
    except ValueError:  # a date, or nothing
        return 0.0
