"""Reporting for Flask: 5xx and exceptions are errors, every request is a result."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from flask import got_request_exception

from .exchange import CURRENT, failed_here
from .wsgi import ArbiterWSGIMiddleware

if TYPE_CHECKING:
    from flask import Flask


def arbiter_flask(app: Flask, *, ignore_paths: Collection[str] = ()) -> None:
    """Report the requests of ``app``. Requests for ``ignore_paths``, such as a health page, are not reported.

    Flask turns exceptions into responses before WSGI can see them. So this also listens to its signal
    ``got_request_exception``, and notes the exceptions that an ``errorhandler`` of the app answers.
    """
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
