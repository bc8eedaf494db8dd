"""The agent's line for each state, and the agent among pollers of all kinds."""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.listeners import own_address
from sidecar.core.claims import Granted
from sidecar.core.life import transitions
from sidecar.core.life.container import start
from sidecar.core.life.events import StopRequested
from sidecar.core.life.snapshot import Snapshot
from sidecar.core.types import Evidence, Latch, Policy, State
from sidecar.net.address_gate import AddressGate, parse_networks
from sidecar.server.agent_check import AgentCheck, line

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from sidecar.core.life.container import Container

UP_LINE = "up ready 100%\n"
SENTENCE = "5 server errors in 60 s (5 of them redis), the limit is 5"
LATCH = Latch("app/a/-", 1.0, SENTENCE)
STARTING = start("app/a", 100.0, Policy())
UP = STARTING._replace(state=State.UP)
SUSPECT = UP._replace(state=State.SUSPECT)
DRAINING = UP._replace(state=State.DRAINING, latch=LATCH, answer=Granted(3, 10))
DOWN = DRAINING._replace(state=State.DOWN)
STOPPING, STOPPING_DRAINING, STOPPING_DOWN = (
    transitions.step(container, StopRequested(), 105.0, Policy())[0] for container in (UP, DRAINING, DOWN)
)


@pytest.mark.parametrize(
    ("container", "said"),
    [
        pytest.param(STARTING, "up ready 73%\n", id="starting"),
        pytest.param(UP, "up ready 73%\n", id="up"),
        pytest.param(SUSPECT, "up ready 73%\n", id="suspect"),
        pytest.param(DRAINING, f"drain 0% #{SENTENCE}\n", id="draining"),
        pytest.param(DOWN, f"fail #culled: {SENTENCE}\n", id="down"),
        pytest.param(STOPPING, "drain 0% #the sidecar is stopping\n", id="stopping"),
        pytest.param(STOPPING_DRAINING, f"drain 0% #{SENTENCE}\n", id="stopping while draining"),
        pytest.param(STOPPING_DOWN, f"drain 0% #{SENTENCE}\n", id="stopping while down"),
    ],
)
def test_line_of_each_state_has_the_weight_or_the_reason(container: Container, said: str) -> None:
    assert line(container, 73) == said


@settings(deadline=None)
@given(st.sampled_from([DRAINING, DOWN, STOPPING_DOWN]), st.text() | st.text(min_size=200))
def test_any_reason_is_one_short_line_of_ascii(container: Container, reason: str) -> None:
    said = line(container._replace(latch=replace(LATCH, reason=reason)))
    assert len(said) >= min(127, len(reason) + 11)
    assert said.isascii()
    assert len(said) < 128
    assert said[:-1].isprintable()
    assert said.endswith("\n")
    assert said.startswith(("drain 0% #", "fail #"))


class Controller:
    """The snapshot that the agent is given, and what it reports. ``failure`` is what reading the snapshot raises."""

    def __init__(self) -> None:
        self.current = UP
        self.weight = 100
        self.failure: Exception | None = None
        self.polls: list[tuple[str, int]] = []
        self.failures: list[Exception] = []
        self.unhandled: list[dict[str, Any]] = []

    def snapshot(self) -> Snapshot:
        if self.failure is not None:
            raise self.failure
        return Snapshot(105.0, self.current, Evidence(60), 100.0, self.weight)

    @asynccontextmanager
    async def agent(self, gate: AddressGate | None = None) -> AsyncIterator[tuple[str, int]]:
        """The address of an open agent; nothing may be left to asyncio to tell."""
        asyncio.get_running_loop().set_exception_handler(lambda _, context: self.unhandled.append(context))
        agent = AgentCheck(
            self.snapshot,
            on_poll=lambda *poll: self.polls.append(poll),
            on_failure=self.failures.append,
            gate=gate,
        )
        await agent.open_tcp("127.0.0.1", 0)
        host, _, port = agent.addresses[0].rpartition(":")
        try:
            yield host, int(port)
        finally:
            agent.stop()
        assert self.unhandled == []


@pytest.fixture
def controller() -> Controller:
    return Controller()


async def _poll(address: tuple[str, int], source: str = "127.0.0.1") -> bytes:
    """Everything that the agent says, to the end of the connection."""
    async with asyncio.timeout(60):
        reader, writer = await asyncio.open_connection(*address, local_addr=(source, 0))
        try:
            return await reader.read()
        finally:
            writer.close()


async def test_each_poll_gets_the_line_of_its_moment_and_the_end(controller: Controller) -> None:
    async with controller.agent() as address:
        assert await _poll(address) == UP_LINE.encode()
        controller.weight = 73
        assert await _poll(address) == b"up ready 73%\n"
        controller.current = DRAINING
        assert await _poll(address) == f"drain 0% #{SENTENCE}\n".encode()
        controller.current = DOWN
        assert await _poll(address) == f"fail #culled: {SENTENCE}\n".encode()
    assert controller.polls == [("agent", status) for status in (200, 200, 503, 503)]


async def test_poll_from_an_address_that_is_not_allowed_gets_no_line(controller: Controller) -> None:
    refused: list[None] = []
    async with controller.agent(AddressGate(parse_networks("198.51.100.0/24"), lambda: refused.append(None))) as at:
        assert await _poll(at, own_address()) == b""
        assert await _poll(at) == UP_LINE.encode()
    assert (len(refused), len(controller.polls)) == (1, 1)


async def test_a_thousand_pollers_at_once_get_one_line_each(controller: Controller) -> None:
    async with controller.agent() as address:
        said = await asyncio.gather(*(_poll(address) for _ in range(1_000)))
    assert set(said) == {UP_LINE.encode()}
    assert len(controller.polls) == 1_000


async def test_pollers_that_hang_up_or_reset_do_no_harm(controller: Controller) -> None:
    async with controller.agent() as address:
        for n in range(100):
            with socket.socket() as poller:
                poller.settimeout(0)
                await asyncio.get_running_loop().sock_connect(poller, address)
                if n % 2:
                    poller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        assert await _poll(address) == UP_LINE.encode()
    assert controller.failures == []


async def test_failure_of_the_sidecar_is_reported_and_the_app_is_up(controller: Controller) -> None:
    controller.failure = RuntimeError("broken")
    async with controller.agent() as address:
        assert await _poll(address) == b"up ready 100%\n"
        controller.failure = None
        controller.current = DOWN
        assert (await _poll(address)).startswith(b"fail #")
    assert [str(error) for error in controller.failures] == ["broken"]
