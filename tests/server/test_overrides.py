"""Orders of a person on a real socket, over the real arbiter: what is answered and logged, and how long it takes."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from harness.listening import Answer, Told, Wire, get, listening, post
from sidecar.core.life import transitions
from sidecar.core.life.snapshot import Record
from sidecar.core.life.transitions import (
    Answered,
    Ask,
    Container,
    CullOrdered,
    Event,
    Judged,
    Restarted,
    Revived,
    Stopped,
)
from sidecar.core.types import Answer as Reply
from sidecar.core.types import Denied, Evidence, Granted, Judgement, Policy, State, Unknown, Verdict
from sidecar.inputs import report_api
from sidecar.server.overrides import Overrides

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ORDER = {"author": "alice", "reason": "stuck"}
TCP = "over TCP from 127.0.0.1"
FINE = Judged(Verdict(Judgement.FINE))


class Box:
    """An arbiter that steps as soon as it is told to; ``reply`` is what the bucket says, None for nothing yet."""

    def __init__(self, policy: Policy | None = None, limit_s: float = 0.2) -> None:
        self.policy = policy or Policy()
        self.container: Container = transitions.start("app/a", 0.0, self.policy, app_start="1")
        self.reply: Reply | None = Granted(1, 10)
        self.log: list[str] = []
        self.is_stuck = False
        self.has_order = asyncio.Event()
        self.overrides = Overrides(self.put, instance="a", limit_s=limit_s, told=self.log.append)
        self.step(FINE)

    def put(self, event: CullOrdered | Revived) -> None:
        if not self.is_stuck:
            self.step(event)
            self.has_order.set()

    def step(self, event: Event) -> None:
        before = self.container
        self.container, effects = transitions.step(before, event, 1.0, self.policy)
        self.overrides.notice(Record(event, before, self.container, Evidence(60)))
        for effect in effects:
            if isinstance(effect, Ask) and self.reply is not None:
                self.step(Answered(effect.claim_id, self.reply, 1_700_000_000.0))


@pytest.fixture
async def box() -> Box:
    return Box()


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
async def wire(box: Box, told: Told) -> AsyncIterator[Wire]:
    async with (
        listening(box.overrides.routes(), told, guard=report_api.refuse_browsers) as listener,
        await Wire.to(listener) as wire,
    ):
        yield wire
    assert told.failures == []


async def _order(wire: Wire, path: str, **fields: object) -> Answer:
    return await wire.ask(post(path, json.dumps({**ORDER, **fields}).encode()))


def _told(answer: Answer) -> tuple[int, str, str]:
    value: dict[str, Any] = answer.json()
    assert value["instance"] == "a"
    assert set(value) == {"outcome", "reason", "sentence", "retry_after_s", "instance", "order"}
    return answer.status, value["outcome"], value["reason"]


async def test_granted_order_drains_and_says_who_gave_it(wire: Wire, box: Box) -> None:
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
async def test_refused_order_says_why_and_leaves_it_up(
    wire: Wire, box: Box, reply: Reply, outcome: tuple[int, str, str]
) -> None:
    box.reply = reply
    answer = await _order(wire, "/cull")
    assert _told(answer) == outcome
    assert box.container.state is State.UP
    if isinstance(reply, Denied):
        assert answer.json()["retry_after_s"] == 42.0
        assert answer.json()["sentence"] == "all 10 tokens of the window are in use, the next comes back in 42s"


async def test_order_without_an_answer_in_time_is_a_202(wire: Wire, box: Box) -> None:
    box.reply = None
    assert _told(await _order(wire, "/cull")) == (202, "pending", "")
    assert _told(await _order(wire, "/cull", author="bob")) == (200, "already", "")
    assert [line.partition(" ")[0] for line in box.log] == ["alice", "bob"]


async def test_hall_that_does_not_listen_is_a_202_as_well(wire: Wire, box: Box) -> None:
    box.is_stuck = True
    assert _told(await _order(wire, "/cull")) == (202, "pending", "")
    assert _told(await _order(wire, "/revive")) == (202, "pending", "")
    box.step(CullOrdered("late", ""))  # nobody waits any more
    assert box.container.state is State.DRAINING


@pytest.mark.parametrize("event", [Restarted("2"), Stopped()], ids=["restarted", "stopped"])
async def test_order_that_meets_another_end_says_so(told: Told, event: Event) -> None:
    box = Box(limit_s=60)
    box.reply = None
    async with listening(box.overrides.routes(), told) as listener, await Wire.to(listener) as wire:
        await wire.send(post("/cull", json.dumps(ORDER).encode()))
        async with asyncio.timeout(5):
            await box.has_order.wait()
        box.step(event)
        word = "restarted" if isinstance(event, Restarted) else "stopping"
        assert _told(await wire.answer()) == (409, word, "")


async def test_order_for_one_that_is_down_changes_nothing(wire: Wire, box: Box) -> None:
    await _order(wire, "/cull")
    answer = await _order(wire, "/cull")
    assert _told(answer) == (200, "already", "")
    assert answer.json()["sentence"] == "it is draining already: a person ordered the cull"
    box.step(Stopped())
    assert _told(await _order(wire, "/cull")) == (409, "stopping", "")
    assert _told(await _order(wire, "/revive")) == (409, "stopping", "")


async def test_culled_container_is_revived(wire: Wire, box: Box) -> None:
    await _order(wire, "/cull")
    answer = await _order(wire, "/revive")
    assert _told(answer) == (200, "revived", "")
    assert box.container.state is State.UP
    assert box.container.latch is None
    assert box.log[-1] == f"alice revives instance a: stuck ({TCP})"
    answer = await _order(wire, "/revive")
    assert _told(answer) == (409, "not_down", "")
    assert answer.json()["sentence"] == "it is up: there is nothing to revive"


async def test_shadow_mode_only_says_what_it_would_do(told: Told) -> None:
    box = Box(Policy(enforce=False))
    async with listening(box.overrides.routes(), told) as listener, await Wire.to(listener) as wire:
        assert _told(await _order(wire, "/cull")) == (200, "would_cull", "")
        assert box.container.haproxy_up
        assert _told(await _order(wire, "/cull")) == (200, "already", "")


@pytest.mark.parametrize("path", ["/cull", "/revive"])
@pytest.mark.parametrize(
    ("content", "headers", "status", "word"),
    [
        pytest.param(b"", (), 400, "body", id="nothing"),
        pytest.param(b'{"reason":"x"}', (), 400, "body", id="nobody"),
        pytest.param(b'{"author":"a\\u001b"}', (), 400, "body", id="control character"),
        pytest.param(b'{"author":"alice"}', ("Origin: http://evil.example",), 403, "cross_origin", id="web page"),
        pytest.param(b'{"author":"alice"}', ("Host: evil.example",), 403, "host", id="rebound name"),
    ],
)
async def test_bad_order_orders_nothing(
    wire: Wire, box: Box, told: Told, *, path: str, content: bytes, headers: tuple[str, ...], status: int, word: str
) -> None:
    assert (await wire.ask(post(path, content, *headers))).status == status
    assert told.words == [word]
    assert box.log == []
    assert box.container.state is State.UP


async def test_orders_over_tcp_need_the_token_if_there_is_one(box: Box, told: Told) -> None:
    async def admits(header: str | None) -> bool:
        return header == "B x"

    overrides = Overrides(box.put, instance="a", limit_s=0.2, told=box.log.append, admits=admits)
    async with listening(overrides.routes(), told) as listener, await Wire.to(listener) as wire:
        content = json.dumps(ORDER).encode()
        for headers, status in (((), 401), (("Authorization: B y",), 401), (("Authorization: B x",), 202)):
            assert (await wire.ask(post("/cull", content, *headers))).status == status
    assert told.words == ["token", "token"]
    assert len(box.log) == 1


@pytest.mark.parametrize("path", ["/cull", "/revive"])
async def test_nobody_is_culled_by_looking(wire: Wire, box: Box, path: str) -> None:
    assert (await wire.ask(get(path))).status == 405
    assert box.container.state is State.UP
