"""Middleware for WSGI, and for Flask: 5xx and exceptions are errors, every request is a result."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from .exchange import CURRENT, Exchange, failed_here
from .reporting import announce_start

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from flask import Flask


class ArbiterWSGIMiddleware:
    """Wraps a WSGI application. Requests for ``ignore_paths``, such as a health page of the app, are not reported.

    Exceptions pass through unchanged, also those of a body that is read later. A client that disconnects closes the
    body early, which is no error.
    """

    def __init__(self, app: WSGIApplication, *, ignore_paths: Collection[str] = ()) -> None:
        self._app = app
        self._ignored = frozenset(ignore_paths)
        announce_start()

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Serve one request, as WSGI defines it."""
        if environ.get("PATH_INFO") in self._ignored:
            return self._app(environ, start_response)
        exchange = Exchange()
        CURRENT.set(exchange)  # not reset: the body may be read in another context, and the next request sets its own
        try:
            body = self._app(environ, _answering(exchange, start_response))
        except Exception as error:
            exchange.failed(error)
            exchange.finished()
            raise
        if _is_inspected_by_servers(body, environ):
            exchange.finished()
            return body
        return _Body(body, exchange)


def _is_inspected_by_servers(body: Iterable[bytes], environ: WSGIEnvironment) -> bool:
    """Whether servers look at the type of this body: for its length, or to let the kernel send it."""
    wrapper = environ.get("wsgi.file_wrapper")
    return isinstance(body, (list, tuple)) or (isinstance(wrapper, type) and isinstance(body, wrapper))


def _answering(exchange: Exchange, start_response: StartResponse) -> StartResponse:
    def answer(status: str, headers: list[tuple[str, str]], *exc_info: Any) -> Callable[[bytes], object]:
        exchange.answered(int(status[:3]))
        return start_response(status, headers, *exc_info)

    return answer


class _Body:
    """Passes the body on and observes how it ends."""

    def __init__(self, body: Iterable[bytes], exchange: Exchange) -> None:
        self._body = body
        self._chunks: Iterator[bytes] | None = None
        self._exchange = exchange

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        try:
            if self._chunks is None:
                self._chunks = iter(self._body)
            return next(self._chunks)
        except StopIteration:
            self._exchange.finished()
            raise
        except Exception as error:
            self._exchange.failed(error)
            raise

    def close(self) -> None:
        """Close the body. Servers always call this: after the last chunk, after a failure, after a disconnect."""
        try:
            close = getattr(self._body, "close", None)
            if close is not None:
                close()
        except Exception as error:
            self._exchange.failed(error)
            raise
        finally:
            self._exchange.has_left = True  # unless it has read everything, and the request has its result
            self._exchange.finished()


def arbiter_flask(app: Flask, *, ignore_paths: Collection[str] = ()) -> None:
    """Report the requests of ``app``. Requests for ``ignore_paths``, such as a health page, are not reported.

    Flask turns exceptions into responses before WSGI can see them. So this also listens to its signal
    ``got_request_exception``, and notes the exceptions that an ``errorhandler`` of the app answers.
    """
    from flask import got_request_exception  # noqa: PLC0415 - an app of another framework has no Flask

    handle = app.handle_user_exception

    def handle_and_note(error: Exception) -> Any:
        exchange = CURRENT.get()
        if exchange is not None:
            exchange.noted(error)
        return handle(error)

    app.handle_user_exception = handle_and_note  # type: ignore[method-assign, assignment]
    app.wsgi_app = ArbiterWSGIMiddleware(app.wsgi_app, ignore_paths=ignore_paths)  # type: ignore[method-assign]
    got_request_exception.connect(_failed, app)


def _failed(_app: Flask, exception: BaseException, **_: object) -> None:
    failed_here(exception)
