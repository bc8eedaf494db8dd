"""The ASGI middleware, called as a server calls it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from client.conftest import Totals, failed
from sidecar.client import ArbiterHandler, ArbiterMiddleware
from sidecar.client.asgi import App, Message, Receive, Send
from sidecar.client.exchange import CURRENT

HTTP: Message = {"type": "http", "path": "/cart", "method": "GET"}


class Server:
    """What the app hears and says. ``failure`` is raised when the app sends."""

    def __init__(self, *heard: str, failure: Exception | None = None) -> None:
        self._heard = [{"type": type_} for type_ in heard]
        self._failure = failure
        self.said: list[Message] = []

    async def receive(self) -> Message:
        return self._heard.pop(0)

    async def send(self, message: Message) -> None:
        if self._failure is not None:
            raise self._failure
        self.said.append(message)


async def _call(app: App, server: Server | None = None, scope: Message | None = None, **options: Any) -> Server:
    server = server or Server()
    await ArbiterMiddleware(app, **options)(scope or HTTP, server.receive, server.send)
    return server


def _answer(status: int, *, then: BaseException | None = None) -> App:
    async def app(_scope: Message, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b"a", "more_body": True})
        if then is not None:
            raise then
        await send({"type": "http.response.body", "body": b"b"})

    return app


def _raise(error: BaseException) -> App:
    async def app(_scope: Message, _receive: Receive, _send: Send) -> None:
        raise error

    return app


@pytest.mark.parametrize(
    "app_of",
    [_raise, lambda error: _answer(200, then=error), lambda error: _answer(500, then=error)],
    ids=["before the answer", "within the answer", "after a 500"],
)
async def test_exception_is_one_error_of_its_kind_and_passes_through(
    app_of: Callable[[Exception], App], totals: Totals
) -> None:
    error = KeyError("a")
    with pytest.raises(KeyError) as raised:
        await _call(app_of(error))
    assert raised.value is error
    assert totals() == failed("KeyError")
    assert CURRENT.get() is None


@pytest.mark.parametrize("error", [asyncio.CancelledError(), KeyboardInterrupt()], ids=repr)
async def test_end_from_outside_is_no_error(error: BaseException, totals: Totals) -> None:
    app = ArbiterMiddleware(_raise(error))
    server = Server()
    # Driven by hand: a task would take some of these for the end of the whole program.
    with pytest.raises(type(error)):
        app(HTTP, server.receive, server.send).__await__().__next__()
    assert totals() == {}


@pytest.mark.parametrize(
    ("heard", "expected"), [("http.disconnect", {}), ("http.request", failed("no_response"))], ids=["left", "is there"]
)
async def test_app_that_never_answers_is_an_error_unless_the_client_has_left(
    heard: str, expected: dict[str, int], totals: Totals
) -> None:
    async def app(_scope: Message, receive: Receive, _send: Send) -> None:
        await receive()

    await _call(app, Server(heard))
    assert totals() == expected


async def test_client_that_leaves_within_the_answer_is_no_error(totals: Totals) -> None:
    with pytest.raises(OSError, match="gone"):
        await _call(_answer(200), Server(failure=OSError("gone")))
    assert totals() == {"ok": 1}


@pytest.mark.parametrize("has_left", [True, False], ids=["left", "is there"])
@pytest.mark.parametrize("kind", ["http", "websocket"])
async def test_exception_about_the_client_that_left_is_no_error(kind: str, totals: Totals, *, has_left: bool) -> None:
    error = type({"http": "ClientDisconnect", "websocket": "WebSocketDisconnect"}[kind], (Exception,), {})

    async def app(_scope: Message, receive: Receive, _send: Send) -> None:
        await receive()
        raise error

    with pytest.raises(error):
        await _call(app, Server(f"{kind}.{'disconnect' if has_left else 'other'}"), {"type": kind, "path": "/chat"})
    assert (totals() == {}) == has_left


async def test_what_fails_while_the_client_leaves_is_an_error_still(totals: Totals) -> None:
    """A client that tires of waiting for a database that hangs: the time-out behind it is what has to be counted."""

    async def app(_scope: Message, receive: Receive, _send: Send) -> None:
        await receive()
        raise TimeoutError

    with pytest.raises(TimeoutError):
        await _call(app, Server("http.disconnect"))
    assert totals() == failed("TimeoutError")


async def test_ignored_path_and_lifespan_pass_untouched(totals: Totals) -> None:
    server = await _call(_answer(503), ignore_paths=["/cart"])
    assert server.said[0]["status"] == 503
    with pytest.raises(RuntimeError):
        await _call(_raise(RuntimeError("no start")), scope={"type": "lifespan"})
    assert totals() == {}


async def test_websocket_reports_exceptions_and_no_results(totals: Totals) -> None:
    scope: Message = {"type": "websocket", "path": "/chat"}

    async def chat(_scope: Message, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "websocket.accept"})

    await _call(chat, Server("websocket.connect"), scope)
    assert totals() == {}
    with pytest.raises(KeyError):
        await _call(_raise(KeyError("a")), scope=scope)
    assert totals() == {"server_error KeyError": 1}


@pytest.fixture
def logger() -> logging.Logger:
    logger = logging.Logger("shop")  # noqa: LOG001 - not one that stays
    logger.addHandler(ArbiterHandler())
    return logger


@pytest.mark.parametrize("is_answered", [True, False], ids=["by the framework, which answers", "by the server"])
async def test_failure_that_is_logged_is_not_counted_again(
    logger: logging.Logger, totals: Totals, *, is_answered: bool
) -> None:
    async def app(scope: Message, receive: Receive, send: Send) -> None:
        try:
            raise KeyError("a")  # noqa: TRY301 - frameworks do it in one place, too
        except KeyError:
            if not is_answered:
                raise
            logger.exception("in the app")
            await _answer(500)(scope, receive, send)

    try:
        await _call(app)
    except KeyError:
        logger.exception("in the server")
    assert totals() == failed("KeyError")


async def test_requests_at_the_same_time_are_kept_apart(logger: logging.Logger, totals: Totals) -> None:
    both = asyncio.Barrier(2)

    async def app(scope: Message, receive: Receive, send: Send) -> None:
        await both.wait()
        if scope["path"] == "/logs":
            logger.error("bad")
        await both.wait()
        await _answer(500)(scope, receive, send)

    async with asyncio.TaskGroup() as tasks:
        for path in ("/logs", "/quiet"):
            tasks.create_task(_call(app, scope={**HTTP, "path": path}))
    assert totals() == {
        "failed": 2,
        "server_error log": 1,
        "server_error http_500": 1,
    }
    assert CURRENT.get() is None
