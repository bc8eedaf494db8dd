"""Arbitrary input for every input of a sidecar, each made from a generator of random numbers: a seed repeats it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

NUMBER_OF_INPUTS: Final = pytest.mark.parametrize(
    "inputs", [2_000, pytest.param(1_000_000, marks=[pytest.mark.site, pytest.mark.timeout(1_500)])], ids="{:,}".format
)
"""Gives a test the number of its inputs."""

LINES: Final = (
    *(b"GET /health HTTP/1.1", b"HEAD /health/nomad HTTP/1.1", b"GET /livez HTTP/1.0", b"POST /health HTTP/1.1"),
    *(b"POST /errors HTTP/1.1", b"GET /metrics?a=b HTTP/1.1", b"OPTIONS * HTTP/1.0", b"CONNECT a:80 HTTP/1.1"),
)
HEADERS: Final = (
    *(b"Host:", b"Connection: close", b"Connection: keep-alive", b"Connection: Upgrade", b"Upgrade: websocket"),
    *(b"Upgrade: h2c", b"Content-Length: 0", b"Content-Length: 5", b"Content-Length: 99999", b"Content-Length: 1_0"),
    *(b"Transfer-Encoding: chunked", b"Expect: 100-continue", b"User-Agent: Nomad/1.8", b"Accept: */*"),
    *(b"X: \xff", b"X : y", b" folded", b"X: \x00", b"X: a\nY: b"),
)
BODIES: Final = (
    *(b"", b"", b"hello", b"5\r\nhello\r\n0\r\n\r\n", b"1\r\nx\r\n" * 200, b"0\r\nA: b\r\n\r\n", b"zz\r\n"),
    b"x" * 3_000,
)
REPORTS: Final = (
    *(b"", b"{}", b'{"count":3}', b'[{"kind":"redis"},{"count":2}]', b'{"level":"recovered"}', b'{"ok":1,"load":2}'),
    *(b'{"cuont":1}', b'{"count":1e999}', b'[{"kind":7}]', b"[" * 2_000, b'{"message":"\xff"}', b"[1," * 500),
    *(b"9" * 5_000, b'[{"app_start":"' + b"a" * 70 + b'"}]', b'"\\ud800"', b"2\r\n{}\r\n0\r\n\r\n", b"1\r\n{\r\n" * 9),
)
ALPHABET: Final = b"\r\n\r\n :;\x00\x7f\xff0aGET /"

METRICS: Final = b"errors requests failed heartbeat in_flight load web.errors other  _e{1,1}".split(b" ")
VALUES: Final = (
    b"1",
    b"0",
    b"7.0",
    b"1e3",
    b"-1",
    b"nan",
    b"inf",
    b"9" * 400,
    b"1:2:3",
    b"",
    b"0x1",
    b"1_0",
    b"\xd9\xa1",
)
TYPES: Final = (
    *(b"c", b"g", b"ms", b"s", b"x", b"", b"c|@0.5", b"c|@0", b"c|@0." + b"0" * 50 + b"1", b"c|#kind:a,level:b"),
    *(b"c|#fatal:true", b"c|#app_start:" + b"x" * 90, b"c|T1700000000", b"c|@1|@1", b"c|#" + b"," * 500),
)

SAMPLES: Final = (
    *(b"errors_total 5", b'errors_total{code="500"} 7', b"# TYPE errors_total counter", b"# EOF", b"errors_total NaN"),
    *(b"errors_total 1e308", b"errors_total -Inf", b'errors_total{a="\\\\\\""} 1', b'errors_total{a="', b"{}", b""),
    *(b"errors_total{" + b'a="b",' * 40 + b"} 1", b"errors_total " + b"9" * 900, b"\xff\xfe 1", b"x" * 3_000 + b" 1"),
)


def http(chance: Random) -> bytes:
    """Up to three requests, of which headers or a few bytes may be wrong."""
    parts = []
    for _ in range(chance.randint(1, 3)):
        headers = chance.sample(HEADERS, k=chance.choice((0, 0, 0, 1, 4)))
        if b"Host: localhost" not in headers:
            headers.append(b"Host: localhost")
        body = chance.choice(BODIES)
        if chance.random() < 0.5:
            headers += [b"Content-Length: %d" % len(body)] if body else []
        parts.append(b"\r\n".join([chance.choice(LINES), *headers, b"", b""]) + body)
    return _mutated(b"".join(parts), chance)


def report(chance: Random) -> bytes:
    """A body for the local listener, of which a few bytes may be wrong."""
    return _mutated(chance.choice(REPORTS), chance)


def packet(chance: Random) -> bytes:
    """Up to five lines of StatsD, of which few are valid."""
    lines = [
        b"%s:%s|%s" % (chance.choice(METRICS), chance.choice(VALUES), chance.choice(TYPES))
        for _ in range(chance.randint(1, 5))
    ]
    return _mutated(b"\n".join(lines), chance)


def page(chance: Random) -> bytes:
    """A short page of metrics, of which lines may be wrong."""
    return _mutated(b"\n".join(chance.choices(SAMPLES, k=chance.randint(1, 6))) + b"\n", chance)


def pieces(data: bytes, chance: Random, sizes: tuple[int, ...]) -> Iterator[bytes]:
    """The data as a network might deliver it."""
    while data:
        size = chance.choice(sizes)
        yield data[:size]
        data = data[size:]


def _mutated(content: bytes, chance: Random) -> bytes:
    data = bytearray(content)
    for _ in range(chance.choice((0, 0, 0, 1, 3))):
        at = chance.randrange(len(data) + 1)
        data[at : at + chance.randint(0, 2)] = chance.choices(ALPHABET, k=chance.randint(0, 2))
    return bytes(data)
