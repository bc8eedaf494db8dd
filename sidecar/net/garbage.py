"""What aiohttp cannot read is counted, where it would be logged with a traceback each."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from aiohttp.http import HttpProcessingError

from sidecar.net import web

BROKEN_OFF: Final = (web.RequestPayloadError, OSError)
"""What reading a body raises when its client has gone or sends nonsense."""


class _Counted(logging.Handler):
    """Counts what is not HTTP at all; aiohttp has answered it with a 400 and would log a traceback each."""

    def __init__(self, refused: Callable[[str], None], on_failure: Callable[[Exception], None]) -> None:
        super().__init__()
        self._refused = refused
        self._on_failure = on_failure

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, (HttpProcessingError, *BROKEN_OFF)):
            self._refused("not_http")
        elif isinstance(error, Exception):
            self._on_failure(error)


def garbage_logger(refused: Callable[[str], None], on_failure: Callable[[Exception], None]) -> logging.Logger:
    """A logger for aiohttp's server."""
    logger = logging.Logger("garbage", logging.DEBUG)  # noqa: LOG001 - its own, known to no registry
    logger.addHandler(_Counted(refused, on_failure))
    return logger
