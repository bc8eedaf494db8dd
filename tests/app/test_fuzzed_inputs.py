"""Every input of a sidecar may get anything: only valid reports count, nothing fails, and nothing is left over.

2,000 inputs for each, and a million in the site tier. Each is made from its number alone: a failure names it.
"""

from __future__ import annotations

import asyncio
import re
import socket
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING

import pytest

from harness import fuzz
from harness.listeners import serving
from harness.raw_http import Observed, RawConnection, post
from sidecar.config.addresses import split
from sidecar.config.selectors import parse_selectors
from sidecar.config.syntax import KIND
from sidecar.core.app_reports import ErrorReport, Report, Results
from sidecar.core.life.container import start
from sidecar.core.life.snapshot import Snapshot
from sidecar.core.types import Evidence, Policy
from sidecar.inputs import report_api
from sidecar.inputs.counter_increments import SeriesUse
from sidecar.inputs.datagram import Datagrams
from sidecar.inputs.exposition import BadPageError, Scanner
from sidecar.inputs.report_bodies import MOST_ERRORS
from sidecar.inputs.series_selection import SeriesSelection
from sidecar.server.agent_check import AgentCheck
from sidecar.server.health import Health, public_pages
from sidecar.server.public import PublicServer
from sidecar.server.public_http import PublicAnswer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from sidecar.net.web import Routes

SEED = 20261123
NOTHING = Evidence(60, 0, {}, {}, newest_age_s=None)
AT_ONCE = 50
STATUS = re.compile(rb"HTTP/1\.[01] ([0-9]{3}) [A-Z]")
SIZES = (40, 700, 16_384)


class Sidecar:
    """What the listeners pass on."""

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

    def local_routes(self) -> Routes:
        """The reports of the local listener."""
        return report_api.routes(
            self.offer,
            snapshot=self.snapshot,
            mode="enforce",
        )

    def public(self) -> PublicServer:
        """The public listener as the daemon builds it, without a socket."""
        health = Health(
            self.snapshot,
            stale_after_s=60.0,
            on_poll=self.on_poll,
            on_failure=self.failures.append,
            explanation=lambda _: "down",
            clock=lambda: 105.0,
        )
        return PublicServer(
            public_pages(health, metrics=lambda: PublicAnswer(200, b"a 1\n"), why=lambda _: PublicAnswer(200, b"up\n")),
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


def _answers(server: PublicServer, data: bytes, chance: Random) -> bytes:
    """All that a client of the public listener gets that sends this, and then sends no more."""
    with socket.create_connection(split(server.addresses[0])) as client:
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


@fuzz.NUMBER_OF_INPUTS
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


@fuzz.NUMBER_OF_INPUTS
async def test_local_listener_counts_a_report_for_each_202_and_nothing_else(sidecar: Sidecar, inputs: int) -> None:
    observed, taken = Observed(), 0
    async with serving(sidecar.local_routes(), observed) as server, await RawConnection.to(server) as app:
        for number in range(inputs):
            chance = Random(SEED + number)
            path, body = chance.choice(("/errors", "/errors", "/results")), fuzz.report(chance)
            answer = await app.ask(post(path, body))
            assert answer.status in (202, 400), (number, body)
            taken += answer.status == 202
            assert sidecar.offers == taken, (number, body)
    assert observed.failures == []
    assert inputs / 10 < taken < inputs, "the inputs are too bad to tell anything"
    for report in sidecar.reports:
        assert isinstance(report, Results) or 0 <= getattr(report, "errors", 0) <= MOST_ERRORS


@fuzz.NUMBER_OF_INPUTS
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


@fuzz.NUMBER_OF_INPUTS
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


@fuzz.NUMBER_OF_INPUTS
def test_scraped_page_is_read_or_refused(inputs: int) -> None:
    selection = SeriesSelection(parse_selectors('errors_total{code=~"5.."}'), parse_selectors("errors_total"))
    read = 0
    for number in range(inputs):
        chance = Random(SEED + number)
        openmetrics = chance.random() < 0.5
        selection.begin()
        scanner: Scanner[SeriesUse] = Scanner(selection.names, selection.use, openmetrics=openmetrics)
        try:
            for piece in fuzz.pieces(fuzz.page(chance), chance, SIZES):
                scanner.feed(piece)
            page = scanner.finish(whole=True)
        except BadPageError:
            continue
        assert len(page.uses) == len(page.values) <= 6, number
        read += 1
    assert read > inputs / 10, "the inputs are too bad to tell anything"
