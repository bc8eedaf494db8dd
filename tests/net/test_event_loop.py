"""The loop serves the priority listener first, and does everything else that a loop does."""

from __future__ import annotations

import asyncio
import resource
import selectors
import socket
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from sidecar.net.event_loop import OTHER_EVENTS, PrioritySelector, context, new_loop
from sidecar.net.sockets import connection_limit, raise_descriptor_limit

if TYPE_CHECKING:
    from collections.abc import Iterator

PRIORITY = context(is_priority=True)


@pytest.fixture
def selector() -> Iterator[PrioritySelector]:
    selector = PrioritySelector()
    yield selector
    selector.close()


@pytest.fixture
def pairs() -> Iterator[list[tuple[socket.socket, socket.socket]]]:
    with ExitStack() as stack:
        pairs = [socket.socketpair() for _ in range(3 * OTHER_EVENTS)]
        for one in (end for pair in pairs for end in pair):
            stack.enter_context(one)
        yield pairs


def test_priority_files_come_before_a_few_others_and_none_is_forgotten(
    selector: PrioritySelector, pairs: list[tuple[socket.socket, socket.socket]]
) -> None:
    for number, (ours, theirs) in enumerate(pairs):
        if number in (5, 20):
            PRIORITY.run(selector.register, ours, selectors.EVENT_READ, number)
        else:
            selector.register(ours, selectors.EVENT_READ, number)
        theirs.send(b"x")
    seen: set[int] = set()
    for _ in range(4):
        turn = [key.data for key, _ in selector.select(0)]
        assert set(turn[:2]) == {5, 20}
        assert len(turn) <= 2 + OTHER_EVENTS + 1
        seen.update(turn)
    assert seen == set(range(len(pairs)))


@pytest.mark.parametrize("is_priority", [True, False])
def test_file_is_watched_for_the_events_of_its_registration(
    selector: PrioritySelector, pairs: list[tuple[socket.socket, socket.socket]], *, is_priority: bool
) -> None:
    ours, theirs = pairs[0]
    context(is_priority=is_priority).run(selector.register, ours, selectors.EVENT_READ, "read")
    assert selector.select(0) == []
    assert selector.get_map()[ours] is selector.get_key(ours.fileno())
    selector.modify(ours, selectors.EVENT_READ | selectors.EVENT_WRITE, "both")
    assert [(key.data, events) for key, events in selector.select()] == [("both", selectors.EVENT_WRITE)]
    theirs.send(b"x")
    assert [events for _, events in selector.select()] == [selectors.EVENT_READ | selectors.EVENT_WRITE]
    selector.unregister(ours)
    assert selector.select(0) == []
    for lookup in (selector.get_key, selector.unregister, selector.get_map().__getitem__):
        with pytest.raises(KeyError):
            lookup(ours)


def test_loop_serves_timers_threads_and_connections() -> None:
    async def talk() -> bytes:
        async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(await asyncio.to_thread(bytes.upper, await reader.readline()))
            await asyncio.sleep(0.001)
            writer.close()

        async with await asyncio.start_server(echo, "127.0.0.1", 0) as server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.write(b"hello\n")
            answer = await reader.read()
            writer.close()
            return answer

    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert runner.run(talk()) == b"HELLO\n"


def test_connections_get_what_the_descriptor_limit_leaves() -> None:
    assert [connection_limit(128, 320, limit) for limit in (20, 64, 200, 360, 20_000)] == [4, 9, 64, 128, 128]


def test_limit_that_is_high_enough_stays() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert raise_descriptor_limit(8) == before[0]
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before
