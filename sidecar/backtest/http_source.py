"""Reads from a server of the operator over HTTP, in pieces: Prometheus.

It follows no redirect, because the token is for this server alone.
"""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import Final
from urllib.parse import urlencode

from sidecar.backtest.error_counts import PastError
from sidecar.config.urls import web_parts
from sidecar.net.token_file import SHORTEST, Token

TIMEOUT_S: Final = 120.0
"""Time for a server to go on with its answer: two minutes are the limit of a query of Prometheus."""

_SHOWN: Final = 300


class HttpSource:
    """One server. Raises PastError if the URL or the file with the token cannot be used."""

    def __init__(self, url: str, token_file: str = "") -> None:
        try:
            self._parts = web_parts(url, "takes http:// or https:// and a host")
        except ValueError as error:
            raise PastError(f"the URL {error}") from None
        if self._parts.username is not None or self._parts.query or self._parts.fragment:
            raise PastError("the URL must have no login, ? or #: a token is read from --source-token-file")
        self.place = f"{self._parts.scheme}://{self._parts.netloc}{self._parts.path.rstrip('/')}"
        self._headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        if token_file:
            token = Token(token_file)
            if not token.is_there:
                raise PastError(f"{token_file}: holds no token of at least {SHORTEST} bytes")
            self._headers |= token.headers

    @contextmanager
    def open(self, path: str, query: Mapping[str, str]) -> Iterator[Callable[[int], bytes]]:
        """The answer to ``GET``, as a function that reads its next bytes. Raises PastError with the server's words."""
        connection = self._connection()
        try:
            connection.request("GET", f"{self._parts.path.rstrip('/')}{path}?{urlencode(query)}", headers=self._headers)
            response = connection.getresponse()
            if response.status != HTTPStatus.OK:
                said = response.read(_SHOWN).decode(errors="replace").strip()
                raise PastError(f"{self.place}{path}: HTTP status {response.status}: {said}")
            yield response.read
        except (OSError, http.client.HTTPException) as error:
            cause = (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__
            raise PastError(f"{self.place}{path}: {cause.lower()}") from None
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        host = str(self._parts.hostname)
        if self._parts.scheme == "https":
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(host, self._parts.port, timeout=TIMEOUT_S, context=context)
        return http.client.HTTPConnection(host, self._parts.port, timeout=TIMEOUT_S)
