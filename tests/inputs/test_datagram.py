"""StatsD packets on real sockets: what is reported, what waits, what is lost, and how that is counted."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import stat
import subprocess
import sys
import time
from contextlib import asynccontextmanager, closing, suppress
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.ports import free_port
from harness.waiting import eventually
from sidecar.core.types import ErrorReport, Heartbeat, Report, Results
from sidecar.inputs.datagram import BATCH, BATCH_BYTES, PACKET_LIMIT, PAUSE_S, RECEIVE_BUFFER, Datagrams

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

ONE = b"errors:1|c"
ROOM = 200
"""Packets that any system's default receive buffer has room for."""

SENDER = """
import socket, sys
address, count = sys.argv[1], int(sys.argv[2])
path = address.startswith("/")
opened = socket.socket(socket.AF_UNIX if path else socket.AF_INET, socket.SOCK_DGRAM)
opened.connect(address if path else (address.split(":")[0], int(address.split(":")[1])))
for _ in range(count):
    opened.send(b"errors:1|c")
"""
"""Sends so many packets to an address, as fast as it can: ADDRESS COUNT."""


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


async def test_unix_packet_becomes_reports(controller: Controller, unix: Datagrams, path: str) -> None:
    with _connected(path) as client:
        client.send(ONE)
        await _assert_sum(controller, 1)
    assert controller.offers == [[ErrorReport()]]
    assert unix.addresses == [path]


async def test_both_sockets_report_to_one_controller(
    controller: Controller, udp: Datagrams, client: socket.socket, path: str
) -> None:
    await udp.open_unix(path)
    with _connected(path) as other:
        client.send(ONE)
        other.send(ONE)
        await _assert_sum(controller, 2)
    assert udp.packets == 2


async def test_client_may_use_a_prefix(controller: Controller) -> None:
    datagrams = Datagrams(controller.offer, on_failure=controller.failures.append, prefix="myapp")
    await datagrams.open_udp("127.0.0.1", 0)
    with _connected(datagrams.addresses[0]) as client, closing(datagrams):
        client.send(b"myapp.errors:1|c")
        await _assert_sum(controller, 1)


async def test_prefix_that_was_forgotten_is_one_advice(controller: Controller) -> None:
    advice: list[str] = []
    datagrams = Datagrams(controller.offer, on_failure=controller.failures.append, on_advice=advice.append)
    await datagrams.open_udp("127.0.0.1", 0)
    with _connected(datagrams.addresses[0]) as client, closing(datagrams):
        for _ in range(9):
            client.send(b"myapp.errors:1|c")
        await eventually(lambda: datagrams.lines == 9, timeout_s=60, what="they are read")
    assert [sentence.rpartition(" ")[2] for sentence in advice] == ["ARBITER_STATSD_PREFIX=myapp"]


async def test_garbage_is_counted_and_reports_nothing(
    controller: Controller, udp: Datagrams, client: socket.socket
) -> None:
    for packet in (b"", b"\n", bytes(range(128, 256)), b"errors:-1|c", b"page.views:1|c"):
        client.send(packet)
    client.send(ONE)
    await _assert_sum(controller, 1)
    assert controller.offers == [[ErrorReport()]]
    assert (udp.packets, udp.lines, udp.unreadable) == (6, 4, 2)


async def test_packet_over_64_kib_is_dropped_and_counted(controller: Controller, unix: Datagrams, path: str) -> None:
    lines = (ONE + b"\n") * (PACKET_LIMIT // len(ONE))
    with _connected(path) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * PACKET_LIMIT)
        for size in (PACKET_LIMIT + 1, PACKET_LIMIT + 1, PACKET_LIMIT):
            client.send(lines[:size])
        client.send(ONE)
        whole = lines[:PACKET_LIMIT].count(b"\n")
        await _assert_sum(controller, whole + 1)
    outcomes = {"packets": 4, "truncated": 2, "refused": 0, "kernel": 0}
    assert outcomes.items() <= unix.counts.items()
    assert unix.lines - unix.unreadable == whole + 1


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


async def test_first_packets_are_reported_at_once_and_the_next_after_a_pause(
    controller: Controller, client: socket.socket
) -> None:
    clock = asyncio.get_running_loop().time
    for _ in range(3 * BATCH):
        client.send(ONE)
    begun = clock()
    await _assert_sum(controller, 3 * BATCH)
    assert controller.errors[0] == BATCH
    assert len(controller.offers) <= 2 + (clock() - begun) / PAUSE_S
    assert all(len(offer) == 1 for offer in controller.offers)


async def test_packet_after_a_pause_is_reported_at_once(
    controller: Controller, udp: Datagrams, client: socket.socket
) -> None:
    for errors in (1, 2):
        client.send(ONE)
        await _assert_sum(controller, errors)
        await eventually(lambda: udp._pause is None, timeout_s=60, what="the pause is over")
    client.send(ONE)
    await asyncio.sleep(0)  # the loop looks at its sockets
    await asyncio.sleep(0)
    assert controller.errors == [1, 1, 1]


async def test_many_bytes_of_different_packets_are_parsed_in_bounded_pieces_within_the_pause(
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
    assert len(controller.offers) < len({*lines}), "one report of several pieces"


async def test_other_work_has_its_turn_between_two_batches(udp: Datagrams, client: socket.socket) -> None:
    turns: list[int] = []
    for _ in range(5 * BATCH):
        client.send(ONE)
    while udp.packets < 5 * BATCH and len(turns) < 1000:
        turns.append(udp.packets)
        await asyncio.sleep(0)
    assert max(after - before for before, after in pairwise(turns)) == BATCH


@pytest.mark.parametrize("length", [BATCH_BYTES + 1, 30_000, 65_000], ids=str)
async def test_large_packet_is_read_in_pieces_and_nothing_is_lost(
    controller: Controller, udp: Datagrams, client: socket.socket, length: int
) -> None:
    lines = [b"errors:1|c|#kind:k%d" % number for number in range(length // len(b"errors:1|c|#kind:k1000\n"))]
    lines.append(b"page.views:1|c|#" + b"x" * (length - len(b"\n".join(lines)) - 17))
    packet = b"\n".join(lines)
    assert len(packet) == length
    client.send(packet)
    client.send(ONE)
    await _assert_sum(controller, len(lines))
    assert (udp.packets, udp.lines, udp.unreadable) == (2, len(lines) + 1, 0)
    most = BATCH_BYTES // len(b"errors:1|c|#kind:k0\n") + 1
    assert max(controller.errors) <= most
    assert controller.offers[-1] == [ErrorReport()]


async def test_large_packet_without_lines_is_one_piece(
    controller: Controller, udp: Datagrams, client: socket.socket
) -> None:
    client.send(b"x" * 60_000)
    client.send(b"x" * 60_000 + b"\n" + ONE)
    await _assert_sum(controller, 1)
    assert (udp.lines, udp.unreadable) == (3, 2)


async def test_large_packet_within_a_pause_is_read_too(
    controller: Controller, udp: Datagrams, client: socket.socket
) -> None:
    client.send(ONE)
    await _assert_sum(controller, 1)
    client.send((ONE + b"\n") * 5000)
    client.send(ONE)
    await _assert_sum(controller, 5002)
    assert (udp.packets, udp.lines, udp.unreadable) == (3, 5002, 0)


async def test_pause_of_one_socket_does_not_prolong_that_of_another(
    controller: Controller, udp: Datagrams, client: socket.socket, path: str
) -> None:
    await udp.open_unix(path)
    client.send(ONE)
    await _assert_sum(controller, 1)
    client.send(ONE)
    with _connected(path) as other:
        other.settimeout(0)
        for number in range(100_000):
            with suppress(BlockingIOError):
                other.send(b"errors:0|c|#app_start:%d," % number + b"x" * BATCH_BYTES)
            await asyncio.sleep(0)
            if sum(controller.errors) == 2:
                return
    pytest.fail("the second packet was never read")


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


async def test_ipv6_is_opened_and_printed(controller: Controller) -> None:
    if not socket.has_ipv6:
        pytest.skip("this system has no IPv6")
    async with _opened(controller) as datagrams:
        try:
            await datagrams.open_udp("::1", 0)
        except OSError as error:
            pytest.skip(f"no IPv6 loopback here: {error}")
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as client:
            client.sendto(ONE, _host_and_port(datagrams.addresses[0]))
            await _assert_sum(controller, 1)
        assert datagrams.addresses[0].startswith("[::1]:")


async def test_port_in_use_is_refused(controller: Controller, udp: Datagrams) -> None:
    async with _opened(controller) as second:
        with pytest.raises(OSError, match="in use"):
            await second.open_udp(*_host_and_port(udp.addresses[0]))
        assert second.addresses == []


async def test_unix_socket_is_for_owner_and_group(unix: Datagrams) -> None:
    mode = os.lstat(unix.addresses[0]).st_mode
    assert stat.S_ISSOCK(mode)
    assert stat.S_IMODE(mode) == 0o660


async def test_stale_socket_is_replaced(controller: Controller, path: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stale:
        stale.bind(path)
    async with _opened(controller) as datagrams:
        await datagrams.open_unix(path)
        with _connected(path) as client:
            client.send(ONE)
            await _assert_sum(controller, 1)


@pytest.mark.parametrize("kind", [socket.SOCK_DGRAM, socket.SOCK_STREAM], ids=["datagram", "stream"])
async def test_live_socket_is_left_alone(controller: Controller, path: str, kind: socket.SocketKind) -> None:
    with socket.socket(socket.AF_UNIX, kind) as live:
        live.bind(path)
        if kind is socket.SOCK_STREAM:
            live.listen()
        async with _opened(controller) as datagrams:
            with pytest.raises(OSError, match="in use") as refused:
                await datagrams.open_unix(path)
        assert refused.value.errno == errno.EADDRINUSE
        with socket.socket(socket.AF_UNIX, kind) as client:
            client.connect(path)


@pytest.fixture
def letter(path: str) -> Iterator[str]:
    Path(path).write_text("kept")
    yield path
    assert Path(path).read_text() == "kept"


async def test_file_in_the_place_of_the_socket_is_left_alone(controller: Controller, letter: str) -> None:
    async with _opened(controller) as datagrams:
        with pytest.raises(OSError, match="in use"):
            await datagrams.open_unix(letter)


async def test_missing_directory_is_an_error(controller: Controller, path: str) -> None:
    async with _opened(controller) as datagrams:
        with pytest.raises(FileNotFoundError):
            await datagrams.open_unix(path + "/statsd.sock")


async def test_close_removes_the_socket_file(unix: Datagrams, path: str) -> None:
    unix.close()
    unix.close()
    with pytest.raises(FileNotFoundError):
        _connected(path)


async def test_close_leaves_the_socket_file_of_a_successor(controller: Controller, unix: Datagrams, path: str) -> None:
    os.remove(path)  # noqa: PTH107 - blocking for a moment is no harm here, in whichever words
    async with _opened(controller) as successor:
        await successor.open_unix(path)
        unix.close()
        with _connected(path) as client:
            client.send(ONE)
            await _assert_sum(controller, 1)


async def test_close_within_a_large_packet_is_quiet(
    controller: Controller, udp: Datagrams, client: socket.socket
) -> None:
    client.send((ONE + b"\n") * 5000)
    await eventually(lambda: udp.packets, timeout_s=60, what="its first piece is read")
    udp.close()
    before = len(controller.offers)
    for _ in range(5):
        await asyncio.sleep(0)
    assert len(controller.offers) == before


# -- floods from another process ----------------------------------------------------------------------------


@asynccontextmanager
async def _sending(address: str, count: int) -> AsyncIterator[asyncio.subprocess.Process]:
    arguments = ("-c", SENDER, address, str(count))
    sender = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdin=subprocess.DEVNULL)
    try:
        yield sender
    finally:
        if sender.returncode is None:
            sender.kill()
        await sender.wait()


async def _ticks(sender: asyncio.subprocess.Process, clock: Callable[[], float] = time.monotonic) -> list[float]:
    """Seconds between turns of a coroutine that wants one each millisecond, while the sender lives."""
    at = [clock()]
    ended = asyncio.ensure_future(sender.wait())
    while not ended.done():
        await asyncio.sleep(0.001)
        at.append(clock())
    return [after - before for before, after in pairwise(at)]


@pytest.mark.parametrize("kind", ["udp", "unix"])
async def test_flood_loses_only_what_the_kernel_drops_and_starves_no_other_work(
    controller: Controller, path: str, kind: str
) -> None:
    async with _opened(controller) as datagrams:
        await (datagrams.open_unix(path) if kind == "unix" else datagrams.open_udp("127.0.0.1", 0))
        async with _sending(datagrams.addresses[0], 50_000) as sender:
            # Of the processor: how long it has to wait for that is for the machine to say.
            gaps = sorted(await _ticks(sender, time.thread_time))
            assert await sender.wait() == 0
        await _assert_known(controller, datagrams, 50_000)
        assert datagrams.packets == sum(controller.errors)
        assert gaps[len(gaps) * 9 // 10] < 0.05
        if kind == "unix":
            assert datagrams.kernel_drops == 0  # the sender waits instead


async def test_50_000_packets_a_second_are_read_without_a_loss(controller: Controller, udp: Datagrams) -> None:
    """They come in bursts that the socket holds while the loop does something else. A second is enough to read them."""
    spent_s = 0.0
    with _connected(udp.addresses[0]) as client:
        for read in range(ROOM, 50_000 + ROOM, ROOM):
            for _ in range(ROOM):
                client.send(ONE)
            began_at = time.thread_time()
            while udp.packets < read:  # noqa: ASYNC110 - each turn of the loop counts
                await asyncio.sleep(0)
            spent_s += time.thread_time() - began_at
    await _assert_sum(controller, 50_000)
    assert udp.kernel_drops == 0
    assert spent_s < 1.0, "of the processor"
