"""Both ends of a takeover in one process: what was sent arrives, whatever happens to the main."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from typing import TYPE_CHECKING, Any, Final

import pytest

from harness.waiting import eventually
from sidecar.takeover import handover, handover_client
from sidecar.takeover.handover import HandoverServer, StandbyConnection, message
from sidecar.takeover.handover_client import HandoverClient

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

HERE: Final = {"public_listen": "127.0.0.1:1", "agent_listen": "127.0.0.1:2"}


class Main:
    """A main with a socket for each of two settings, and a state that the test sets."""

    def __init__(self, directory: Path) -> None:
        self.state: dict[str, Any] | None = {"state": "up"}
        self.failures: list[Exception] = []
        self.opened = [socket.create_server(("127.0.0.1", 0)) for _ in HERE]
        self.server = HandoverServer(
            directory,
            sockets=lambda: [(one.fileno(), name) for one, name in zip(self.opened, HERE, strict=True)],
            addresses=HERE,
            app="shop/a",
            state=lambda: self.state,
            on_failure=self.failures.append,
        )

    @property
    def ports(self) -> list[int]:
        return [one.getsockname()[1] for one in self.opened]

    def die(self) -> None:
        """As SIGKILL does: every descriptor is closed, and nothing else is done."""
        self.server.close(keep_path=True)
        for one in self.opened:
            one.close()


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is lost when the other end takes too long is not tested here."""
    monkeypatch.setattr(handover_client, "CONNECT_S", 30.0)
    monkeypatch.setattr(handover, "FLUSH_S", 30.0)


@pytest.fixture
async def main(run_dir: Path) -> AsyncIterator[Main]:
    main = Main(run_dir)
    main.server.open()
    yield main
    main.server.close()
    for one in main.opened:
        one.close()


def _standby(directory: Path, **told: str) -> HandoverClient:
    return HandoverClient(directory, {**HERE, **told})


async def _connected(directory: Path, **told: str) -> HandoverClient:
    standby = _standby(directory, **told)
    assert await asyncio.to_thread(standby.connect)
    return standby


async def test_sockets_outlive_the_main_with_the_clients_that_wait_in_them(main: Main, run_dir: Path) -> None:
    standby = await _connected(run_dir)
    with socket.create_connection(("127.0.0.1", main.ports[0])) as waiting:
        main.die()
        await asyncio.to_thread(standby.read_all)
        assert not standby.is_connected
        (inherited,) = standby.sockets["public_listen"]
        accepted, _ = inherited.accept()
        with accepted:
            accepted.sendall(b"up")
            assert waiting.recv(2) == b"up"
    assert not os.get_inheritable(inherited.fileno())
    standby.close()


async def test_socket_of_another_address_is_closed(main: Main, run_dir: Path) -> None:
    standby = await _connected(run_dir, agent_listen="127.0.0.1:3")
    assert list(standby.sockets) == ["public_listen"]
    port = main.ports[1]
    main.die()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port)).close()
    standby.close()


async def test_last_state_arrives_after_the_end_of_the_main(main: Main, run_dir: Path) -> None:
    standby = await _connected(run_dir)
    for number in range(3):
        main.state = {"number": number}
        main.server.send_state()
    main.die()
    await asyncio.to_thread(standby.read_all)
    told = standby.state()
    assert told is not None
    assert told[0] == {"number": 2}
    standby.close()


async def test_message_of_an_unknown_kind_is_skipped(main: Main, run_dir: Path) -> None:
    standby = await _connected(run_dir)
    assert main.server._standby is not None
    main.server._standby.send(message("future", future=[1]))
    main.state = {"number": 1}
    main.server.send_state()
    main.die()
    await asyncio.to_thread(standby.read_all)
    told = standby.state()
    assert told is not None
    assert told[0] == {"number": 1}
    standby.close()


async def test_main_without_a_state_sends_none(main: Main, run_dir: Path) -> None:
    main.state = None
    standby = await _connected(run_dir)
    main.server.send_state()
    main.die()
    await asyncio.to_thread(standby.read_all)
    assert standby.state() is None
    standby.close()


async def test_standby_is_ready_from_its_word_until_it_has_gone(main: Main, run_dir: Path) -> None:
    standby = await _connected(run_dir)
    assert (main.server.is_connected, main.server.is_ready) == (True, False)
    standby.say_ready()
    await eventually(lambda: main.server.is_ready, timeout_s=60, what="it is ready")
    standby.close()
    await eventually(lambda: not main.server.is_connected, timeout_s=60, what="it has gone")
    assert not main.server.is_ready


async def test_next_standby_replaces_the_last(main: Main, run_dir: Path) -> None:
    first = await _connected(run_dir)
    first.say_ready()
    await eventually(lambda: main.server.is_ready, timeout_s=60, what="the first is ready")
    second = await _connected(run_dir)
    assert not main.server.is_ready
    await asyncio.to_thread(first.read_all)
    assert not first.is_connected
    first.close()
    second.close()


def _read_to_the_end(standby: HandoverClient) -> None:
    for _ in range(100):
        if not standby.is_our_turn:
            standby.wait(5.0)


async def test_everything_that_is_sent_at_the_end_arrives(main: Main, run_dir: Path) -> None:
    standby = await _connected(run_dir)
    pairs = [socket.socketpair() for _ in range(2 * handover.MAX_DESCRIPTORS + 1)]
    main.state = {"state": "last"}
    reading = asyncio.to_thread(_read_to_the_end, standby)
    await asyncio.gather(reading, main.server.hand_over([("public", theirs) for _, theirs in pairs]))
    told = standby.state()
    assert told is not None
    assert told[0] == {"state": "last"}
    assert [name for name, _ in standby.connections] == ["public"] * len(pairs)
    for (ours, theirs), (_, given) in zip(pairs, standby.connections, strict=True):
        theirs.close()
        given.sendall(b"x")
        assert ours.recv(1) == b"x"
        ours.close()
    standby.close()


async def test_standby_that_reads_late_gets_the_newest_state(main: Main, run_dir: Path) -> None:
    standby = await _connected(run_dir)
    for number in range(200):
        main.state = {"number": number, "filling": "x" * 50_000}
        main.server.send_state()
    ends_at = asyncio.get_running_loop().time() + 30
    while asyncio.get_running_loop().time() < ends_at:
        await asyncio.to_thread(standby.wait, 0.1)
        told = standby.state()
        if told is not None and told[0].get("number") == 199:
            break
    assert told is not None
    assert told[0]["number"] == 199
    standby.close()


async def test_standby_that_never_read_has_the_last_state_at_the_takeover(main: Main, run_dir: Path) -> None:
    standby = await _connected(run_dir)
    for number in range(200):
        main.state = {"number": number, "filling": "x" * 50_000}
        main.server.send_state()
    main.state = {"number": 200}
    reading = asyncio.to_thread(_read_to_the_end, standby)
    await asyncio.gather(reading, main.server.hand_over([]))
    assert standby.is_our_turn
    await asyncio.to_thread(standby.read_all)
    told = standby.state()
    assert told is not None
    assert told[0] == {"number": 200}
    standby.close()


async def test_main_replaces_the_socket_of_a_killed_main(main: Main, run_dir: Path) -> None:
    main.die()
    second = Main(run_dir)
    second.server.open()
    standby = await _connected(run_dir)
    standby.close()
    second.die()


def test_standby_cannot_connect_without_a_main(run_dir: Path) -> None:
    assert not _standby(run_dir).connect()


@pytest.mark.parametrize(
    "said",
    [
        b"\xff\xff\xff\xff",
        message("sockets", format=2, names=[], addresses={}),
        message("sockets", format=1, names=["public_listen"], addresses={}),
        handover.LENGTH.pack(3) + b"[1]",
        handover.LENGTH.pack(1) + b"{",
        handover.LENGTH.pack(99_999) + b"[" * 99_999,
    ],
    ids=["too long", "another version", "no descriptor", "no object", "no JSON", "deep"],
)
def test_standby_disconnects_from_a_peer_that_is_no_main(run_dir: Path, said: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(handover.socket_path(run_dir))
        listening.listen()
        listening.settimeout(60)
        standby = _standby(run_dir)
        answering = _answering(listening, said)
        assert not standby.connect()
        assert standby.sockets == {}
        answering.join(60)
        standby.close()


def test_standby_says_once_that_the_main_is_of_another_version(run_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(handover.socket_path(run_dir))
        listening.listen()
        listening.settimeout(60)
        standby = _standby(run_dir)
        for _ in range(3):
            answering = _answering(listening, message("sockets", format=handover.FORMAT + 1, names=[], addresses={}))
            assert not standby.connect()
            answering.join(60)
    assert len([said for said in caplog.messages if "another version" in said]) == 1


def _answering(listening: socket.socket, said: bytes) -> threading.Thread:
    def answer() -> None:
        connection, _ = listening.accept()
        with connection:
            connection.sendall(said)

    thread = threading.Thread(target=answer)
    thread.start()
    return thread


async def test_connection_keeps_nothing_for_a_standby_that_has_gone() -> None:
    ours, theirs = socket.socketpair()
    ended = asyncio.Event()
    connection = StandbyConnection(ours, ended.set)
    theirs.close()
    connection.send_newest(b"x" * 10)
    await asyncio.wait_for(ended.wait(), 60)
    connection.close()
    connection.close()
