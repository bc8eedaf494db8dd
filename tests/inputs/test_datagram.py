"""StatsD packets on real sockets: what is reported, what waits, what is lost, and how that is counted."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from contextlib import asynccontextmanager, closing
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.ports import free_port
from harness.waiting import eventually
from sidecar.core.app_reports import ErrorReport, Heartbeat, Report, Results
from sidecar.inputs.datagram import BATCH, BATCH_BYTES, PACKET_LIMIT, RECEIVE_BUFFER, Datagrams

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

ONE = b"errors:1|c"


class Controller:
    """Takes reports unless it is full, and the errors of sockets that cannot be read."""

    def __init__(self) -> None:
        self.offers: list[Sequence[Report]] = []
        self.failures: list[Exception] = []
        self.full = False

    def offer(self, reports: Sequence[Report]) -> bool:
        if not self.full:
            self.offers.append(reports)
        return not self.full

    @property
    def errors(self) -> list[int]:
        """How many errors each offer brought."""
        return [sum(report.errors for report in offer if isinstance(report, ErrorReport)) for offer in self.offers]


@pytest.fixture
def controller() -> Controller:
    return Controller()


@asynccontextmanager
async def _opened(controller: Controller) -> AsyncIterator[Datagrams]:
    datagrams = Datagrams(controller.offer, on_failure=controller.failures.append)
    try:
        yield datagrams
    finally:
        datagrams.close()


@pytest.fixture
async def udp(controller: Controller) -> AsyncIterator[Datagrams]:
    async with _opened(controller) as datagrams:
        await datagrams.open_udp("127.0.0.1", 0)
        yield datagrams


@pytest.fixture
def path(run_dir: Path) -> str:
    return str(run_dir / "statsd.sock")


@pytest.fixture
async def unix(controller: Controller, path: str) -> AsyncIterator[Datagrams]:
    async with _opened(controller) as datagrams:
        await datagrams.open_unix(path)
        yield datagrams


@pytest.fixture
def client(udp: Datagrams) -> Iterator[socket.socket]:
    with _connected(udp.addresses[0]) as connected:
        yield connected


def _connected(address: str) -> socket.socket:
    is_path = address.startswith("/")
    opened = socket.socket(socket.AF_UNIX if is_path else socket.AF_INET, socket.SOCK_DGRAM)
    try:
        opened.connect(address if is_path else _host_and_port(address))
    except OSError:
        opened.close()
        raise
    return opened


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


async def _assert_sum(controller: Controller, errors: int) -> None:
    await eventually(lambda: sum(controller.errors) >= errors, timeout_s=60, what=f"{errors} errors have come")
    assert sum(controller.errors) == errors


async def _assert_known(controller: Controller, datagrams: Datagrams, errors: int) -> None:
    """Each has come, or was counted as lost: the kernel may still be at it when the sender is done."""
    await eventually(
        lambda: sum(controller.errors) + datagrams.kernel_drops >= errors, timeout_s=60, what="all are counted"
    )
    assert sum(controller.errors) + datagrams.kernel_drops == errors


# -- packets ------------------------------------------------------------------------------------------------


async def test_udp_packet_becomes_reports(controller: Controller, udp: Datagrams, client: socket.socket) -> None:
    client.send(b"errors:2|c|#kind:redis\nrequests:10|c\nheartbeat:1|c\npage.views:1|c\n")
    await _assert_sum(controller, 2)
    assert controller.offers == [[ErrorReport(2, kind="redis"), Heartbeat(), Results(ok=10)]]
    assert (udp.packets, udp.lines, udp.unreadable) == (1, 4, 0)


async def test_socket_is_read_by_time_while_packets_come_and_watched_again_when_none_do(
    controller: Controller, udp: Datagrams, client: socket.socket
) -> None:
    """Or a thousand wake-ups a second would go on after the last packet."""
    for count in (1, 2):
        client.send(ONE)
        await eventually(lambda count=count: len(controller.offers) == count, timeout_s=60, what="it is read")  # type: ignore[misc]
        await eventually(lambda: not udp._pauses, timeout_s=60, what="the socket is watched again")


async def test_unix_socket_and_port_report_to_one_controller(
    controller: Controller, udp: Datagrams, client: socket.socket, path: str
) -> None:
    await udp.open_unix(path)
    with _connected(path) as other:
        client.send(ONE)
        other.send(ONE)
        await _assert_sum(controller, 2)
        client.send(b"errors:-1|c")
        client.send(ONE)  # the emptied socket is read again after a pause
        await _assert_sum(controller, 3)
    assert (udp.packets, udp.unreadable, udp.addresses[1]) == (4, 1, path)


async def test_prefix_that_was_forgotten_is_one_advice(controller: Controller) -> None:
    advice: list[str] = []
    datagrams = Datagrams(controller.offer, on_failure=controller.failures.append, on_advice=advice.append)
    await datagrams.open_udp("127.0.0.1", 0)
    with _connected(datagrams.addresses[0]) as client, closing(datagrams):
        for number in range(9):
            client.send(b"myapp.errors:%d|c" % number)
        await eventually(lambda: datagrams.lines == 9, timeout_s=60, what="they are read")
    assert [sentence.rpartition(" ")[2] for sentence in advice] == ["ARBITER_STATSD_PREFIX=myapp"]


async def test_packet_over_8_kib_is_dropped_and_counted(
    controller: Controller, udp: Datagrams, client: socket.socket
) -> None:
    for size in (PACKET_LIMIT + 1, PACKET_LIMIT, 60_000):
        client.send((ONE + b" " * (PACKET_LIMIT - len(ONE) - 1) + b"\n" * size)[:size])
    client.send(ONE)
    await _assert_sum(controller, 2)
    assert {"packets": 4, "lines": 2, "truncated": 2, "refused": 0, "kernel": 0}.items() <= udp.counts.items()


async def test_reports_refused_by_a_full_inbox_are_counted(
    controller: Controller, udp: Datagrams, client: socket.socket
) -> None:
    controller.full = True
    client.send(b"errors:1|c\nerrors:1|c|#kind:redis")
    await eventually(lambda: udp.refused, timeout_s=60, what="the reports are refused")
    assert udp.refused == 2
    controller.full = False
    client.send(ONE)
    await _assert_sum(controller, 1)


# -- turns --------------------------------------------------------------------------------------------------


async def test_each_turn_of_the_loop_reads_one_batch_and_reports_it(
    controller: Controller, udp: Datagrams, client: socket.socket
) -> None:
    turns: list[int] = []
    for _ in range(5 * BATCH):
        client.send(ONE)
    while udp.packets < 5 * BATCH and len(turns) < 100_000:
        turns.append(udp.packets)
        await asyncio.sleep(0)
    assert max(after - before for before, after in pairwise(turns)) == BATCH
    await _assert_sum(controller, 5 * BATCH)
    assert controller.errors[:4] == [BATCH] * 4


async def test_many_bytes_of_different_packets_are_parsed_in_bounded_pieces(
    controller: Controller, udp: Datagrams, client: socket.socket
) -> None:
    sent = [b"errors:1|c|#kind:k%d\n" % number * 8 for number in range(400)]
    for packet in sent:
        client.send(packet)
    lines = [0]
    while lines[-1] < 8 * len(sent) and len(lines) < 100_000:
        await asyncio.sleep(0)
        lines.append(udp.lines)
    assert max(after - before for before, after in pairwise(lines)) <= 8 * (BATCH_BYTES // len(sent[0]) + 1)
    await _assert_sum(controller, 8 * len(sent))


# -- the kernel ---------------------------------------------------------------------------------------------


async def test_packets_dropped_by_the_kernel_are_counted(
    controller: Controller, udp: Datagrams, client: socket.socket
) -> None:
    assert udp.kernel_drops == 0
    sent = 20_000
    for _ in range(sent):
        client.send(ONE)
    await _assert_known(controller, udp, sent)
    assert 0 < udp.kernel_drops < sent
    dropped = udp.kernel_drops
    udp.close()
    assert udp.kernel_drops == dropped


async def test_receive_buffer_is_as_large_as_the_system_allows(udp: Datagrams) -> None:
    (enlarged,) = udp._drops
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as plain:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
        allowed, size = (each.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) for each in (plain, enlarged))
    assert allowed <= size <= 2 * RECEIVE_BUFFER, "the kernel doubles it for its own bookkeeping (socket(7))"


async def test_socket_that_cannot_be_read_is_reported_and_the_others_go_on(
    controller: Controller, udp: Datagrams, client: socket.socket
) -> None:
    broken = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    broken.close()
    udp._readable(broken)
    assert [type(failure) for failure in controller.failures] == [OSError]
    client.send(ONE)
    await _assert_sum(controller, 1)


# -- addresses ----------------------------------------------------------------------------------------------


async def test_every_address_of_a_name_is_opened(controller: Controller) -> None:
    port = free_port()
    async with _opened(controller) as datagrams:
        await datagrams.open_udp("localhost", port)
        for family, address in {(found[0], found[4]) for found in socket.getaddrinfo("localhost", port)}:
            with socket.socket(family, socket.SOCK_DGRAM) as client:
                client.sendto(ONE, address)
        await _assert_sum(controller, len(datagrams.addresses))


async def test_port_in_use_is_refused(controller: Controller, udp: Datagrams) -> None:
    async with _opened(controller) as second:
        with pytest.raises(OSError, match="in use"):
            await second.open_udp(*_host_and_port(udp.addresses[0]))
        assert second.addresses == []


async def test_stale_socket_is_replaced(controller: Controller, path: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stale:
        stale.bind(path)
    async with _opened(controller) as datagrams:
        await datagrams.open_unix(path)
        with _connected(path) as client:
            client.send(ONE)
            await _assert_sum(controller, 1)


@pytest.mark.parametrize("kind", [socket.SOCK_DGRAM, socket.SOCK_STREAM, None], ids=["datagram", "stream", "file"])
async def test_what_is_alive_at_the_path_is_left_alone(
    controller: Controller, path: str, kind: socket.SocketKind | None
) -> None:
    with socket.socket(socket.AF_UNIX, kind or socket.SOCK_DGRAM) as live:
        if kind is None:
            os.mknod(path)
        else:
            live.bind(path)
        if kind is socket.SOCK_STREAM:
            live.listen()
        before = os.lstat(path).st_ino
        async with _opened(controller) as datagrams:
            with pytest.raises(OSError, match="in use"):
                await datagrams.open_unix(path)
        assert os.lstat(path).st_ino == before


async def test_close_removes_the_socket_file(unix: Datagrams, path: str) -> None:
    assert stat.S_IMODE(os.lstat(path).st_mode) == 0o660
    unix.close()
    unix.close()
    with pytest.raises(FileNotFoundError):
        _connected(path)


async def test_close_ends_the_pause_of_a_socket(udp: Datagrams) -> None:
    (opened,) = udp._drops
    udp._pause(opened)
    pause = udp._pauses[opened]
    udp.close()
    assert pause.cancelled()


async def test_close_leaves_the_socket_file_of_a_successor(controller: Controller, unix: Datagrams, path: str) -> None:
    os.remove(path)  # noqa: PTH107 - blocking for a moment is no harm here, in whichever words
    async with _opened(controller) as successor:
        await successor.open_unix(path)
        unix.close()
        with _connected(path) as client:
            client.send(ONE)
            await _assert_sum(controller, 1)
