"""Reports each request of the app exactly once, even if a log line, the app and the middleware see its failure."""

from __future__ import annotations

import sys
from contextvars import ContextVar
from typing import Final, Self

from . import exceptions
from .reporting import report, results

SERVER_ERROR: Final = 500

CURRENT: Final[ContextVar[Exchange | None]] = ContextVar("arbiter_exchange", default=None)
"""The current request. The middleware does not report a failure that a log line has reported."""


class Exchange:
    """Follows one request. ``answered``, ``failed`` and ``noted`` may come any number of times, in any order.

    As a context manager it is the current request, and an ``Exception`` that leaves it is a failure of the app. Other
    exceptions end the request from outside: then nothing is reported.
    """

    __slots__ = ("_failed", "_finished", "_noted", "_status", "_token", "harmless", "has_left", "is_reported")

    def __init__(self) -> None:
        self.is_reported = False  # its failure, by a log line or by this exchange
        self.has_left = False  # the client has disconnected, which is no error
        self.harmless: BaseException | None = None  # this exception is no failure
        self._noted: BaseException | None = None  # the app turns this exception into an answer
        self._status = 0  # 0: no answer yet
        self._failed = False  # an exception has left the app
        self._finished = False  # its result is reported

    def __enter__(self) -> Self:
        self._token = CURRENT.set(self)
        return self

    def __exit__(self, _type: object, error: BaseException | None, _traceback: object) -> None:
        CURRENT.reset(self._token)
        if isinstance(error, Exception):
            self.failed(error)
        if error is None or isinstance(error, Exception):
            self.finished()

    def answered(self, status: int) -> None:
        """Note the status that was sent. A later exception is still an error.

        An exception that is being handled meanwhile is the reason of a status from 500 on.
        """
        self._status = status
        if status >= SERVER_ERROR and (error := sys.exc_info()[1]) is not None:
            self.noted(error)

    def noted(self, error: BaseException) -> None:
        """Note an exception that the app turns into an answer. It is an error only if the status says so."""
        self._noted = error

    def failed(self, error: BaseException) -> None:
        """Report an exception that left the app."""
        if error is self.harmless:
            return
        self._failed = True
        if self.is_reported:
            exceptions.is_first_report(error)  # the server will log it too
        else:
            self.is_reported = True
            report_exception(error)

    def finished(self) -> None:
        """Report the result, once; none if the client has left before there was one."""
        if self._finished or (self.has_left and not self._status and not self._failed):
            return
        self._finished = True
        failed = self._failed or not 0 < self._status < SERVER_ERROR
        noted, self._noted = self._noted, None
        if failed and not self.is_reported:
            if noted is not None and not exceptions.is_answer(noted):
                report_exception(noted)
            else:
                report(kind=f"http_{self._status}" if self._status else "no_response")
        results(ok=int(not failed), failed=int(failed))


def failed_here(error: BaseException) -> None:
    """Report an exception of the current request; outside of requests on its own."""
    exchange = CURRENT.get()
    if exchange is None:
        report_exception(error)
    else:
        exchange.failed(error)


def report_exception(error: BaseException, *, level: str = "server_error", fatal: bool = False) -> None:
    """Report an exception, with its kind, its fingerprint and its text. Never raises, never blocks.

    Sends nothing if a log handler or a middleware has just reported the same exception.
    """
    mark_reported(level)
    if exceptions.is_first_report(error):
        fingerprint, message = exceptions.fingerprint(error), exceptions.text(error)
        report(level=level, kind=exceptions.kind(error), fingerprint=fingerprint, message=message, fatal=fatal)


def mark_reported(level: str) -> None:
    """Mark the failure of the current request, if there is one, as reported."""
    exchange = CURRENT.get()
    if exchange is not None and level == "server_error":
        exchange.is_reported = True
