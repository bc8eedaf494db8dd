"""What the public listener reads of a request: the same as other servers, or nothing.

2,000 inputs, and a million in the site tier. Each is made from its number alone: a failure names it. What is refused,
and how, is asked of a listener in ``test_public``.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any, Final

import pytest
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http import HttpProcessingError, HttpRequestParser

from harness import fuzz
from sidecar.net.http_error import HttpError
from sidecar.server.public_http import END, HEAD_LIMIT, PublicRequest, parse, refuse_hopeless

SEED: Final = 20261122


@pytest.mark.parametrize(
    ("raw", "request_"),
    [
        (
            b"GET /why?format=text HTTP/1.1\r\nHost: a\r\nUser-Agent: curl/8\r\n\r\n",
            PublicRequest("GET", "/why", "format=text", keeps=True),
        ),
        (
            b"OPTIONS / HTTP/1.0\r\nUSER-AGENT:\tHAProxy \r\nX: \xff\r\n\r\n",
            PublicRequest("OPTIONS", "/", "", keeps=False),
        ),
    ],
)
def test_request_is_read(raw: bytes, request_: PublicRequest) -> None:
    assert parse(raw) == request_


@fuzz.NUMBER_OF_INPUTS
async def test_accepted_requests_mean_the_same_to_aiohttp(inputs: int) -> None:
    accepted = 0
    for number in range(inputs):
        raw = fuzz.http(random.Random(SEED - number)).partition(END)[0] + END
        try:
            request = parse(raw)
        except HttpError:
            continue
        accepted += 1
        ((message, _),) = _messages(raw) or pytest.fail(f"{number}: aiohttp refuses {raw!r}")
        path, _, query = message.path.partition("?")
        assert (message.method, path, query) == (request.method, request.path, request.query), number
        assert message.should_close is not request.keeps, number
    assert accepted > inputs / 20, "the inputs are too bad to tell anything"


def _messages(data: bytes) -> list[Any]:
    """What aiohttp reads; nothing if it refuses it."""
    loop = asyncio.get_running_loop()
    parser = HttpRequestParser(BaseProtocol(loop), loop, 65_536, max_headers=32, auto_decompress=False)
    try:
        return list(parser.feed_data(data)[0])
    except HttpProcessingError:
        return []


def test_every_beginning_of_a_head_may_still_become_one() -> None:
    raw = b"OPTIONS http://a/b?c HTTP/1.1\r\nHost: a\r\nX: y\r\n\r\n"
    for end in range(1, len(raw)):
        refuse_hopeless(raw[:end])


def test_longest_request_line_may_come_in_pieces_and_a_longer_one_is_refused() -> None:
    line = b"G" * 32 + b" /" + b"x" * 4_095 + b" HTTP/1.1"
    for data in (line[:-1], line, line + b"\r\n", line + b"\r\nHost: a"):
        refuse_hopeless(data)
    for longer in (b"G" + line, line.replace(b"x", b"xx", 1)):
        with pytest.raises(HttpError):
            refuse_hopeless(longer + b"\r\n")


def test_head_without_an_end_is_bounded() -> None:
    data = b"GET / HTTP/1.1\r\n"
    refuse_hopeless(data + b"A: b\r\n" * ((HEAD_LIMIT - len(data)) // 6))
    with pytest.raises(HttpError):
        refuse_hopeless(data + b"A: b\r\n" * (HEAD_LIMIT // 6))
