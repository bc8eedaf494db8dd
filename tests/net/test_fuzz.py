"""A listener that receives arbitrary bytes never fails, never buffers much, and parses as aiohttp does.

2,000 inputs, and a million in the site tier. Each is made from its number alone: a failure names it.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http import HttpProcessingError, HttpRequestParser

from harness import fuzz
from sidecar.net.connection import READ_BYTES, Connection
from sidecar.net.request_head import END, HEAD_LIMIT, BadHeadError, HeadParser, RequestHead, parse

SEED = 20261122
READY = {"/health", "/health/nomad", "/livez"}
A_LOOP = 2_000


def _messages(data: bytes) -> list[Any]:
    """What aiohttp reads; nothing if it refuses it."""
    loop = asyncio.get_running_loop()
    parser = HttpRequestParser(BaseProtocol(loop), loop, 65_536, max_headers=32, auto_decompress=False)
    try:
        return list(parser.feed_data(data)[0])
    except HttpProcessingError:
        return []


class _FakeHandler:
    """In aiohttp's place: takes a request, and answers when it is whole."""

    def __init__(self, owner: _FakeOwner) -> None:
        self._owner = owner
        self.is_waiting = True

    def data_received(self, data: bytes) -> None:
        if not self._owner.is_under_way:
            self._owner.is_under_way = True
            self._owner.asked.append(b"")
        self._owner.asked[-1] += data

    def close(self) -> None:
        pass

    def connection_lost(self, _exc: Exception | None) -> None:
        pass


class _Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.is_reading_ = True
        self.is_closed = False

    def write(self, data: Any) -> None:
        assert not self.is_closed
        self.written += data

    def pause_reading(self) -> None:
        self.is_reading_ = False

    def resume_reading(self) -> None:
        self.is_reading_ = True

    def close(self) -> None:
        self.is_closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.is_closed

    def can_write_eof(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0


class _FakeOwner:
    """A listener whose responses come from its cache or from ``_FakeHandler``."""

    def __init__(self, transport: _Transport) -> None:
        self.heads = HeadParser()
        self.buffer = memoryview(bytearray(READ_BYTES))
        self.connection = Connection(self)
        self.asked: list[bytes] = []
        self.is_under_way = False
        self.answered: list[RequestHead] = []
        self.words: list[str] = []
        self.waiting: list[Connection] = []
        self.connection.connection_made(transport)

    def response_cache(self, head: RequestHead) -> bytes | None:
        if not head.target.startswith(("/health", "/livez")):
            return None
        self.answered.append(head)
        return b"answer"

    def new_handler(self, _connection: Connection) -> Any:
        return _FakeHandler(self)

    def continue_later(self, connection: Connection) -> None:
        self.waiting.append(connection)

    def on_refusal(self, word: str) -> None:
        self.words.append(word)

    def cut(self, connection: Connection, word: str) -> None:
        self.words.append(word)
        connection.abort()

    def add(self, connection: Connection) -> None:
        pass

    note_request = remove = add

    def note_unread(self, connection: Connection, *, is_unread: bool) -> None:
        pass


def _fed(data: bytes, chance: random.Random) -> _FakeOwner:
    """A listener that has received ``data``. aiohttp's responses come between two pieces."""
    transport = _Transport()
    owner = _FakeOwner(transport)
    connection = owner.connection
    for piece in fuzz.pieces(data, chance, (1, 7, 50, READ_BYTES)):
        if transport.is_closed:
            break
        owner.buffer[: len(piece)] = piece
        connection.buffer_updated(len(piece))
        for _ in range(10):
            if connection.is_asked and not connection._body:
                owner.is_under_way = False
                connection.answered()
            waiting, owner.waiting = owner.waiting, []
            for each in waiting:
                each.advance()
        assert len(connection._rest) <= HEAD_LIMIT + READ_BYTES
    return owner


@fuzz.EACH_DOOR
async def test_no_input_makes_a_listener_fail_or_pass_on_more_than_one_request_at_a_time(inputs: int) -> None:
    handed = answered = 0
    for number in range(inputs):
        chance = random.Random(SEED + number)
        data = fuzz.http(chance)
        owner = _fed(data, chance)
        for asked in owner.asked:
            assert len(_messages(asked)) <= 1, (number, asked)
        handed += len(owner.asked)
        answered += len(owner.answered)
        if not number % A_LOOP:
            await asyncio.sleep(0)
    assert min(handed, answered) > inputs / 10, "the inputs are too bad to tell anything"


@fuzz.EACH_DOOR
async def test_requests_answered_from_the_cache_mean_the_same_to_aiohttp(inputs: int) -> None:
    plain = 0
    for number in range(inputs):
        raw = fuzz.http(random.Random(SEED - number)).partition(END)[0] + END
        try:
            head = parse(raw)
        except BadHeadError:
            continue
        if not head.is_plain or head.method not in {"GET", "HEAD"} or head.target not in READY:
            continue
        plain += 1
        ((message, _),) = _messages(raw) or pytest.fail(f"{number}: aiohttp refuses {raw!r}")
        assert (message.method, message.path) == (head.method, head.target), number
        assert message.version == (1, head.minor), number
        assert message.should_close is not head.keeps, number
        assert not message.upgrade, number
        assert message.headers.get("User-Agent", "") == head.user_agent, number
    assert plain > inputs / 20, "the inputs are too bad to tell anything"
