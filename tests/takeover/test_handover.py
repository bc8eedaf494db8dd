"""Both ends of a hand-over in one process: what is given arrives, whatever becomes of who gave it."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import threading
from typing import TYPE_CHECKING, Any, Final

import pytest

from harness.waiting import eventually
from sidecar.takeover import handover, inherited_sockets
from sidecar.takeover.handover import Feed, Offer, message
from sidecar.takeover.inherited_sockets import MOST_PAST_BYTES, Inheritance

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

HERE: Final = {"public_listen": "127.0.0.1:1", "agent_listen": "127.0.0.1:2"}


class Main:
    """One who offers a socket for each of two settings, and a state and a past that the test sets."""

    def __init__(self, directory: Path) -> None:
        self.state: dict[str, Any] | None = {"state": "up"}
        self.past: dict[str, Any] | None = None
        self.failures: list[Exception] = []
        self.opened = [socket.create_server(("127.0.0.1", 0)) for _ in HERE]
        self.offer = Offer(
            directory,
            sockets=lambda: [(one.fileno(), name) for one, name in zip(self.opened, HERE, strict=True)],
            addresses=dict(HERE),
            state=lambda: self.state,
            past=lambda: self.past,
            on_failure=self.failures.append,
        )

    @property
    def ports(self) -> list[int]:
        return [one.getsockname()[1] for one in self.opened]

    def die(self) -> None:
        """As SIGKILL does: every descriptor is closed, and nothing else is done."""
        self.offer.close(keep_path=True)
        for one in self.opened:
            one.close()


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is lost where the other end takes too long is not what is tried here."""
    monkeypatch.setattr(inherited_sockets, "CONNECT_S", 30.0)
    monkeypatch.setattr(handover, "FLUSH_S", 30.0)


@pytest.fixture
async def main(run_dir: Path) -> AsyncIterator[Main]:
    main = Main(run_dir)
    main.offer.open()
    yield main
    main.offer.close()
    for one in main.opened:
        one.close()


def _standby(directory: Path, **told: str) -> Inheritance:
    return Inheritance(directory, {**HERE, **told})


async def _linked(directory: Path, **told: str) -> Inheritance:
    standby = _standby(directory, **told)
    assert await asyncio.to_thread(standby.link)
    return standby


async def test_sockets_outlive_who_gave_them_with_those_who_wait_in_them(main: Main, run_dir: Path) -> None:
    standby = await _linked(run_dir)
    with socket.create_connection(("127.0.0.1", main.ports[0])) as waiting:
        main.die()
        await asyncio.to_thread(standby.hear_out)
        assert not standby.is_linked
        (inherited,) = standby.sockets["public_listen"]
        accepted, _ = inherited.accept()
        with accepted:
            accepted.sendall(b"up")
            assert waiting.recv(2) == b"up"
    assert not os.get_inheritable(inherited.fileno())
    standby.close()


async def test_socket_of_another_address_is_let_go_of(main: Main, run_dir: Path) -> None:
    standby = await _linked(run_dir, agent_listen="127.0.0.1:3")
    assert list(standby.sockets) == ["public_listen"]
    port = main.ports[1]
    main.die()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port)).close()
    standby.close()


async def test_state_is_the_last_that_was_told_and_is_heard_after_the_end(main: Main, run_dir: Path) -> None:
    standby = await _linked(run_dir)
    for number in range(3):
        main.state = {"number": number}
        main.offer.tell()
    main.die()
    await asyncio.to_thread(standby.hear_out)
    told = standby.state()
    assert told is not None
    assert told[0] == {"number": 2}
    standby.close()


def _past(standby: Inheritance) -> Any:
    return None if standby.past is None else json.loads(standby.past[0])["past"]


async def test_past_is_the_last_that_was_told_beside_the_state(main: Main, run_dir: Path) -> None:
    main.past = {"number": -1}
    standby = await _linked(run_dir)
    for number in range(3):
        main.past = {"number": number}
        main.offer.tell_past()
        main.state = {"number": 10 + number}
        main.offer.tell()
    main.die()
    await asyncio.to_thread(standby.hear_out)
    told = standby.state()
    assert told is not None
    assert (told[0], _past(standby)) == ({"number": 12}, {"number": 2})
    standby.close()


async def test_who_comes_is_told_the_past_at_once(main: Main, run_dir: Path) -> None:
    main.past = {"number": 1}
    standby = await _linked(run_dir)
    main.die()
    await asyncio.to_thread(standby.hear_out)
    assert _past(standby) == {"number": 1}
    standby.close()


async def test_main_that_tells_no_past_has_none(main: Main, run_dir: Path) -> None:
    """As one of the version before; and what an earlier main told is not taken for its own."""
    standby = _standby(run_dir)
    standby.past = (b"another's", 0.0)
    assert await asyncio.to_thread(standby.link)
    main.offer.tell_past()
    main.die()
    await asyncio.to_thread(standby.hear_out)
    assert standby.state() is not None
    assert standby.past is None
    standby.close()


async def test_past_of_more_than_anybody_has_is_lost_and_nothing_else(main: Main, run_dir: Path) -> None:
    standby = await _linked(run_dir)
    main.past = {"filling": "x" * MOST_PAST_BYTES}
    hearing = asyncio.to_thread(_hear_to_the_end, standby)
    await asyncio.gather(hearing, main.offer.give([]))
    assert standby.past is None
    assert standby.state() is not None
    standby.close()


async def test_message_of_a_kind_that_is_not_known_is_passed_over(main: Main, run_dir: Path) -> None:
    standby = await _linked(run_dir)
    assert main.offer._feed is not None
    main.offer._feed.send(message("future", future=[1]))
    main.state = {"number": 1}
    main.offer.tell()
    main.die()
    await asyncio.to_thread(standby.hear_out)
    told = standby.state()
    assert told is not None
    assert told[0] == {"number": 1}
    standby.close()


async def test_no_state_is_not_told(main: Main, run_dir: Path) -> None:
    main.state = None
    standby = await _linked(run_dir)
    main.offer.tell()
    main.die()
    await asyncio.to_thread(standby.hear_out)
    assert standby.state() is None
    standby.close()


async def test_standby_is_ready_when_it_says_so_and_until_it_has_gone(main: Main, run_dir: Path) -> None:
    standby = await _linked(run_dir)
    assert (main.offer.is_heard, main.offer.is_ready) == (True, False)
    standby.say_ready()
    await eventually(lambda: main.offer.is_ready, timeout_s=20, what="it is ready")
    standby.close()
    await eventually(lambda: not main.offer.is_heard, timeout_s=20, what="it has gone")
    assert not main.offer.is_ready


async def test_next_standby_takes_the_place_of_the_last(main: Main, run_dir: Path) -> None:
    first = await _linked(run_dir)
    first.say_ready()
    await eventually(lambda: main.offer.is_ready, timeout_s=20, what="the first is ready")
    second = await _linked(run_dir)
    assert not main.offer.is_ready
    await asyncio.to_thread(first.hear_out)
    assert not first.is_linked
    first.close()
    second.close()


def _hear_to_the_end(standby: Inheritance) -> None:
    for _ in range(100):
        if not standby.is_told:
            standby.wait(5.0)


async def test_everything_that_is_given_at_the_end_arrives(main: Main, run_dir: Path) -> None:
    standby = await _linked(run_dir)
    pairs = [socket.socketpair() for _ in range(2 * handover.AT_ONCE + 1)]
    main.state, main.past = {"state": "last"}, {"past": "last"}
    hearing = asyncio.to_thread(_hear_to_the_end, standby)
    await asyncio.gather(hearing, main.offer.give([("public", theirs) for _, theirs in pairs]))
    told = standby.state()
    assert told is not None
    assert (told[0], _past(standby)) == ({"state": "last"}, {"past": "last"})
    assert [name for name, _ in standby.connections] == ["public"] * len(pairs)
    for (ours, theirs), (_, given) in zip(pairs, standby.connections, strict=True):
        theirs.close()
        given.sendall(b"x")
        assert ours.recv(1) == b"x"
        ours.close()
    standby.close()


async def test_standby_that_does_not_read_costs_nothing_and_hears_the_newest(main: Main, run_dir: Path) -> None:
    standby = await _linked(run_dir)
    for number in range(200):
        main.past = {"number": number, "filling": "x" * 50_000}
        main.offer.tell_past()
        main.state = {"number": number, "filling": "x" * 50_000}
        main.offer.tell()
    ends_at = asyncio.get_running_loop().time() + 30
    while asyncio.get_running_loop().time() < ends_at:
        await asyncio.to_thread(standby.wait, 0.1)
        told = standby.state()
        if told is not None and told[0].get("number") == _past(standby).get("number") == 199:
            break
    assert told is not None
    assert (told[0]["number"], _past(standby)["number"]) == (199, 199)
    standby.close()


async def test_standby_that_did_not_read_has_the_last_of_all_when_its_turn_comes(main: Main, run_dir: Path) -> None:
    standby = await _linked(run_dir)
    for number in range(200):
        main.state = main.past = {"number": number, "filling": "x" * 50_000}
        main.offer.tell()
        main.offer.tell_past()
    main.state = main.past = {"number": 200}
    hearing = asyncio.to_thread(_hear_to_the_end, standby)
    await asyncio.gather(hearing, main.offer.give([]))
    assert standby.is_told
    await asyncio.to_thread(standby.hear_out)
    told = standby.state()
    assert told is not None
    assert (told[0], _past(standby)) == ({"number": 200}, {"number": 200})
    standby.close()


async def test_main_takes_the_place_of_one_that_was_killed(main: Main, run_dir: Path) -> None:
    main.die()
    second = Main(run_dir)
    second.offer.open()
    standby = await _linked(run_dir)
    standby.close()
    second.die()


def test_nobody_is_linked_to_where_nobody_is(run_dir: Path) -> None:
    assert not _standby(run_dir).link()


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
def test_who_says_what_no_main_says_is_left(run_dir: Path, said: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as impostor:
        impostor.bind(handover.path(run_dir))
        impostor.listen()
        impostor.settimeout(5)
        standby = _standby(run_dir)
        answering = _answering(impostor, said)
        assert not standby.link()
        assert standby.sockets == {}
        answering.join(5)
        standby.close()


def test_standby_says_once_that_the_main_is_of_another_version(run_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket(socket.AF_UNIX) as impostor:
        impostor.bind(handover.path(run_dir))
        impostor.listen()
        impostor.settimeout(5)
        standby = _standby(run_dir)
        for _ in range(3):
            answering = _answering(impostor, message("sockets", format=handover.FORMAT + 1, names=[], addresses={}))
            assert not standby.link()
            answering.join(5)
    assert len([said for said in caplog.messages if "another version" in said]) == 1


def _answering(listening: socket.socket, said: bytes) -> threading.Thread:
    def answer() -> None:
        connection, _ = listening.accept()
        with connection:
            connection.sendall(said)

    thread = threading.Thread(target=answer)
    thread.start()
    return thread


async def test_feed_keeps_nothing_for_who_has_gone() -> None:
    ours, theirs = socket.socketpair()
    ended = asyncio.Event()
    feed = Feed(ours, ended.set)
    theirs.close()
    feed.tell(b"x" * 10)
    await asyncio.wait_for(ended.wait(), 5)
    feed.close()
    feed.close()
