from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from client.statsd_receiver import Receiver
from harness.ports import free_port
from sidecar.client.outlet import RETRY_S, Address, Addresses, Outcome, Outlet, addresses_of, read_addresses

V4, V6, UNIX = socket.AF_INET, socket.AF_INET6, socket.AF_UNIX


@pytest.fixture
def outlet(receiver: Receiver) -> Iterator[Outlet]:
    """To the unix receiver."""
    outlet = Outlet(read_addresses(str(receiver.path)))
    yield outlet
    outlet.close()


@pytest.mark.parametrize(
    ("unix_socket", "listen", "found"),
    [
        ("", "", ()),
        ("/run/s", "", (Address(UNIX, "/run/s"),)),
        ("", "127.0.0.1:8125", (Address(V4, ("127.0.0.1", 8125)),)),
        ("/run/s", "127.0.0.1:8125", (Address(UNIX, "/run/s"), Address(V4, ("127.0.0.1", 8125)))),
        ("", " LocalHost:8125 ", (Address(V4, ("127.0.0.1", 8125)),)),
        ("", "0.0.0.0:8125", (Address(V4, ("127.0.0.1", 8125)),)),
        ("", "[::1]:8125", (Address(V6, ("::1", 8125)),)),
        ("", "[::]:8125", (Address(V6, ("::1", 8125)),)),
        *(
            ("", bad, ())
            for bad in ("off", "8125", "host.example:8125", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:65536")
        ),
        *(("", bad, ()) for bad in ("127.0.0.1:x", ":8125", "\u00e9\u00e9:1", "\x00:1", "127.0.0.1:\u00b2")),
    ],
    ids=str,
)
def test_addresses_are_read_and_need_no_resolver(unix_socket: str, listen: str, found: Addresses) -> None:
    assert read_addresses(unix_socket, listen) == found


def test_addresses_come_from_the_settings_of_the_sidecar() -> None:
    environ = {"ARBITER_STATSD_SOCKET": "/run/s", "ARBITER_STATSD_LISTEN": "127.0.0.1:8125"}
    assert addresses_of(environ) == read_addresses("/run/s", "127.0.0.1:8125")
    assert addresses_of({}) == ()


def test_packet_arrives_over_the_unix_socket(receiver: Receiver, outlet: Outlet) -> None:
    assert outlet.send(b"errors:1|c", 0) is Outcome.SENT
    assert receiver.read() == [b"errors:1|c"]


def test_packet_arrives_over_udp(udp_receiver: Receiver) -> None:
    outlet = Outlet(read_addresses("", udp_receiver.listen))
    assert outlet.send(b"errors:1|c", 0) is Outcome.SENT
    assert udp_receiver.read() == [b"errors:1|c"]
    outlet.close()


def test_full_queue_is_reported_until_it_is_read(receiver: Receiver, outlet: Outlet) -> None:
    sent = 0
    while outlet.send(b"x", 0) is Outcome.SENT:
        sent += 1
    assert outlet.send(b"x", 0) is Outcome.FULL
    assert len(receiver.read()) == sent
    assert outlet.send(b"x", 0) is Outcome.SENT


def test_udp_takes_over_when_the_unix_socket_goes_away(receiver: Receiver, udp_receiver: Receiver) -> None:
    outlet = Outlet(read_addresses(str(receiver.path), udp_receiver.listen))
    outlet.send(b"x", 0)
    receiver.close()
    assert outlet.send(b"y", 0) is Outcome.SENT
    assert udp_receiver.read() == [b"y"]
    outlet.close()


def test_nowhere_is_not_away() -> None:
    assert Outlet(()).send(b"x", 0) is Outcome.NOWHERE


@pytest.mark.parametrize("path", ["/nonexistent/statsd.sock", "/" + "x" * 200, "/a\x00b", "/dev/null"])
def test_impossible_place_is_away(path: str) -> None:
    assert Outlet(read_addresses(path)).send(b"x", 0) is Outcome.AWAY


def test_sidecar_that_is_away_is_left_alone_for_a_while(run_dir: Path) -> None:
    path = run_dir / "statsd.sock"
    outlet = Outlet(read_addresses(str(path)))
    assert outlet.send(b"x", 0) is Outcome.AWAY
    with Receiver(path) as receiver:
        assert outlet.send(b"x", RETRY_S * 0.9) is Outcome.AWAY
        assert outlet.send(b"x", RETRY_S) is Outcome.SENT
        assert receiver.read() == [b"x"]
    outlet.close()


def test_udp_packet_without_a_listener_does_not_count_as_sent() -> None:
    port = free_port()
    outlet = Outlet(read_addresses("", f"127.0.0.1:{port}"))
    assert outlet.send(b"x", 0) is Outcome.AWAY
    with Receiver(port=port) as receiver:
        assert outlet.send(b"x", RETRY_S) is Outcome.SENT
        assert receiver.read() == [b"x"]
    outlet.close()
