"""Middleware for Django, under WSGI and ASGI: 5xx and exceptions are errors, every request is a result."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.core.signals import got_request_exception

from .exchange import Exchange, failed_here
from .reporting import announce_start

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponseBase

    GetResponse = Callable[[HttpRequest], Any]


class ArbiterDjangoMiddleware:
    """The first of ``MIDDLEWARE`` in the settings, as ``"health_arbiter_client.ArbiterDjangoMiddleware"``.

    Django turns exceptions into responses before a server or another middleware can see them, so this listens to its
    signal ``got_request_exception``. A 404 and other answers below 500 are no errors.
    """

    sync_capable = async_capable = True

    def __init__(self, get_response: GetResponse) -> None:
        self._get_response = get_response
        self._is_async = iscoroutinefunction(get_response)
        if self._is_async:
            markcoroutinefunction(self)
        got_request_exception.connect(_failed, dispatch_uid="health-arbiter")
        announce_start()

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        """Serve one request."""
        if self._is_async:
            return self._answer_async(request)
        with Exchange() as exchange:
            response: HttpResponseBase = self._get_response(request)
            exchange.answered(response.status_code)
            return response

    async def _answer_async(self, request: HttpRequest) -> HttpResponseBase:
        with Exchange() as exchange:
            response: HttpResponseBase = await self._get_response(request)
            exchange.answered(response.status_code)
            return response


def _failed(**_: object) -> None:
    error = sys.exc_info()[1]
    if error is not None:
        failed_here(error)
