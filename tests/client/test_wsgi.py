"""The WSGI middleware under the server of the standard library, and under its validator."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, nullcontext
from typing import TYPE_CHECKING, Any
from wsgiref.handlers import SimpleHandler
from wsgiref.util import FileWrapper, setup_testing_defaults
from wsgiref.validate import validator

import pytest

from client.conftest import Totals, failed
from sidecar.client import ArbiterWSGIMiddleware

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

PLAIN = [("Content-Type", "text/plain")]


class Quiet(SimpleHandler):
    """Answers one request in memory; prints no traceback."""

    def log_exception(self, exc_info: Any) -> None:
        del exc_info


def _environ(path: str = "/cart") -> WSGIEnvironment:
    environ: WSGIEnvironment = {"SCRIPT_NAME": "", "PATH_INFO": path, "QUERY_STRING": ""}
    setup_testing_defaults(environ)
    return environ


def _serve(app: WSGIApplication, path: str = "/cart", **options: Any) -> bytes:
    """What a server answers."""
    out = io.BytesIO()
    wrapped = validator(ArbiterWSGIMiddleware(validator(app), **options))
    Quiet(io.BytesIO(), out, io.StringIO(), _environ(path), multithread=False).run(wrapped)
    return out.getvalue()


def _app(status: str, body: Callable[[], Iterable[bytes]]) -> WSGIApplication:
    def app(_environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        start_response(status, PLAIN)
        return body()

    return app


def _chunks() -> Iterator[bytes]:
    yield b"a"
    yield b"b"


def _failing() -> Iterator[bytes]:
    yield b"a"
    raise KeyError("a")


@pytest.mark.parametrize("body", [lambda: [b"ab"], lambda: (b"a", b"b"), _chunks], ids=["list", "tuple", "generator"])
@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("499 Odd", {"ok": 1}),
        ("500 Internal Server Error", failed("http_500")),
    ],
)
def test_status_decides(
    status: str, expected: dict[str, int], body: Callable[[], Iterable[bytes]], totals: Totals
) -> None:
    answer = _serve(_app(status, body))
    assert status.encode() in answer.splitlines()[0]
    assert answer.endswith(b"ab")
    assert totals() == expected


def _raise(_environ: WSGIEnvironment, _start_response: StartResponse) -> Iterable[bytes]:
    raise KeyError("a")


@pytest.mark.parametrize("app", [_raise, _app("200 OK", _failing)], ids=["before the answer", "within the body"])
def test_exception_is_an_error_and_passes_through(app: WSGIApplication, totals: Totals) -> None:
    with pytest.raises(KeyError), closing(ArbiterWSGIMiddleware(app)(_environ(), _start)) as body:  # type: ignore[type-var]
        list(body)
    assert totals() == failed("KeyError")


def _start(status: str, headers: list[tuple[str, str]], *exc_info: Any) -> Callable[[bytes], object]:
    del status, headers, exc_info
    return len


def test_exception_that_the_app_answers_itself_is_an_error_of_its_kind(totals: Totals) -> None:
    def app(_environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        try:
            raise KeyError("a")  # noqa: TRY301 - as an app would that catches what it calls
        except KeyError:
            start_response("500 Oops", PLAIN, sys.exc_info())
        return [b"sorry"]

    assert _serve(app).endswith(b"sorry")
    assert totals() == failed("KeyError")


class Body:
    """Remembers whether it was closed; fails in closing if asked to."""

    def __init__(self, error: Exception | None = None) -> None:
        self.closed = 0
        self._error = error

    def __iter__(self) -> Iterator[bytes]:
        return _chunks()

    def close(self) -> None:
        self.closed += 1
        if self._error:
            raise self._error


@pytest.mark.parametrize(
    ("error", "chunks", "expected"),
    [(None, 1, {"ok": 1}), (None, 0, {"ok": 1}), (KeyError("a"), 1, failed("KeyError"))],
    ids=["the client leaves", "before it reads", "closing fails"],
)
def test_body_is_closed_whatever_was_read_of_it(
    error: Exception | None, chunks: int, expected: dict[str, int], totals: Totals
) -> None:
    inner = Body(error)
    body: Any = ArbiterWSGIMiddleware(_app("200 OK", lambda: inner))(_environ(), _start)
    assert [next(body) for _ in range(chunks)] == [b"a"] * chunks
    with pytest.raises(KeyError) if error else nullcontext():
        body.close()
    assert (inner.closed, totals()) == (1, expected)


def test_client_that_leaves_before_the_answer_counts_nothing(totals: Totals) -> None:
    def app(_environ: WSGIEnvironment, start_response: StartResponse) -> Iterator[bytes]:
        start_response("200 OK", PLAIN)
        yield b"never asked for"

    body: Any = ArbiterWSGIMiddleware(app)(_environ(), _start)
    body.close()
    assert totals() == {}


@pytest.mark.parametrize(
    "wrapper", [FileWrapper, lambda file: iter([file.read()]), None], ids=["class", "function", "none"]
)
def test_file_reaches_the_server_as_the_app_wrapped_it(wrapper: Any, totals: Totals) -> None:
    file = FileWrapper(io.BytesIO(b"file"))
    environ = _environ() | {"wsgi.file_wrapper": wrapper}
    body = ArbiterWSGIMiddleware(_app("200 OK", lambda: file))(environ, _start)
    assert (body is file) == (wrapper is FileWrapper)
    assert b"".join(body) == b"file"
    assert totals() == {"ok": 1}


def test_path_that_is_ignored_is_not_looked_at(totals: Totals) -> None:
    assert b"503" in _serve(_app("503 Not Now", _chunks), "/health", ignore_paths=["/health"])
    assert totals() == {}
