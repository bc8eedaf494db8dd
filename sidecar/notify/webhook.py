"""The webhook: the JSON of a message, and one attempt to post it.

Without a template the JSON is ``{"text": ...}``, which Slack, Mattermost and Teams take as it is. A failure never
contains a part of the URL, because its path is often a secret.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from sidecar.config import syntax

TIMEOUT_S: Final = 5.0
_ACCEPTED: Final = range(200, 300)
_FINAL: Final = frozenset({400, 413, 422})
"""Status codes of a receiver that will never accept the message."""

_HEADERS: Final = {"Content-Type": "application/json", "User-Agent": "health-arbiter"}


class UndeliveredError(Exception):
    """A message was not accepted; the text is a machine word. ``is_final``: it never will be."""

    def __init__(self, why: str, *, is_final: bool = False) -> None:
        super().__init__(why)
        self.is_final = is_final


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
