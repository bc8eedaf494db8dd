"""Holds and the fleet on a real socket, with and without an answer of the store."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from harness.local_http import serving
from harness.raw_http import Answer, Observed, RawConnection, get, post
from harness.server_group import StubBudget
from sidecar.core.claims import CauseTrial, Fleet, Presence
from sidecar.core.explain import reasons
from sidecar.core.fleet.members import About, Member, MemberList
from sidecar.core.types import Entry, Hold, State
from sidecar.server.admin import AdminApi

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


NOW_S = 1_700_000_000.0
ORDER = {"for": "1h", "reason": "migration", "author": "alice"}
IDENTITY = {"service": "app", "instance": "a", "mode": "enforce", "budget": "10", "store": "redis://:***@h"}
OWN = {"state": "up", "since": NOW_S - 60, "incarnation": "1", "weight": 100, "errors": 0, "limit": 5}
TCP = "over TCP from 127.0.0.1"
HELD = {"scope": "service", "instance": "", "author": "alice", "reason": "migration", "until": NOW_S + 3600}
TIMEOUT = {"error": "timeout", "sentence": "Redis did not answer in time"}
ALONE = {"error": "alone", "sentence": reasons.failure("alone")}
AWAY = {"error": "connection", "sentence": "Redis cannot be reached"}


class AdminRig:
    """Sidecar ``a`` with what it is handed."""

    def __init__(self) -> None:
        self.budget = StubBudget(lambda: NOW_S)
        self.fleet: Fleet | None = None
        self.log: list[str] = []
        self.ledger: list[Entry] = []

    def fail(self, error: str) -> None:
        """Let the store fail from now on."""
        if error == "timeout":
            self.budget.server.hang()
        else:
            self.budget.server.fails = error

    def admin(self) -> AdminApi:
        return AdminApi(
            self.budget,
            fleet=lambda: self.fleet,
            identity=IDENTITY,
            own=lambda: OWN,
            limit_s=0.2,
            wall=lambda: NOW_S,
            log=self.log.append,
            record=self.ledger.append,
        )


@pytest.fixture
async def rig() -> AdminRig:
    return AdminRig()


@pytest.fixture
def observed() -> Observed:
    return Observed()


@pytest.fixture
async def wire(rig: AdminRig, observed: Observed) -> AsyncIterator[RawConnection]:
    async with (
        serving(rig.admin().routes(), observed) as listener,
        await RawConnection.to(listener) as wire,
    ):
        yield wire
    assert observed.failures == []


async def _hold(wire: RawConnection, **fields: object) -> Answer:
    return await wire.ask(post("/hold", json.dumps({**ORDER, **fields}).encode()))


async def _release(wire: RawConnection, query: str = "") -> Answer:
    return await wire.ask(get(f"/hold{query}", method="DELETE"))


async def _fleet(wire: RawConnection) -> Answer:
    return await wire.ask(get("/fleet"))


async def _shared(rig: AdminRig) -> list[Hold]:
    known = await rig.budget.member_list()
    assert isinstance(known, MemberList)
    return list(known.holds)


# -- hold ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "scope", "instance"),
    [
        pytest.param({}, "service", "", id="service"),
        pytest.param({"scope": "instance"}, "instance", "a", id="own instance"),
        pytest.param({"scope": "instance", "instance": "b"}, "instance", "b", id="another instance"),
    ],
)
async def test_hold_is_stored_in_the_shared_store(
    wire: RawConnection, rig: AdminRig, fields: dict[str, str], scope: str, instance: str
) -> None:
    answer = await _hold(wire, **fields)
    assert (answer.status, answer.json()) == (
        200,
        {"hold": {**HELD, "scope": scope, "instance": instance}, "stored": True},
    )
    assert await _shared(rig) == [Hold("alice", "migration", NOW_S + 3600, instance)]
    assert rig.budget.local_holds.in_force is None
    assert rig.log == [f"alice holds {f'instance {instance}' if instance else 'the service'}: migration ({TCP})"]
    once = f"hold {instance} {NOW_S + 3600:.0f}"
    detail = f"ordered at a {TCP}"
    assert rig.ledger == [Entry("hold", NOW_S, instance, "", "migration", "alice", 3600.0, detail, once)]


@pytest.mark.parametrize("error", [AWAY, ALONE, TIMEOUT], ids=["away", "alone", "hangs"])
async def test_hold_without_an_answer_is_kept_here_and_released_here(
    wire: RawConnection, rig: AdminRig, error: dict[str, str]
) -> None:
    rig.fail(error["error"])
    answer = await _hold(wire)
    assert (answer.status, answer.json()) == (200, {"hold": HELD, "stored": False, **error})
    assert rig.budget.local_holds.in_force == Hold("alice", "migration", NOW_S + 3600)
    assert rig.log == [f"alice holds the service: migration ({TCP}, here only: {error['sentence']})"]
    assert rig.ledger[0].detail == f"ordered at a {TCP}, here only: {error['sentence']}"
    for was_held in (True, False):
        released = {"released": was_held, "scope": "service", "instance": "", **error}
        assert (await _release(wire)).json() == released
    assert rig.budget.local_holds.in_force is None


@pytest.mark.parametrize(
    ("error", "status"), [(AWAY, 502), (TIMEOUT, 504), (ALONE, 404)], ids=["away", "hangs", "alone"]
)
async def test_order_about_another_instance_without_an_answer_does_nothing(
    wire: RawConnection, rig: AdminRig, error: dict[str, str], status: int
) -> None:
    rig.fail(error["error"])
    alone = {"error": "instance: there is no shared store, and this is a, not b"}
    for answer in (
        await _hold(wire, scope="instance", instance="b"),
        await _release(wire, "?scope=instance&instance=b"),
    ):
        assert (answer.status, answer.json()) == (status, alone if error == ALONE else error)
    assert (rig.budget.local_holds.in_force, rig.log) == (None, [])


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (post("/hold"), "body: not JSON"),
        (get("/hold?scope=x", method="DELETE"), "scope: takes one of"),
        (
            post("/hold", b'{"scope":"instance","instance":"b"}').replace(b"POST", b"DELETE", 1),
            "body: DELETE takes none, scope and instance go into the query: /hold?scope=instance&",
        ),
    ],
    ids=["nothing", "scope", "body of a release"],
)
async def test_bad_order_is_refused_and_holds_nothing(
    wire: RawConnection, rig: AdminRig, observed: Observed, request_: bytes, error: str
) -> None:
    answer = await wire.ask(request_)
    assert (answer.status, observed.words) == (400, ["body"])
    assert answer.error.startswith(error)
    assert rig.budget.server.calls.total() == 0


# -- release ------------------------------------------------------------------------------------------------


async def test_release_ends_the_hold_in_the_shared_store_and_is_recorded_with_its_author(
    wire: RawConnection, rig: AdminRig
) -> None:
    for instance in ("", "a"):
        await rig.budget.hold(instance, "bob", "why", 60)
    released = {"released": True, "scope": "service", "instance": ""}
    assert (await _release(wire, "?author=alice")).json() == released
    assert await _shared(rig) == [Hold("bob", "why", NOW_S + 60, "a")]
    released = {"released": True, "scope": "instance", "instance": "a"}
    assert (await _release(wire, "?scope=instance")).json() == released
    assert (await _release(wire, "?scope=instance")).json() == {**released, "released": False}
    assert await _shared(rig) == []
    assert rig.log[:2] == [f"alice releases the service ({TCP})", f"a person releases instance a ({TCP})"]
    detail = f"ordered at a {TCP}"
    assert rig.ledger[:2] == [
        Entry("release", NOW_S, "", author="alice", detail=detail),
        Entry("release", NOW_S, "a", detail=detail),
    ]


# -- fleet --------------------------------------------------------------------------------------------------


async def test_fleet_is_shown_member_by_member(wire: RawConnection, rig: AdminRig) -> None:
    about = About(State.UP, 7, "1", 100, 0, 5, "0.9")
    held = Hold("bob", "why", NOW_S + 60)
    paused = CauseTrial("redis", 1, 0, 540.0, 1, 1e9)
    rig.budget.known = MemberList(
        Fleet(2, 1, trials=(paused, CauseTrial("kafka", 1, 0)), hold=held, median_errors=3, median_ratio=0.25),
        0,
        (Member("a", Presence.WELL, "", 0.0, about), Member("b", Presence.SUSPECT, "redis", 0.0, duplicate=True)),
        (held,),
        ('{"window_us": 600000000}',),
        departed=(("c", 0.0),),
    )
    answer = await _fleet(wire)
    seen = answer.json()
    hold = {"scope": "service", "instance": "", "author": "bob", "reason": "why", "until": NOW_S + 60}
    assert answer.status == 200
    assert {name: seen[name] for name in IDENTITY} == IDENTITY
    fleet = seen["fleet"]
    assert (fleet["alive"], fleet["suspect"], fleet["hold"], fleet["paused"]) == (2, 1, hold, ["redis"])
    trial = {"cause": "redis", "limit": 1, "out": 0, "paused_s": 540.0, "failures": 1, "since": 1e9}
    assert fleet["trials"] == [trial], "kafka is as at its beginning"
    assert (fleet["median_errors"], fleet["median_ratio"], fleet["duplicate"]) == (3, 0.25, False)
    common = {"age_s": 0.0}
    assert seen["members"] == [
        {"instance": "a", "presence": "up", "kind": "", **common, "about": about._asdict(), "duplicate": False},
        {"instance": "b", "presence": "suspect", "kind": "redis", **common, "about": None, "duplicate": True},
    ]
    assert seen["departed"] == [{"instance": "c", "age_s": 0.0}]
    assert (seen["used"], seen["holds"], seen["local_hold"], seen["own"]) == (0, [hold], None, OWN)
    assert seen["settings"] == ['{"window_us": 600000000}']


@pytest.mark.parametrize(
    ("error", "status"), [("connection", 502), ("timeout", 504), ("alone", 200)], ids=["away", "slow", "alone"]
)
async def test_fleet_without_the_store_is_the_last_known_summary(
    wire: RawConnection, rig: AdminRig, error: str, status: int
) -> None:
    rig.budget.server.fails = error
    assert (await _fleet(wire)).json()["fleet"] is None
    await rig.budget.hold("", "alice", "migration", 3600)
    rig.fleet = Fleet(alive=3, hold=rig.budget.local_holds.in_force)
    answer = await _fleet(wire)
    seen: dict[str, Any] = answer.json()
    assert (answer.status, seen["error"]) == (status, error)
    assert (seen["fleet"]["alive"], seen["fleet"]["hold"], seen["local_hold"]) == (3, HELD, HELD)
    assert (seen["used"], seen["members"], seen["departed"], seen["holds"]) == (None, [], [], [])
