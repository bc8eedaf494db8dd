"""Restarts of the app, noticed by the socket at its port: rules, the kernel's list, and real processes."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import pytest

from harness.ports import free_port
from harness.virtual_time import in_virtual_time
from harness.waiting import eventually, wait_for
from sidecar.core.app_reports import AppListening, Report
from sidecar.inputs.app_port import (
    ABSENT_S,
    MOST_SOCKETS,
    SETTLE_S,
    AcceptedConnections,
    AppPort,
    SocketIncarnations,
    listening_sockets,
)

# -- incarnations -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("present", "looks", "begun"),
    [
        pytest.param("", [(0, "a"), (1, "a"), (600, "a")], ["a"], id="one socket stays"),
        pytest.param("", [(0, "a"), (5, ""), (6, "b"), (7, "b")], ["a", "b"], id="another one after nothing"),
        pytest.param("", [(0, "a"), (5, "b")], ["a", "b"], id="another one at once"),
        pytest.param("", [(0, ""), (5, "a")], ["a"], id="it comes late"),
        pytest.param("", [(0, "a"), (5, ""), (6, "a")], ["a"], id="nothing, and the same again"),
        pytest.param("", [(0, "a"), (1, "abc"), (60, "bcd"), (61, "bd")], ["a"], id="workers come and go"),
        pytest.param("", [(0, "a"), (1, "ab"), (60, "bx"), (61, "xy")], ["a", "x"], id="none of the old is left"),
        pytest.param("", [(0, "a"), (60, "ab"), (61, "b")], ["a", "b"], id="handed over"),
        pytest.param("a", [(0, "a"), (1, "ab"), (2, "b")], [], id="known from the sidecar before"),
        pytest.param("a", [(0, "b")], ["b"], id="restarted while there was no sidecar"),
    ],
)
def test_incarnation_ends_with_its_last_socket(present: str, looks: list[tuple[float, str]], begun: list[str]) -> None:
    incarnations, reported = SocketIncarnations(present), []
    for at, sockets in looks:
        incarnations.see(frozenset(sockets), at * (SETTLE_S / 10))
        if incarnations.unreported:
            reported.append(incarnations.unreported)
            incarnations.unreported = ""
    assert reported == begun


# -- the kernel's list ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_real_socket_is_found_while_it_listens(family: socket.AddressFamily, host: str) -> None:
    with ExitStack() as stack:
        several = [stack.enter_context(socket.socket(family)) for _ in range(3)]
        port = 0
        for listening in several:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            listening.bind((host, port))
            port = listening.getsockname()[1]
        assert listening_sockets(port) == frozenset(), "bound, but not listening"
        for listening in several:
            listening.listen()
        client = stack.enter_context(socket.create_connection((host, port), 60))
        assert listening_sockets(port) == {str(os.fstat(listening.fileno()).st_ino) for listening in several}
        assert listening_sockets(client.getsockname()[1]) == frozenset(), "connected, but not listening"
    assert listening_sockets(port) == frozenset()


def test_look_ends_after_as_many_sockets_as_an_app_may_have() -> None:
    with ExitStack() as stack:
        port = 0
        for _ in range(MOST_SOCKETS + 44):
            listening = stack.enter_context(socket.create_server(("127.0.0.1", port), reuse_port=True))
            port = listening.getsockname()[1]
        assert len(listening_sockets(port)) == MOST_SOCKETS


@pytest.mark.parametrize(("constant", "value"), [("_SOCK_DIAG", 77), ("_SOCK_DIAG_BY_FAMILY", 21)])
async def test_without_the_list_restarts_are_noticed_by_connecting(
    monkeypatch: pytest.MonkeyPatch, constant: str, value: int
) -> None:
    monkeypatch.setattr(f"sidecar.inputs.app_port.{constant}", value)
    port, offered = free_port(), list[Report]()

    def offer(reports: Sequence[Report]) -> bool:
        offered.extend(reports)
        return True

    watch = _watch(port, offer=offer, present="of the sidecar before")
    for restarts in range(3):
        with socket.create_server(("127.0.0.1", port)):
            await watch.look()
            await watch.look()
            assert (len(offered), watch.is_listening) == (restarts, True)
        await watch.look()
        assert not watch.is_listening


# -- connecting -------------------------------------------------------------------------------------------------------


async def test_accepted_connection_after_a_refused_one_has_another_name() -> None:
    port = free_port()
    connections = AcceptedConnections("127.0.0.1", port, "known")
    with socket.create_server(("127.0.0.1", port)):
        assert [await connections.look() for _ in range(2)] == [frozenset({"known"})] * 2
    assert not any([await connections.look(), await connections.look()])
    with socket.create_server(("127.0.0.1", port)):
        second = await connections.look()
        assert second not in (None, frozenset(), {"known"})
        assert await connections.look() == second


async def test_connection_without_an_answer_says_nothing() -> None:
    assert await AcceptedConnections("no-such-host.invalid", 80).look() is None


# -- looking ----------------------------------------------------------------------------------------------------------


def _watch(port: int, **how: Any) -> AppPort:
    """A watch of this port, by the loop's clock, whose looks must not fail."""
    options: dict[str, Any] = {
        "offer": lambda _: True,
        "is_well": lambda: True,
        "on_failure": lambda error: pytest.fail(f"{error!r}"),
        "clock": asyncio.get_running_loop().time,
    }
    return AppPort((None, port), **(options | how))


async def test_incarnation_that_finds_the_inbox_full_is_offered_again() -> None:
    offered, answers = list[Sequence[Report]](), iter([False, True])

    def offer(reports: Sequence[Report]) -> bool:
        offered.append(reports)
        return next(answers)

    with socket.create_server(("127.0.0.1", 0)) as app:
        watch = _watch(app.getsockname()[1], offer=offer)
        for _ in range(3):
            await watch.look()
        assert offered == [[AppListening(str(os.fstat(app.fileno()).st_ino))]] * 2


async def test_failure_of_a_look_is_passed_on_and_the_next_look_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    failures: list[Exception] = []

    async def fail() -> None:
        raise PermissionError("no /proc")

    watch = _watch(1, is_well=lambda: False, on_failure=failures.append)
    monkeypatch.setattr(watch, "look", fail)
    monkeypatch.setattr("sidecar.inputs.app_port.UNWELL_S", 0.0)
    running = asyncio.create_task(watch.run())
    await eventually(lambda: len(failures) >= 3, timeout_s=60, what="the third look fails too")
    running.cancel()
    assert {type(error) for error in failures} == {PermissionError}


@in_virtual_time
async def test_port_at_which_nobody_listens_after_the_grace_is_reported_once_each_time() -> None:
    absent, loop = list[float](), asyncio.get_running_loop()
    port = free_port()
    watch = _watch(port, on_absent=lambda: absent.append(loop.time()), grace_s=30.0)
    begun, after_s = loop.time(), 30.0 + ABSENT_S
    for _ in range(60):
        await watch.look()
        await asyncio.sleep(1.0)
    assert absent == [begun + after_s]
    with socket.create_server(("127.0.0.1", port)):
        listened = loop.time()
        await watch.look()
    for _ in range(60):
        await watch.look()
        await asyncio.sleep(1.0)
    assert absent == [begun + after_s, listened + after_s]


@pytest.mark.parametrize(("is_well", "looks"), [(True, 10), (False, 18)], ids=["up", "suspect, draining or down"])
@in_virtual_time
async def test_app_is_looked_at_more_often_while_a_restart_would_end_something(*, is_well: bool, looks: int) -> None:
    times: list[float] = []

    def clock() -> float:
        times.append(asyncio.get_running_loop().time())
        return times[-1]

    running = asyncio.create_task(_watch(1, is_well=lambda: is_well, clock=clock).run())
    await asyncio.sleep(8.9)
    running.cancel()
    assert len(times) == looks


# -- real processes ---------------------------------------------------------------------------------------------------

SINGLE: Final = """
import socket, sys
app = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    app.accept()[0].close()
"""
PREFORK: Final = SINGLE.replace("while True", "import os\nos.fork(); os.fork()\nwhile True")
REUSEPORT: Final = """
import os, socket, sys
os.fork(); os.fork()
app = socket.create_server(("127.0.0.1", int(sys.argv[1])), reuse_port=True)
while True:
    app.accept()[0].close()
"""
PROGRAMS: Final = {
    "python": [sys.executable, "-c", SINGLE],
    "prefork": [sys.executable, "-c", PREFORK],
    "reuseport": [sys.executable, "-c", REUSEPORT],
}
RESTARTS: Final = 10
NOTICED_S: Final = 1.0


@contextmanager
def _app(command: list[str], port: int) -> Iterator[None]:
    """The app in a process group of its own, once it listens; afterwards killed, and nobody listens."""
    started = subprocess.Popen([*command, str(port)], start_new_session=True, env={**os.environ, "APP_PORT": str(port)})
    try:
        wait_for(lambda: listening_sockets(port), timeout_s=60, what="the app listens")
        yield
    finally:
        os.killpg(started.pid, signal.SIGKILL)
        started.wait()
        wait_for(lambda: not listening_sockets(port), timeout_s=60, what="the app is gone")


@pytest.mark.parametrize(
    "program", [pytest.param(each, marks=() if each == "prefork" else pytest.mark.site) for each in PROGRAMS]
)
@in_virtual_time
async def test_every_restart_of_a_real_app_is_noticed_within_a_second_and_none_is_invented(program: str) -> None:
    """The seconds are those of the watch: while the processes start and end, its clock stands still."""
    command, port = PROGRAMS[program], free_port()
    begun: list[Report] = []

    def offer(reports: Sequence[Report]) -> bool:
        begun.extend(reports)
        return True

    looking = asyncio.create_task(_watch(port, offer=offer).run())
    for restart in range(1, RESTARTS + 1):
        with _app(command, port):
            await asyncio.sleep(NOTICED_S)
            assert len(begun) == restart
            await asyncio.sleep(restart * 407.3)  # an hour in all, in another part of the rhythm
            assert len(begun) == restart
    looking.cancel()
