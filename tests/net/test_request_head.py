"""What is read of a request head before aiohttp sees it, and what is refused."""

from __future__ import annotations

import pytest

from sidecar.net.chunked_body import CHUNKS_LIMIT, ChunkedBody, TooManyChunksError
from sidecar.net.request_head import (
    CACHED,
    CHUNKED,
    HEAD_LIMIT,
    BadHeadError,
    HeadParser,
    RequestHead,
    parse,
    refuse_hopeless,
)


def _raw(line: str, *headers: str) -> bytes:
    return "\r\n".join((line, *headers, "", "")).encode("latin-1")


@pytest.mark.parametrize(
    ("raw", "head"),
    [
        pytest.param(
            _raw("GET /health HTTP/1.1", "Host: a", "User-Agent: Consul Health Check"),
            RequestHead("GET", "/health", 1, keeps=True, length=0, user_agent="Consul Health Check", is_plain=True),
            id="poll",
        ),
        pytest.param(
            _raw("GET /a?b=c HTTP/1.0"),
            RequestHead("GET", "/a?b=c", 0, keeps=False, length=0, user_agent="", is_plain=True),
            id="1.0",
        ),
        pytest.param(
            _raw("HEAD / HTTP/1.0", "CONNECTION: Keep-Alive"),
            RequestHead("HEAD", "/", 0, keeps=True, length=0, user_agent="", is_plain=True),
            id="1.0 kept",
        ),
        pytest.param(
            _raw("GET / HTTP/1.1", "host:", "connection:\tclose "),
            RequestHead("GET", "/", 1, keeps=False, length=0, user_agent="", is_plain=True),
            id="close",
        ),
        pytest.param(
            _raw("POST /errors HTTP/1.1", "Host: a", "Content-Length: 007"),
            RequestHead("POST", "/errors", 1, keeps=True, length=7, user_agent="", is_plain=False),
            id="body",
        ),
        pytest.param(
            _raw("POST / HTTP/1.1", "Host: a", "Transfer-Encoding: Chunked"),
            RequestHead("POST", "/", 1, keeps=True, length=CHUNKED, user_agent="", is_plain=False),
            id="chunks",
        ),
        pytest.param(
            _raw("GET / HTTP/1.1", "Host: a", "Expect: 100-continue"),
            RequestHead("GET", "/", 1, keeps=True, length=0, user_agent="", is_plain=False),
            id="asks for more than an answer",
        ),
        pytest.param(
            _raw("GET / HTTP/1.1", "Host: a", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c"),
            RequestHead("GET", "/", 1, keeps=True, length=0, user_agent="", is_plain=False),
            id="Java, which asks for HTTP/2 each time and can do without",
        ),
    ],
)
def test_head_is_read(raw: bytes, head: RequestHead) -> None:
    assert parse(raw) == head


@pytest.mark.parametrize(
    ("word", "raw"),
    [
        *(
            ("upgrade", _raw("GET / HTTP/1.1", "Host: a", *headers))
            for headers in (
                ["Connection: Upgrade", "Upgrade: websocket"],
                ["Upgrade: WebSocket"],
                ["Connection: upgrade", "Upgrade: h2c, websocket"],
                ["Connection: upgrade", "Upgrade: h2c", "Upgrade: websocket"],
            )
        ),
        ("upgrade", _raw("CONNECT a:80 HTTP/1.1", "Host: a")),
        ("body", _raw("GET / HTTP/1.1", "Host: a", "Content-Length: 1")),
        ("body", _raw("HEAD / HTTP/1.1", "Host: a", "Transfer-Encoding: chunked")),
        ("not_http", _raw("POST / HTTP/1.1", "Host: a", "Transfer-Encoding: gzip, chunked")),
        ("not_http", _raw("POST / HTTP/1.1", "Host: a", "Transfer-Encoding: chunked", "Content-Length: 1")),
        ("not_http", _raw("POST / HTTP/1.0", "Transfer-Encoding: chunked")),
        ("not_http", _raw("POST / HTTP/1.1", "Host: a", "Content-Length: 1", "Content-Length: 1")),
        ("not_http", _raw("POST / HTTP/1.1", "Host: a", "Content-Length: +1")),
        ("not_http", _raw("GET / HTTP/1.1", "Host: a", "A : b")),
        ("not_http", _raw("GET / HTTP/1.1", "Host: a", "A: b\nC: d")),
        ("not_http", _raw("GET  / HTTP/1.1", "Host: a")),
    ],
)
def test_head_that_is_refused_says_why(word: str, raw: bytes) -> None:
    with pytest.raises(BadHeadError) as refused:
        parse(raw)
    assert (refused.value.status, refused.value.word) == (400, word)


def test_every_beginning_of_a_head_may_still_become_one() -> None:
    raw = _raw("OPTIONS http://a/b?c HTTP/1.1", "Host: a", "X: y")
    for end in range(1, len(raw)):
        refuse_hopeless(raw[:end])


@pytest.mark.parametrize(
    "data",
    [b"\x16\x03\x01", b"SSH-2.0", b"GET /\r\n", b"get /", b"GET " + b"x" * 5_000, b"G" * 40, b"GET / HTTP/2.0\r\n"],
)
def test_beginning_that_can_become_no_head_is_refused_at_once(data: bytes) -> None:
    with pytest.raises(BadHeadError):
        refuse_hopeless(data)


def test_longest_request_line_may_come_in_pieces_and_a_longer_one_is_refused() -> None:
    line = b"G" * 32 + b" /" + b"x" * 4_095 + b" HTTP/1.1"
    for data in (line[:-1], line, line + b"\r", line + b"\r\n", line + b"\r\nHost: a"):
        refuse_hopeless(data)
        for longer in (b"G" + data, data.replace(b"x", b"xx", 1)):
            with pytest.raises(BadHeadError):
                refuse_hopeless(longer)


def test_head_without_an_end_is_bounded() -> None:
    data = b"GET / HTTP/1.1\r\n"
    refuse_hopeless(data + b"A: b\r\n" * ((HEAD_LIMIT - len(data)) // 6))
    with pytest.raises(BadHeadError):
        refuse_hopeless(data + b"A: b\r\n" * (HEAD_LIMIT // 6))


def test_few_heads_are_remembered_and_no_long_ones() -> None:
    heads = HeadParser()
    for n in range(10 * CACHED):
        assert heads.read(_raw(f"GET /{n} HTTP/1.0")).target == f"/{n}"
    heads.read(_raw("GET / HTTP/1.0", "A: " + "b" * 4_000))
    assert len(heads._known) <= CACHED
    assert max(map(len, heads._known)) < 100


def test_parser_without_bodies_refuses_them_all() -> None:
    heads = HeadParser(takes_bodies=False)
    raw = _raw("POST /health HTTP/1.1", "Host: a", "Content-Length: 1")
    for _ in range(2):
        with pytest.raises(BadHeadError, match="body"):
            heads.read(raw)


# -- chunks -------------------------------------------------------------------------------------------------


def _chunked(*chunks: bytes) -> bytes:
    return b"".join(b"%X\r\n%s\r\n" % (len(chunk), chunk) for chunk in (*chunks, b""))


@pytest.mark.parametrize("piece", [1, 2, 3, 7, 64, 1_000])
def test_end_of_a_body_is_found_in_pieces_of_any_size(piece: int) -> None:
    body = _chunked(b"a", b"\r\n0\r\n\r\n", b"x" * 300)
    data, chunks, taken = body + b"GET / HTTP/1.1\r\n", ChunkedBody(), 0
    while not chunks.is_over:
        taken += chunks.take(data[taken : taken + piece])
    assert data[:taken] == body


@pytest.mark.parametrize(
    "data", [b"zz\r\n", b"-1\r\n", b"1;a=b\r\n", b"1\n", b"\r\n", b"0\r\nTrailer: a\r\n\r\n", b"1" * 20, b" 1\r\n"]
)
def test_invalid_chunk_is_an_error_in_pieces_of_any_size(data: bytes) -> None:
    for pieces in ([data], [data[n : n + 1] for n in range(len(data))]):
        chunks = ChunkedBody()
        with pytest.raises(ValueError, match=r"no chunk|trailers"):
            sum(map(chunks.take, pieces))


def test_number_of_chunks_is_bounded() -> None:
    most = [b"x"] * (CHUNKS_LIMIT - 1)
    assert ChunkedBody().take(_chunked(*most)) == len(_chunked(*most))
    with pytest.raises(TooManyChunksError):
        ChunkedBody().take(_chunked(*most, b"x"))
