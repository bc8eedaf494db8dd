"""Posts JSON to one URL. Whatever goes wrong is an ``UndeliveredError`` whose text never holds a part of the URL.

aiohttp's client is loaded with the first message, and certificates only for https: most sidecars send none.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Final

TIMEOUT_S: Final = 5.0
RETRY_AFTER_MOST_S: Final = 120.0
HEADERS: Final = {"Content-Type": "application/json", "User-Agent": "health-arbiter"}
_GOOD: Final = range(200, 300)
_HOPELESS: Final = frozenset({400, 413, 422})
"""What a receiver answers to a message that it will never take."""


class UndeliveredError(Exception):
    """A message did not arrive; the text is the machine's word for why.

    ``is_final``: it never will. ``retry_after_s``: the receiver wants to be left alone for so long.
    """

    def __init__(self, why: str, *, is_final: bool = False, retry_after_s: float = 0.0) -> None:
        super().__init__(why)
        self.is_final = is_final
        self.retry_after_s = retry_after_s


async def post(url: str, body: bytes, timeout_s: float = TIMEOUT_S) -> None:
    """Post once. Raises TimeoutError, which is what a cascade looks for, and UndeliveredError."""
    try:
        async with asyncio.timeout(timeout_s):
            status, retry_after = await _post(url, body)
    except (TimeoutError, UndeliveredError):
        raise
    except Exception as error:  # noqa: BLE001 - a client may fail in ways that nobody has foreseen
        raise UndeliveredError(_cause(error)) from None  # the cause's text may hold the URL
    if status not in _GOOD:
        raise UndeliveredError(f"status {status}", is_final=status in _HOPELESS, retry_after_s=_seconds(retry_after))


async def _post(url: str, body: bytes) -> tuple[int, str]:
    from aiohttp import ClientSession, DummyCookieJar, TCPConnector  # noqa: PLC0415 - as the head says

    is_tls = url.lower().startswith("https:")
    connector = TCPConnector(ssl=await asyncio.to_thread(ssl.create_default_context) if is_tls else False)
    session = ClientSession(connector=connector, cookie_jar=DummyCookieJar(), headers=HEADERS, trust_env=is_tls)
    # Messages are rare: a connection that is kept costs more than it saves. A redirect would take the secret along.
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
        return min(RETRY_AFTER_MOST_S, max(0.0, float(text)))
    except ValueError:  # a date, or nothing
        return 0.0
