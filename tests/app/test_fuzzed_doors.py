"""Every door takes arbitrary input: only valid reports count, nothing fails, and nothing is left over.

2,000 inputs for each, and a million in the site tier. Each is made from its number alone: a failure names it.
"""

from __future__ import annotations

import asyncio
import re
import socket
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from harness import fuzz
from harness.public_door import place_of
from sidecar.config.kinds import KIND
from sidecar.config.selectors import parse_selectors
from sidecar.core.life.container import start
from sidecar.core.life.snapshot import Snapshot
from sidecar.core.types import ErrorReport, Evidence, Policy, Report, Results
from sidecar.inputs import report_api
from sidecar.inputs.counter_increments import SeriesUse
from sidecar.inputs.datagram import Datagrams
from sidecar.inputs.exposition import Scanner
from sidecar.inputs.report_bodies import MOST_ERRORS
from sidecar.inputs.series import BadPageError
from sidecar.inputs.series_selection import SeriesSelection
from sidecar.net.connection import Connection
from sidecar.net.listener import Listener
from sidecar.server.agent_check import AgentCheck
from sidecar.server.health import Health
from sidecar.server.public import PublicServer
from sidecar.server.public_answer import PublicAnswer
from sidecar.server.public_pages import public_pages

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

SEED = 20261123
NOTHING = Evidence(60, 0, {}, {}, oldest_age_s=None, newest_age_s=None)
TURNS = 8
"""Turns of the loop in which aiohttp answers every whole request of an input."""

AT_ONCE = 50
STATUS = re.compile(rb"HTTP/1\.[01] ([0-9]{3}) [A-Z]")
SIZES = (40, 700, 16_384)


class Sidecar:
    """Stands behind the doors, and notes what comes through them."""

    def __init__(self) -> None:
        self.reports: list[Report] = []
        self.offers = 0
        self.refusals: list[str] = []
        self.failures: list[Exception] = []
        self.polls = 0

    def offer(self, reports: Sequence[Report]) -> bool:
        self.offers += 1
        self.reports += reports
        return True

    def on_poll(self, *_poll: object) -> None:
        self.polls += 1

    def snapshot(self) -> Snapshot:
        return Snapshot(105.0, start("app/a", 100.0, Policy()), NOTHING, 100.0)

    def local(self) -> Listener:
        """The local listener as the daemon builds it, without a socket."""
        return Listener(
            "local",
            report_api.routes(
                self.offer,
                on_exit=lambda: None,
                state=lambda: self.snapshot().container.state,
                snapshot=self.snapshot,
                mode="enforce",
            ),
            on_refusal=lambda _, word: self.refusals.append(word),
            on_failure=self.failures.append,
            guard=report_api.refuse_browsers,
        )

    def public(self) -> PublicServer:
        """The public listener as the daemon builds it, without a socket."""
        health = Health(
            self.snapshot,
            down_status=503,
            stale_after_s=60.0,
            on_poll=self.on_poll,
            on_failure=self.failures.append,
            clock=lambda: 105.0,
        )
        return PublicServer(
            public_pages(health, {"/metrics": lambda _: PublicAnswer(200, b"a 1\n")}),
            on_refusal=lambda _, word: self.refusals.append(word),
            on_failure=self.failures.append,
        )


@pytest.fixture
def sidecar() -> Sidecar:
    return Sidecar()


async def _until(is_done: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not is_done():  # noqa: ASYNC110 - nothing sets an event
            await asyncio.sleep(0)


class _Socket:
    """A new connection with its first bytes."""

    def __init__(self, first: bytes) -> None:
        self._first = first
        self.sent = b""
        self.is_closed = False

    def recv(self, size: int) -> bytes:
        taken, self._first = self._first[:size], self._first[size:]
        if not taken:
            raise BlockingIOError
        return taken

    def send(self, data: bytes) -> int:
        self.sent += data
        return len(data)

    def close(self) -> None:
        self.is_closed = True


class _Transport(asyncio.Transport):
    """Takes everything that is written; the peer is a TCP address or a unix socket."""

    def __init__(self, peer: object) -> None:
        super().__init__({"peername": peer})
        self.written = bytearray()
        self.is_closed = False

    def write(self, data: Any) -> None:
        self.written += data

    def close(self) -> None:
        self.is_closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.is_closed

    def can_write_eof(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        pass

    resume_reading = pause_reading


async def _responses(listener: Listener, data: bytes, chance: Random, peer: object) -> bytes:
    """All that a client gets that sends this, and then closes its connection."""
    first, *more = fuzz.pieces(data, chance, SIZES)
    opened = _Socket(first)
    early = listener._fast_path.read(opened)  # type: ignore[arg-type]
    if early is None:
        assert opened.is_closed
        return opened.sent
    server = listener._server
    connection, transport = server(early + opened._first), _Transport(peer)
    connection.connection_made(transport)
    for piece in more:
        if transport.is_closed:
            break
        server.buffer[: len(piece)] = piece
        connection.buffer_updated(len(piece))
        await asyncio.sleep(0)
    for _ in range(TURNS):
        if transport.is_closed or _is_idle(connection):
            break
        await asyncio.sleep(0)
    connection.connection_lost(None)
    return opened.sent + bytes(transport.written)


def _is_idle(connection: Connection) -> bool:
    """Whether every response has left, and no byte of another request has come."""
    return not connection._rest and not connection._body and connection._is_answered


def _answers(server: PublicServer, data: bytes, chance: Random) -> bytes:
    """All that a client of the public listener gets that sends this, and then sends no more."""
    with socket.create_connection(place_of(server)) as client:
        for piece in fuzz.pieces(data, chance, SIZES):
            with suppress(OSError):
                client.sendall(piece)
            server.turn()
        with suppress(OSError):  # it is closed already
            client.shutdown(socket.SHUT_WR)
        client.settimeout(0)
        received, piece = b"", b""
        while True:
            server.turn()
            try:
                piece = client.recv(65_536)
            except BlockingIOError:
                continue
            except ConnectionResetError:
                return received
            if not piece:
                return received
            received += piece


@fuzz.EACH_DOOR
async def test_public_listener_answers_or_refuses(sidecar: Sidecar, inputs: int) -> None:
    server, answered = sidecar.public(), 0
    await server.open_tcp("127.0.0.1", 0)
    for number in range(inputs):
        chance = Random(SEED + number)
        statuses = STATUS.findall(_answers(server, fuzz.http(chance), chance))
        assert {b"200"}.issuperset(status for status in statuses if not status.startswith(b"4")), number
        assert sidecar.failures == [], number
        answered += b"200" in statuses
    assert answered > inputs / 10, "the inputs are too bad to tell anything"
    server.turn()
    assert server.connected == 0
    await server.close()


@fuzz.EACH_DOOR
@pytest.mark.parametrize("peer", [("127.0.0.1", 7), ""], ids=["TCP", "unix"])
async def test_local_listener_counts_a_report_for_each_202_and_nothing_else(
    sidecar: Sidecar, peer: object, inputs: int
) -> None:
    listener, answered = sidecar.local(), 0
    for number in range(inputs):
        chance = Random(SEED + number)
        data = fuzz.http(chance, fuzz.REPORT_LINES, fuzz.REPORTS)
        before = sidecar.offers
        statuses = STATUS.findall(await _responses(listener, data, chance, peer))
        assert {b"100", b"200", b"202"}.issuperset(status for status in statuses if not status.startswith(b"4")), (
            number,
            data,
        )
        assert sidecar.offers - before == statuses.count(b"202"), (number, data)
        assert sidecar.failures == [], (number, data)
        answered += any(status.startswith(b"2") for status in statuses)
    assert answered > inputs / 10, "the inputs are too bad to tell anything"
    for report in sidecar.reports:
        assert isinstance(report, Results) or 0 <= getattr(report, "errors", 0) <= MOST_ERRORS
    await _until(lambda: asyncio.all_tasks() == {asyncio.current_task()})
    assert not listener._server._last_request


@fuzz.EACH_DOOR
@pytest.mark.parametrize("kind", ["udp", "unix"])
async def test_datagrams_count_valid_lines_only(sidecar: Sidecar, kind: str, run_dir: Path, inputs: int) -> None:
    datagrams = Datagrams(sidecar.offer, on_failure=sidecar.failures.append, prefix="web")
    path = str(run_dir / "statsd.sock")
    await (datagrams.open_unix(path) if kind == "unix" else datagrams.open_udp("127.0.0.1", 0))
    client = socket.socket(socket.AF_UNIX if kind == "unix" else socket.AF_INET, socket.SOCK_DGRAM)
    host, _, port = datagrams.addresses[0].rpartition(":")
    client.connect(path if kind == "unix" else (host, int(port)))
    client.settimeout(0)
    try:
        for number in range(inputs):
            packet = fuzz.packet(Random(SEED + number))
            while True:
                try:
                    client.send(packet)
                except BlockingIOError:  # a unix socket queues ten packets
                    await asyncio.sleep(0)
                else:
                    break
            if not number % AT_ONCE:
                await _until(lambda number=number: datagrams.packets > number)  # type: ignore[misc]
        await _until(lambda: datagrams.packets == inputs)
    finally:
        client.close()
        datagrams.close()
    assert sidecar.failures == []
    assert inputs / 10 < datagrams.unreadable < datagrams.lines
    errors = [report for report in sidecar.reports if isinstance(report, ErrorReport)]
    assert errors
    assert all(0 <= report.errors <= AT_ONCE * 5 * MOST_ERRORS for report in errors)
    assert all(KIND.fullmatch(report.kind) for report in errors)


@fuzz.EACH_DOOR
async def test_agent_check_answers_whatever_a_client_sends(sidecar: Sidecar, inputs: int) -> None:
    agent = AgentCheck(sidecar.snapshot, on_poll=sidecar.on_poll, on_failure=sidecar.failures.append)
    await agent.open_tcp("127.0.0.1", 0)
    host, _, port = agent.addresses[0].rpartition(":")
    for begin in range(0, inputs, AT_ONCE):
        clients = []
        for number in range(begin, begin + AT_ONCE):
            clients.append(socket.create_connection((host, int(port))))
            clients[-1].sendall(fuzz.http(Random(SEED + number)) if number % 2 else b"")
        await _until(lambda begin=begin: sidecar.polls == begin + AT_ONCE)  # type: ignore[misc]
        for client in clients:
            client.close()
    agent.stop()
    assert (sidecar.polls, sidecar.failures) == (inputs, [])


@fuzz.EACH_DOOR
def test_scraped_page_is_read_or_refused(inputs: int) -> None:
    selection = SeriesSelection(parse_selectors('errors_total{code=~"5.."}'), parse_selectors("errors_total"))
    read = 0
    for number in range(inputs):
        chance = Random(SEED + number)
        openmetrics = chance.random() < 0.5
        selection.begin(openmetrics=openmetrics)
        scanner: Scanner[SeriesUse] = Scanner(selection.families, selection.use, openmetrics=openmetrics)
        try:
            for piece in fuzz.pieces(fuzz.page(chance), chance, SIZES):
                scanner.feed(piece)
            page = scanner.finish(whole=True)
        except BadPageError:
            continue
        assert len(page.found) == len(page.values) <= 6, number
        read += 1
    assert read > inputs / 10, "the inputs are too bad to tell anything"
