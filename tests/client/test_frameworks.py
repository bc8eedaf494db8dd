"""The real frameworks: what counts as an error, and which kind an exception has, without further wiring."""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from http import HTTPStatus
from types import ModuleType
from typing import Any
from unittest.mock import Mock
from wsgiref.util import setup_testing_defaults

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer, make_mocked_request
from redis.exceptions import ConnectionError as RedisConnectionError

from client.conftest import Listener, Totals, failed
from sidecar import client
from sidecar.client.exchange import CURRENT
from sidecar.core.app_reports import ErrorReport

MySqlError = type("OperationalError", (Exception,), {"__module__": "pymysql.err"})

EXPECTED: dict[str, dict[str, int]] = {
    "/ok": {"ok": 1},
    "/missing": {"ok": 1},
    "/redis": failed("redis"),
    "/mysql": failed("mysql"),
    "/bug": failed("ZeroDivisionError"),
    "/unavailable": failed("http_503"),
    "/handled": failed("redis"),
}
"""Path -> what is reported. ``/handled``: the app itself answers an exception of redis with a 503."""


def _fail(path: str) -> str:
    """What the views share."""
    if path == "/redis":
        raise RedisConnectionError("gone")
    if path == "/mysql":
        raise RuntimeError("no cart") from MySqlError("gone away")
    if path == "/bug":
        return str(1 // 0)
    return "ok"


def _wsgi_status(app: Any, path: str) -> int:
    environ: dict[str, Any] = {"PATH_INFO": path}
    setup_testing_defaults(environ)
    status = []

    def serve() -> None:
        body = app(environ, lambda line, *_: status.append(int(line[:3])))
        b"".join(body)
        if hasattr(body, "close"):
            body.close()

    copy_context().run(serve)  # the middleware leaves its request in the context, as a server's thread does
    return status[0]


def _asgi_status(app: Any, path: str) -> int:
    async def ask() -> int:
        said: list[dict[str, Any]] = []
        scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
        }
        scope |= {"path": path, "raw_path": path.encode(), "root_path": "", "query_string": b"", "headers": []}
        asked = [{"type": "http.request", "body": b"", "more_body": False}]

        async def receive() -> dict[str, Any]:
            return asked.pop() if asked else await asyncio.Future()

        async def send(message: dict[str, Any]) -> None:
            said.append(message)

        try:
            await app(scope, receive, send)
        except Exception:  # noqa: BLE001 - a server logs what leaves the app
            return int(HTTPStatus.INTERNAL_SERVER_ERROR)
        return int(said[0]["status"])

    return asyncio.run(ask())


def _flask() -> Callable[[str], int]:
    flask = pytest.importorskip("flask", reason="Flask is not installed")
    app = flask.Flask("shop")
    client.arbiter_flask(app)

    @app.get("/<name>")  # type: ignore[untyped-decorator]
    def view(name: str) -> Any:
        if name == "handled":
            raise RedisTimeoutError("slow")
        if name == "unavailable":
            flask.abort(503)
        return _fail(f"/{name}") if name != "missing" else flask.abort(404)

    @app.errorhandler(RedisTimeoutError)  # type: ignore[untyped-decorator]
    def answer(_error: Exception) -> Any:
        return "later", 503

    return lambda path: _wsgi_status(app, path)


class RedisTimeoutError(RedisConnectionError):
    __module__ = "redis.exceptions"


def _fastapi() -> Callable[[str], int]:
    fastapi = pytest.importorskip("fastapi", reason="FastAPI is not installed")
    app = fastapi.FastAPI()
    app.add_middleware(client.ArbiterMiddleware)

    async def view(name: str) -> Any:
        if name == "handled":
            raise RedisTimeoutError("slow")
        if name in ("missing", "unavailable"):
            raise fastapi.HTTPException(404 if name == "missing" else 503)
        return _fail(f"/{name}")

    async def answer(_request: Any, _error: Exception) -> Any:
        return fastapi.Response(status_code=503)

    app.get("/{name}")(view)
    app.exception_handler(RedisTimeoutError)(answer)
    return lambda path: _asgi_status(app, path)


@pytest.fixture(scope="module")
def django_urls() -> ModuleType:
    """Django configured for this process, once: it has one configuration."""
    django = pytest.importorskip("django", reason="Django is not installed")
    from django.conf import settings  # noqa: PLC0415 - may not be installed
    from django.http import Http404, HttpResponse  # noqa: PLC0415 - as above
    from django.urls import path as url  # noqa: PLC0415 - as above

    def view(_request: Any, name: str) -> Any:
        if name == "missing":
            raise Http404
        if name == "unavailable":
            return HttpResponse(status=503)
        return HttpResponse(_fail(f"/{name}"))

    urls = ModuleType("arbiter_test_urls")
    urls.urlpatterns = [url("<name>", view)]  # type: ignore[attr-defined]
    sys.modules[urls.__name__] = urls
    middleware = ["sidecar.client.ArbiterDjangoMiddleware", "django.middleware.common.CommonMiddleware"]
    settings.configure(ROOT_URLCONF=urls.__name__, MIDDLEWARE=middleware, ALLOWED_HOSTS=["*"], LOGGING_CONFIG=None)
    django.setup()
    return urls


def _django_wsgi() -> Callable[[str], int]:
    from django.core.handlers.wsgi import WSGIHandler  # noqa: PLC0415 - may not be installed

    app = WSGIHandler()
    return lambda path: _wsgi_status(app, path)


def _django_asgi() -> Callable[[str], int]:
    from django.core.handlers.asgi import ASGIHandler  # noqa: PLC0415 - may not be installed

    app = ASGIHandler()
    return lambda path: _asgi_status(app, path)


@pytest.mark.filterwarnings("ignore")  # of the frameworks themselves
@pytest.mark.parametrize("make", [_flask, _fastapi, _django_wsgi, _django_asgi], ids=lambda make: make.__name__[1:])
def test_each_failure_is_one_error_of_its_kind(
    make: Callable[[], Callable[[str], int]], totals: Totals, request: pytest.FixtureRequest
) -> None:
    if "django" in make.__name__:
        request.getfixturevalue("django_urls")
    status_of = make()
    for path, expected in EXPECTED.items():
        if path == "/handled" and "django" in make.__name__:
            continue  # a view of Django catches it itself, and nobody sees it
        status = status_of(path)
        assert status == {"/ok": 200, "/missing": 404, "/unavailable": 503, "/handled": 503}.get(path, 500), path
        assert totals() == expected, path


def test_failed_and_retried_tasks_of_celery_are_errors(totals: Totals) -> None:
    celery = pytest.importorskip("celery", reason="Celery is not installed")
    app = celery.Celery("shop", broker="memory://", backend="cache+memory://")
    app.conf.task_always_eager = True
    client.arbiter_celery()

    @app.task(bind=True, max_retries=1)  # type: ignore[untyped-decorator]
    def work(task: Any, path: str) -> str:
        try:
            return _fail(path)
        except RedisConnectionError as error:
            raise task.retry(exc=error, countdown=0) from error

    work.delay("/ok")
    assert totals() == {"ok": 1}
    work.delay("/mysql")
    assert totals() == failed("mysql")
    work.delay("/redis")
    assert totals() == {"failed": 2, "server_error redis": 2}


@pytest.mark.parametrize(
    ("package", "wire"),
    [
        ("sidecar", lambda: client.ArbiterMiddleware(Mock())),
        ("sidecar", lambda: client.ArbiterWSGIMiddleware(Mock())),
        ("django", lambda: client.ArbiterDjangoMiddleware(Mock())),
        ("celery", lambda: client.arbiter_celery()),  # noqa: PLW0108 - it imports Celery
        ("aiohttp", lambda: importlib.reload(importlib.import_module("sidecar.client.aiohttp_server"))),
    ],
    ids=["ASGI", "WSGI", "Django", "Celery", "aiohttp"],
)
def test_start_that_the_environment_names_is_reported_without_an_error(
    package: str, wire: Callable[[], object], totals: Totals, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(package)
    for app_start in ("", "boot-7"):
        monkeypatch.setenv("ARBITER_APP_START", app_start)
        wire()
    totals()
    assert listener.errors == [ErrorReport(0, app_start="boot-7")]


# -- aiohttp ----------------------------------------------------------------------------------------------------


def _from_driver() -> BaseException:
    error = web.HTTPServiceUnavailable()
    error.__cause__ = RedisConnectionError("gone")
    return error


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (web.Response(), {"ok": 1}),
        (web.HTTPFound("/fine"), {"ok": 1}),
        (web.HTTPNotFound(), {"ok": 1}),
        (web.Response(status=503), failed("http_503")),
        (web.HTTPInternalServerError(), failed("HTTPInternalServerError")),
        (_from_driver(), failed("redis")),
        (RedisConnectionError("gone"), failed("redis")),
        (ConnectionResetError("of a database"), failed("ConnectionResetError")),
        (asyncio.CancelledError(), {}),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, dict) else "",
)
async def test_status_and_exceptions_decide(
    end: web.Response | BaseException, expected: dict[str, int], totals: Totals
) -> None:
    async def handle(_request: web.Request) -> web.StreamResponse:
        if isinstance(end, BaseException):
            raise end
        return end

    request = make_mocked_request("GET", "/", transport=Mock(is_closing=lambda: False))
    passed: object = None
    try:
        passed = await client.arbiter_aiohttp_middleware(request, handle)
    except BaseException as error:  # noqa: BLE001 - it has to pass through unchanged
        passed = error
    assert passed is end
    assert totals() == expected
    assert CURRENT.get() is None


async def test_client_that_leaves_within_a_stream_is_no_error(totals: Totals) -> None:
    left, ended = asyncio.Event(), asyncio.Event()

    async def stream(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await left.wait()
        try:
            while True:
                await response.write(b"x" * 65_536)
        finally:
            ended.set()

    app = web.Application(middlewares=[client.arbiter_aiohttp_middleware])
    app.router.add_get("/", stream)
    async with TestClient(TestServer(app)) as browser:
        response = await browser.get("/")
        response.close()
        left.set()
        with suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), 60)
    assert ended.is_set()
    assert totals() == {}
