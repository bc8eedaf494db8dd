"""A ``logging.Handler`` that reports what the app logs as errors."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from sidecar.client import exceptions, messages
from sidecar.client.exchange import note_told
from sidecar.client.reporting import report

LEVELS: Final[Mapping[int, str]] = MappingProxyType({logging.WARNING: "investigation", logging.ERROR: "server_error"})
"""From this level of logging on: this level of the sidecar's. Only ``server_error`` counts."""


class ArbiterHandler(logging.Handler):
    """Reports log records: attach it to the root logger. Never raises, never blocks, never logs.

    ``levels`` maps the least level of logging to the sidecar's; the nearest one below a record's level is taken, and
    records below all of them are left alone. CRITICAL counts like ERROR: it is not ``fatal``, which would cull at once.
    With ``exc_info``, kind and fingerprint are the exception's, and one that was just reported is not reported again;
    without, they come from the logger and from the place of the call. Messages are redacted, and at most one a
    second of each fingerprint is told.
    """

    def __init__(self, level: int = logging.NOTSET, *, levels: Mapping[int, str] = LEVELS) -> None:
        self._levels = sorted(levels.items(), reverse=True)
        self._inside = threading.local()
        super().__init__(max(level, min(levels, default=level)))

    def createLock(self) -> None:  # noqa: N802 - the name is logging's
        """No lock: what is called from here needs none, and a thread that logs should not wait for another."""
        self.lock = None

    def handle(self, record: logging.LogRecord) -> bool:
        """Pass the record through the filters to ``emit``, without the lock that logging would take."""
        passed = self.filter(record)
        if isinstance(passed, logging.LogRecord):  # since Python 3.12 a filter may replace the record
            record = passed
        if passed:
            self.emit(record)
        return bool(passed)

    def emit(self, record: logging.LogRecord) -> None:
        """Report the record; nothing while this thread is just doing so: a ``__str__`` may log, too."""
        level = next((word for least, word in self._levels if record.levelno >= least), None)
        if level is None or getattr(self._inside, "busy", False):
            return
        self._inside.busy = True
        try:
            _report(record, level)
        except Exception:  # noqa: BLE001 - no noise on stderr either: another handler will show what is wrong
            report(level=level, kind="log")
        finally:
            self._inside.busy = False


def _report(record: logging.LogRecord, level: str) -> None:
    note_told(level)
    error = record.exc_info[1] if record.exc_info else None
    if error is None:
        kind = exceptions.KINDS.get(record.name.partition(".")[0], "log")
        fingerprint = exceptions.shortened(f"log@{record.name}:{record.funcName}:{record.lineno}")
    elif exceptions.is_news(error):
        kind, fingerprint = exceptions.kind(error), exceptions.fingerprint(error)
    else:
        return
    message = messages.message(fingerprint, lambda: _text(record, error))
    report(level=level, kind=kind, fingerprint=fingerprint, message=message)


def _text(record: logging.LogRecord, error: BaseException | None) -> str:
    text = record.getMessage()
    return text if error is None else f"{text}: {type(error).__name__}: {error}"
