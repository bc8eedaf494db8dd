"""One request of the app and what the sidecar is told of it, once, whoever notices first."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

from sidecar.client import exceptions, messages
from sidecar.client.reporting import report, results

SERVER_ERROR: Final = 500

CURRENT: Final[ContextVar[Exchange | None]] = ContextVar("arbiter_exchange", default=None)
"""The request that is being answered: what a log line tells of its failure, the middleware does not tell again."""


class Exchange:
    """Follows one request: ``answered``, ``failed``, ``finished``, as often and in whatever order they come."""

    __slots__ = ("_failed", "_finished", "_status", "told")

    def __init__(self) -> None:
        self.told = False
        self._status = 0
        self._failed = False
        self._finished = False

    def answered(self, status: int) -> None:
        """The status went out. What fails after that is still an error."""
        self._status = status

    def failed(self, error: BaseException) -> None:
        """An exception left the app."""
        self._failed = True
        if self.told:
            exceptions.is_news(error)  # the server will log it, too
        else:
            self.told = True
            report_exception(error)

    def finished(self, *, left: bool = False) -> None:
        """The answer is complete, or there will be none. ``left``: the client has gone, which is no error."""
        if self._finished or (left and not self._status and not self._failed):
            return
        self._finished = True
        failed = self._failed or not 0 < self._status < SERVER_ERROR
        if failed and not self.told:
            report(kind=f"http_{self._status}" if self._status else "no_response")
        results(ok=int(not failed), failed=int(failed))


def report_exception(error: BaseException, *, level: str = "server_error", fatal: bool = False) -> None:
    """Report an exception: kind, fingerprint and redacted message are its own. Never raises, never blocks.

    Nothing is sent when the same exception has just been reported, by a log handler or a middleware.
    """
    note_told(level)
    if exceptions.is_news(error):
        fingerprint = exceptions.fingerprint(error)
        message = messages.message(fingerprint, lambda: f"{type(error).__name__}: {error}")
        report(level=level, kind=exceptions.kind(error), fingerprint=fingerprint, message=message, fatal=fatal)


def note_told(level: str) -> None:
    """Remember that the failure of the request at hand, if any, has been reported."""
    exchange = CURRENT.get()
    if exchange is not None and level == "server_error":
        exchange.told = True
