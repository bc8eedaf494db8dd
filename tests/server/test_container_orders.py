"""Orders of a person on a real socket, over the real arbiter: what is answered and logged, and how long it takes."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from harness.listeners import serving
from harness.raw_http import Answer, Observed, RawConnection, get, post
from harness.waiting import eventually
from sidecar.core.claims import Answer as Reply
from sidecar.core.claims import Claim, Denied, Granted, Unknown
from sidecar.core.life import transitions
from sidecar.core.life.container import Container, start
from sidecar.core.life.events import (
    Answered,
    AppRestarted,
    CullOrdered,
    Judged,
    ReviveOrdered,
    StopRequested,
    Trigger,
)
from sidecar.core.life.snapshot import Record
from sidecar.core.types import Evidence, Policy, State, Verdict
from sidecar.server.container_orders import ContainerOrders

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ORDER = {"author": "alice", "reason": "stuck"}
TCP = "over TCP from 127.0.0.1"
FINE = Judged(Verdict())


class Box:
    """A controller that steps at once; ``reply`` is the answer of the store, None for no answer yet."""

    def __init__(self, policy: Policy | None = None, limit_s: float = 0.2) -> None:
        self.policy = policy or Policy()
        self.container: Container = start("app/a", 0.0, self.policy, app_start="1")
        self.reply: Reply | None = Granted(1, 10)
        self.log: list[str] = []
        self.is_stuck = False
        self.has_order = asyncio.Event()
        self.orders = ContainerOrders(self.put, instance="a", limit_s=limit_s, log=self.log.append)
        self.step(FINE)

    def put(self, event: CullOrdered | ReviveOrdered) -> None:
        if not self.is_stuck:
            self.step(event)
            self.has_order.set()

    def step(self, event: Trigger) -> None:
        self.container, effects, events = transitions.step(self.container, event, 1.0, self.policy)
        self.orders.notice(Record(events, self.container, Evidence(60)))
        for effect in effects:
            if isinstance(effect, Claim) and self.reply is not None:
                self.step(Answered(effect, self.reply, 1_700_000_000.0))


@pytest.fixture
async def box() -> Box:
    return Box()


@pytest.fixture
async def wire(box: Box, observed: Observed) -> AsyncIterator[RawConnection]:
    async with (
        serving(box.orders.routes(), observed) as listener,
        await RawConnection.to(listener) as wire,
    ):
        yield wire
    assert observed.failures == []


async def _order(wire: RawConnection, path: str, **fields: object) -> Answer:
    return await wire.ask(post(path, json.dumps({**ORDER, **fields}).encode()))


def _told(answer: Answer) -> tuple[int, str, str]:
    value: dict[str, Any] = answer.json()
    assert value["instance"] == "a"
    assert set(value) == {"outcome", "reason", "sentence", "retry_after_s", "instance", "order"}
    return answer.status, value["outcome"], value["reason"]


async def test_granted_order_drains_and_names_its_author(wire: RawConnection, box: Box) -> None:
    answer = await _order(wire, "/cull")
    assert _told(answer) == (200, "granted", "granted")
    assert answer.json()["sentence"] == "token granted, 1 of 10 in use"
    assert answer.json()["order"] == {"author": "alice", "reason": f"stuck ({TCP})"}
    assert box.container.state is State.DRAINING
    assert box.container.order is not None
    assert (box.container.order.author, box.container.order.reason) == ("alice", f"stuck ({TCP})")
    assert box.log == [f"alice orders the cull of instance a: stuck ({TCP})"]


@pytest.mark.parametrize(
    ("reply", "outcome"),
    [
        pytest.param(Denied("window", 10, 10, 42.0), (409, "denied", "window"), id="denied"),
        pytest.param(Unknown("connection"), (502, "unknown", "connection"), id="away"),
        pytest.param(Unknown("timeout"), (504, "unknown", "timeout"), id="slow"),
    ],
)
async def test_refused_order_says_why_and_leaves_the_container_up(
    wire: RawConnection, box: Box, reply: Reply, outcome: tuple[int, str, str]
) -> None:
    box.reply = reply
    answer = await _order(wire, "/cull")
    assert _told(answer) == outcome
    assert box.container.state is State.UP
    if isinstance(reply, Denied):
        assert answer.json()["retry_after_s"] == 42.0
        assert answer.json()["sentence"] == "all 10 tokens of the window are in use, the next comes back in 42s"


async def test_order_without_an_answer_in_time_is_a_202(wire: RawConnection, box: Box) -> None:
    box.reply = None
    assert _told(await _order(wire, "/cull")) == (202, "pending", "")
    assert _told(await _order(wire, "/cull", author="bob")) == (200, "already", "")
    assert [line.partition(" ")[0] for line in box.log] == ["alice", "bob"]


async def test_controller_that_hangs_is_a_202_too(wire: RawConnection, box: Box) -> None:
    box.is_stuck = True
    assert _told(await _order(wire, "/cull")) == (202, "pending", "")
    box.step(CullOrdered("late", ""))  # no request waits any more
    assert box.container.state is State.DRAINING


async def test_order_that_waits_for_the_controller_is_not_answered_by_what_comes_before_it(observed: Observed) -> None:
    box = Box(limit_s=60)
    box.is_stuck = True
    async with (
        serving(box.orders.routes(), observed) as listener,
        await RawConnection.to(listener) as cull,
        await RawConnection.to(listener) as revive,
    ):
        for wire, path in ((cull, "/cull"), (revive, "/revive")):
            await wire.send(post(path, json.dumps(ORDER).encode()))
        await eventually(lambda: len(box.orders._waiting) == 2, timeout_s=60, what="both wait")
        box.step(AppRestarted("2"))
        box.step(ReviveOrdered("alice", f"stuck ({TCP})"))
        assert _told(await revive.answer()) == (409, "not_down", "")
        box.step(CullOrdered("alice", f"stuck ({TCP})"))
        assert _told(await cull.answer()) == (200, "granted", "granted")


@pytest.mark.parametrize("event", [AppRestarted("2"), StopRequested()], ids=["restarted", "stopped"])
async def test_order_overtaken_by_another_event_says_so(observed: Observed, event: Trigger) -> None:
    box = Box(limit_s=60)
    box.reply = None
    async with serving(box.orders.routes(), observed) as listener, await RawConnection.to(listener) as wire:
        await wire.send(post("/cull", json.dumps(ORDER).encode()))
        async with asyncio.timeout(5):
            await box.has_order.wait()
        box.step(event)
        word = "restarted" if isinstance(event, AppRestarted) else "stopping"
        assert _told(await wire.answer()) == (409, word, "")


async def test_order_for_a_container_that_is_down_changes_nothing(wire: RawConnection, box: Box) -> None:
    await _order(wire, "/cull")
    answer = await _order(wire, "/cull")
    assert _told(answer) == (200, "already", "")
    assert answer.json()["sentence"] == "it is draining already: a person ordered the cull"
    box.step(StopRequested())
    assert _told(await _order(wire, "/cull")) == (409, "stopping", "")
    assert _told(await _order(wire, "/revive")) == (409, "stopping", "")


async def test_culled_container_is_revived(wire: RawConnection, box: Box) -> None:
    await _order(wire, "/cull")
    answer = await _order(wire, "/revive")
    assert _told(answer) == (200, "revived", "")
    assert box.container.state is State.UP
    assert box.container.latch is None
    assert box.log[-1] == f"alice orders the revival of instance a: stuck ({TCP})"
    answer = await _order(wire, "/revive")
    assert _told(answer) == (409, "not_down", "")
    assert answer.json()["sentence"] == "it is up: there is nothing to revive"


async def test_shadow_mode_only_says_what_would_happen(observed: Observed) -> None:
    box = Box(Policy(enforce=False))
    async with serving(box.orders.routes(), observed) as listener, await RawConnection.to(listener) as wire:
        assert _told(await _order(wire, "/cull")) == (200, "would_cull", "")
        assert box.container.haproxy_up
        assert _told(await _order(wire, "/cull")) == (200, "already", "")


@pytest.mark.parametrize("path", ["/cull", "/revive"])
async def test_bad_order_orders_nothing(wire: RawConnection, box: Box, observed: Observed, path: str) -> None:
    assert (await wire.ask(post(path, b'{"reason":"x"}'))).status == 400
    assert (await wire.ask(get(path))).status == 405
    assert (observed.words, box.log, box.container.state) == (["body", "method"], [], State.UP)
