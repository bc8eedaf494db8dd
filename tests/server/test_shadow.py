"""In shadow mode every byte for a balancer or a scheduler is that of a container without errors, whatever happens."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Final

import pytest

from harness.controller import ControllerRig
from harness.raw_http import RawConnection
from harness.virtual_time import in_virtual_time, settle
from sidecar.core.app_reports import ErrorReport, Results
from sidecar.core.claims import Claim, Denied, Fleet, Granted, Unknown
from sidecar.core.life.container import Container
from sidecar.core.life.events import CullOrder, CullOrdered
from sidecar.core.measure.weight import FULL
from sidecar.core.types import Hold, Latch, Policy, Reason, State, Verdict
from sidecar.server import health
from sidecar.server.agent_check import AgentCheck

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sidecar.core.life.snapshot import Snapshot

Shown = dict[str, object]
"""Path or listener -> everything that an answer has, without its date."""

PATHS: Final = ("/health", "/health/haproxy", "/health/nomad", "/health/restart", "/livez", "/readyz")
SHADOW: Final = Policy(error_limit=5, settle_s=0.0, drain_s=10.0, enforce=False)
SICK: Final = Verdict((Reason("error_limit", 7.0, 5.0, "7 server errors in 60 s"),))
HELD: Final = Denied("hold", 0, 10, 60.0, hold=Hold("alice", "looking", 9e9))
UP: Final = Container(State.UP, 100.0, "web/a", verdict=SICK)
CLAIM: Final = Claim(UP.claim_id)
VARIANTS: Final = {
    "plain": UP,
    "refused": UP._replace(answer=Denied("window", 10, 10, 60.0), refused=("window",), is_announced=True),
    "held": UP._replace(answer=HELD, refused=("hold",)),
    "no clear answer": UP._replace(answer=Unknown("timeout"), unknowns=3, unclear=CLAIM, outstanding=CLAIM, asked=True),
    "ordered": UP._replace(order=CullOrder("alice", "now", State.UP), outstanding=CLAIM),
    "would be down": UP._replace(answer=Granted(1, 10), would_culls=1, would_down=True),
    "would retire": UP._replace(would_retire=True),
    "with a token": UP._replace(answer=Granted(1, 10), latch=Latch("web/a/-", 1.0, "culled")),
    "with a lease": UP._replace(latch=Latch("", 1.0, "old", lease="lease-0"), lease_ends=900.0),
}


async def everything_shown(snapshot: Snapshot) -> Shown:
    """The answers of the real handlers to every poll, probe and agent check."""
    listener = health.Health(
        lambda: snapshot,
        stale_after_s=60.0,
        on_poll=lambda *_: None,
        on_failure=_fail,
        explanation=lambda _: "down",
        clock=lambda: snapshot.now,
    )
    answers = {**listener.polls, **listener.probes}
    shown: Shown = {"agent": await _agent_line(snapshot)}
    for path in PATHS:
        shown[path] = re.sub(rb"Date: .*\r\n", b"", answers[path]().written("GET", keeps=True))
    return shown


async def _agent_line(snapshot: Snapshot) -> bytes:
    agent = AgentCheck(lambda: snapshot, on_poll=lambda *_: None, on_failure=_fail)
    await agent.open_tcp("127.0.0.1", 0)
    try:
        async with await RawConnection.to(agent) as poller:
            return await poller.rest()
    finally:
        agent.stop()


def _fail(error: Exception) -> None:
    raise error


def published(policy: Policy) -> Snapshot:
    """What a controller with this policy publishes of a container that is up and has no errors."""
    snapshots = []

    @in_virtual_time
    async def publish() -> None:
        async with ControllerRig(policy, container=Container(State.UP, 0.0, "web/a")) as rig:
            snapshots.append(rig.controller.snapshot)

    publish()
    return snapshots[0]


def _compare(snapshots: Mapping[str, Snapshot], state: State = State.UP) -> None:
    """Compare all answers with those of a container without errors in enforce mode; it stops if ``state`` is that."""
    idle = published(SHADOW._replace(enforce=True))
    if state is State.STOPPING:
        idle = idle._replace(container=idle.container._replace(state=state))

    async def compare() -> None:
        expected = await everything_shown(idle)
        for what, snapshot in snapshots.items():
            assert await everything_shown(snapshot) == expected, what

    asyncio.run(compare())


@pytest.mark.parametrize("state", State)
def test_shadow_shows_an_idle_container_in_every_state_and_at_every_weight(state: State) -> None:
    snapshot = published(SHADOW)
    _compare(
        {
            f"{name} at {percent} %": snapshot._replace(
                container=variant._replace(state=state), weight=percent, is_soft_drained=percent < FULL
            )
            for name, variant in VARIANTS.items()
            for percent in (FULL, 40, 10)
        },
        state,
    )


@in_virtual_time
async def _story(snapshots: dict[str, Snapshot]) -> None:
    """A container in shadow mode from its first failed request to its end; ``snapshots`` gets each chapter."""
    policy = SHADOW._replace(lifetime_s=300.0)
    async with ControllerRig(policy) as rig:

        def keep(chapter: str) -> None:
            snapshots[chapter] = rig.controller.snapshot

        await rig.beat_answered(Fleet(10, 1))
        await rig.errors(7)
        keep("suspect, would be drained softly")
        await rig.answered(HELD)
        keep("held")
        await rig.reports(Results(5, 7), ErrorReport(7))
        await rig.advance(10)
        await rig.answered(Granted(1, 10))
        keep("would be down")
        await rig.advance(70)
        keep("recovered")  # its success rate is forgotten some minutes later
        rig.controller.inbox.put(CullOrdered("alice", "now"))
        await settle()
        keep("ordered")
        await rig.answered(Granted(2, 10))
        keep("ordered, would be down")
        await rig.advance(300)
        keep("would retire")
        await rig.errors(7, app_start="boot-2")
        keep("restarted, suspect")
        assert rig.failures == []
        # What the action, the hook and the next sidecar go by:
        assert {State.RETIRING, State.DRAINING, State.DOWN}.isdisjoint(rig.states)
        assert {memory.latch for memory in rig.notes.saved} == {None}
        assert rig.budget.leases == []


def test_shadow_shows_an_idle_container_while_a_real_controller_does_all_that_it_may() -> None:
    snapshots: dict[str, Snapshot] = {}
    _story(snapshots)
    _compare(snapshots)
    would = {chapter: snapshot.would_share for chapter, snapshot in snapshots.items()}
    assert would == {
        "suspect, would be drained softly": 10,
        "held": 10,
        "would be down": 0,
        "recovered": 10,
        "ordered": 10,
        "ordered, would be down": 0,
        "would retire": 100,
        "restarted, suspect": 10,
    }
    assert snapshots["would retire"].container.would_retire


@pytest.mark.parametrize(
    ("policy", "word"),
    [(SHADOW._replace(enforce=True), "excessive"), (SHADOW, "fine")],
    ids=["enforce", "shadow"],
)
@in_virtual_time
async def test_fewer_errors_are_expected_only_of_a_container_that_is_drained_softly(policy: Policy, word: str) -> None:
    """In shadow mode its load is not lowered: 8 errors a minute are no more than chance where 2 are usual."""
    async with ControllerRig(policy) as rig:
        await rig.beat_answered(Fleet(10, 1, median_errors=2))
        await rig.errors(20)
        await rig.advance(40)
        await rig.errors(8)
        await rig.advance(35)
        verdict = rig.controller.container.verdict
        assert (rig.controller.snapshot.evidence.errors, verdict and verdict.word) == (8, word)
