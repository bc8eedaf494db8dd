"""A ``logging.Handler`` that reports what the app logs as errors."""

from __future__ import annotations

import logging
import threading

from . import exceptions
from .exchange import mark_reported
from .reporting import LOGGER, report


class ArbiterHandler(logging.Handler):
    """Reports log records of ``level`` and above: attach it to the root logger. Never raises, never blocks, never logs.

    From ERROR on they count as ``server_error``; those below are an ``investigation``, which is only shown. CRITICAL
    counts like ERROR, not as ``fatal``, which would cull at once. With ``exc_info``, kind and fingerprint are those of
    the exception, which is not reported twice. Otherwise they come from the logger and the place of the call.
    """

    def __init__(self, level: int = logging.WARNING) -> None:
        self._inside = threading.local()
        super().__init__(level)

    def createLock(self) -> None:  # noqa: N802 - the name is logging's
        """Make no lock: nothing here needs one, and a thread that logs must not wait for another."""
        self.lock = None

    def handle(self, record: logging.LogRecord) -> bool:
        """Pass the record through the filters to ``emit``, without a lock."""
        passed = self.filter(record)
        if isinstance(passed, logging.LogRecord):  # since Python 3.12 a filter may replace the record
            record = passed
        if passed:
            self.emit(record)
        return bool(passed)

    def emit(self, record: logging.LogRecord) -> None:
        """Report the record, unless this thread is reporting one already: a ``__str__`` may log too."""
        if record.name == LOGGER or getattr(self._inside, "busy", False):
            return
        level = "server_error" if record.levelno >= logging.ERROR else "investigation"
        self._inside.busy = True
        try:
            _report(record, level)
        except Exception:  # noqa: BLE001 - silent on stderr too: other handlers show the record
            report(level=level, kind="log")
        finally:
            self._inside.busy = False


def _report(record: logging.LogRecord, level: str) -> None:
    mark_reported(level)
    error = record.exc_info[1] if record.exc_info else None
    if error is None:
        kind = exceptions.KINDS.get(record.name.partition(".")[0], "log")
        fingerprint = exceptions.shortened(f"log@{record.name}:{record.funcName}:{record.lineno}")
    elif exceptions.is_first_report(error):
        kind, fingerprint = exceptions.kind(error), exceptions.fingerprint(error)
    else:
        return
    try:
        message = record.getMessage()
    except Exception:  # noqa: BLE001 - the report itself matters more
        message = str(record.msg)
    if error is not None:
        message = f"{message}: {exceptions.text(error)}"
    report(level=level, kind=kind, fingerprint=fingerprint, message=message)
