"""The engineer's routes on a real socket: what is held, what is told of it, and what a bucket that is away changes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from harness.listening import Answer, Told, Wire, get, listening, post
from harness.twin import TwinBudget
from harness.unreliable import UnreliableBudget
from sidecar.budget.held import HeldBudget
from sidecar.connections import BODY_LIMIT
from sidecar.core.fleet import FleetBucket
from sidecar.core.terms import Terms
from sidecar.core.words import US_PER_S, Beat, Fleet, Hold, Presence
from sidecar.intake import http
from sidecar.intake.admin import Admin

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

NOW_S = 1_700_000_000.0
TERMS = Terms()
ORDER = {"for": "1h", "reason": "migration", "author": "alice"}
IDENTITY = {"service": "app", "instance": "a", "mode": "enforce", "budget": "10", "bucket": "redis://:***@h"}
HELD = {"scope": "service", "instance": "", "author": "alice", "reason": "migration", "until": NOW_S + 3600}
TIMEOUT = {"error": "timeout", "sentence": "Redis did not answer in time"}
ALONE = {"error": "alone", "sentence": "there is no shared bucket"}
AWAY = {"error": "connection", "sentence": "Redis cannot be reached"}


class Desk:
    """Sidecar ``a`` with what it is handed."""

    def __init__(self) -> None:
        self.bucket = FleetBucket()
        self.twin = TwinBudget(self.bucket, TERMS, lambda: round(NOW_S * US_PER_S))
        self.budget = UnreliableBudget(self.twin)
        self.held = HeldBudget(self.budget, lambda: NOW_S, "a")
        self.fleet: Fleet | None = None
        self.log: list[str] = []

    def admin(self) -> Admin:
        return Admin(self.held, fleet=lambda: self.fleet, identity=IDENTITY, limit_s=0.2, told=self.log.append)


@pytest.fixture
async def desk() -> Desk:
    return Desk()


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
async def wire(desk: Desk, told: Told) -> AsyncIterator[Wire]:
    async with (
        listening(desk.admin().routes(), told, guard=http.refuse_browsers) as listener,
        await Wire.to(listener) as wire,
    ):
        yield wire
    assert told.failures == []


async def _hold(wire: Wire, **fields: object) -> Answer:
    return await wire.ask(post("/hold", json.dumps({**ORDER, **fields}).encode()))


async def _release(wire: Wire, query: str = "") -> Answer:
    return await wire.ask(get(f"/hold{query}", method="DELETE"))


async def _fleet(wire: Wire) -> Answer:
    return await wire.ask(get("/fleet"))


def _shared(desk: Desk) -> list[Hold]:
    return list(desk.bucket.holds.every(0))


# -- hold ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "scope", "instance"),
    [
        pytest.param({}, "service", "", id="service"),
        pytest.param({"scope": "instance"}, "instance", "a", id="own instance"),
        pytest.param({"scope": "instance", "instance": "b"}, "instance", "b", id="another instance"),
    ],
)
async def test_hold_is_stored_in_the_bucket(
    wire: Wire, desk: Desk, fields: dict[str, str], scope: str, instance: str
) -> None:
    answer = await _hold(wire, **fields)
    assert (answer.status, answer.json()) == (
        200,
        {"hold": {**HELD, "scope": scope, "instance": instance}, "stored": True},
    )
    assert _shared(desk) == [Hold("alice", "migration", NOW_S + 3600, instance)]
    assert desk.held.local is None
    assert desk.log == [f"alice holds {f'instance {instance}' if instance else 'the service'}: migration"]


@pytest.mark.parametrize("error", [AWAY, ALONE], ids=["away", "alone"])
async def test_hold_without_a_shared_bucket_is_kept_here(wire: Wire, desk: Desk, error: dict[str, str]) -> None:
    desk.budget.error = error["error"]
    answer = await _hold(wire)
    assert (answer.status, answer.json()) == (200, {"hold": HELD, "stored": False, **error})
    assert desk.held.local == Hold("alice", "migration", NOW_S + 3600)
    assert desk.log == [f"alice holds the service: migration (here only: {error['sentence']})"]


async def test_hold_under_a_bucket_that_hangs_is_kept_here(wire: Wire, desk: Desk) -> None:
    desk.budget.hangs = True
    answer = await _hold(wire)
    assert (answer.status, answer.json()) == (200, {"hold": HELD, "stored": False, **TIMEOUT})
    assert desk.held.local is not None


async def test_hold_of_another_that_nobody_can_be_told_is_a_502_and_holds_nobody(wire: Wire, desk: Desk) -> None:
    desk.budget.error = "connection"
    answer = await _hold(wire, scope="instance", instance="b")
    assert (answer.status, answer.json()) == (502, AWAY)
    assert desk.held.local is None
    assert desk.log == []


async def test_hold_of_another_under_a_bucket_that_hangs_is_a_504(wire: Wire, desk: Desk) -> None:
    desk.budget.hangs = True
    answer = await _hold(wire, scope="instance", instance="b")
    assert (answer.status, answer.json()) == (504, TIMEOUT)


@pytest.mark.parametrize("method", ["POST", "DELETE"])
async def test_without_a_shared_bucket_there_is_no_other_instance(wire: Wire, desk: Desk, method: str) -> None:
    desk.budget.error = "alone"
    other = {"scope": "instance", "instance": "b"}
    answer = await (_hold(wire, **other) if method == "POST" else _release(wire, "?scope=instance&instance=b"))
    assert (answer.status, answer.error) == (404, "instance: there is no shared bucket, and this is a, not b")


@pytest.mark.parametrize(
    ("request_", "status", "word", "error"),
    [
        pytest.param(post("/hold"), 400, "body", "body: not JSON", id="nothing"),
        pytest.param(post("/hold", b"[]"), 400, "body", "body: takes an object", id="no object"),
        pytest.param(post("/hold", b'{"for":"1h"}'), 400, "body", "reason: is missing", id="no reason"),
        pytest.param(post("/hold", b'{"for":"x"}'), 400, "body", "for: is not a duration", id="no duration"),
        pytest.param(post("/hold", b" " * BODY_LIMIT + b"{}"), 413, "too_large", "body: larger than", id="large"),
        pytest.param(get("/hold?scope=x", method="DELETE"), 400, "body", "scope: takes one of", id="scope"),
        pytest.param(
            post("/hold", b'{"scope":"instance","instance":"b"}').replace(b"POST", b"DELETE", 1),
            *(400, "body", "body: DELETE takes none, scope and instance go into the query: /hold?scope=instance&"),
            id="scope of a release in its body",
        ),
        pytest.param(get("/hold"), 405, "method", "method: /hold takes DELETE, POST", id="GET of the hold"),
        pytest.param(post("/fleet"), 405, "method", "method: /fleet takes GET, HEAD", id="POST of the fleet"),
        pytest.param(get("/fleet", "Origin: http://evil.example"), 403, "cross_origin", "Origin: ", id="web page"),
        pytest.param(
            get("/hold", "Origin: null", method="DELETE"), 403, "cross_origin", "Origin: ", id="web page that releases"
        ),
    ],
)
async def test_bad_order_is_refused_and_holds_nobody(
    wire: Wire, desk: Desk, told: Told, *, request_: bytes, status: int, word: str, error: str
) -> None:
    answer = await wire.ask(request_)
    assert answer.status == status
    assert answer.error.startswith(error)
    assert told.words == [word]
    assert desk.budget.asked == 0


# -- release ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "scope", "instance"),
    [
        pytest.param("", "service", "", id="service"),
        pytest.param("?scope=instance", "instance", "a", id="own instance"),
        pytest.param("?scope=instance&instance=b", "instance", "b", id="another instance"),
    ],
)
async def test_release_ends_the_hold_in_the_bucket(
    wire: Wire, desk: Desk, query: str, scope: str, instance: str
) -> None:
    await desk.twin.hold(instance, "bob", "why", 60)
    for released in (True, False):
        answer = await _release(wire, query)
        assert (answer.status, answer.json()) == (200, {"released": released, "scope": scope, "instance": instance})
    assert _shared(desk) == []


@pytest.mark.parametrize("was_held", [True, False], ids=["held here", "not held here"])
async def test_release_without_a_bucket_is_one_of_this_sidecar(wire: Wire, desk: Desk, *, was_held: bool) -> None:
    desk.budget.error = "connection"
    if was_held:
        await desk.held.hold("", "alice", "why", 60)
    answer = await _release(wire)
    assert (answer.status, answer.json()) == (
        200,
        {"released": was_held, "scope": "service", "instance": "", **AWAY},
    )
    assert desk.held.local is None


async def test_release_of_another_without_a_bucket_is_a_502(wire: Wire, desk: Desk) -> None:
    desk.budget.error = "connection"
    answer = await _release(wire, "?scope=instance&instance=b")
    assert (answer.status, answer.json()) == (502, AWAY)


# -- fleet --------------------------------------------------------------------------------------------------


async def test_fleet_is_told_member_by_member(wire: Wire, desk: Desk) -> None:
    await desk.twin.beat(Beat("a", "1", Presence.WELL))
    await desk.twin.beat(Beat("b", "1", Presence.WANTS, "redis"))
    await desk.twin.hold("", "bob", "why", 60)
    answer = await _fleet(wire)
    seen = answer.json()
    hold = {"scope": "service", "instance": "", "author": "bob", "reason": "why", "until": NOW_S + 60}
    assert answer.status == 200
    assert {name: seen[name] for name in IDENTITY} == IDENTITY
    assert (seen["fleet"]["alive"], seen["fleet"]["wanting"], seen["fleet"]["hold"]) == (2, 1, hold)
    assert seen["members"] == [
        {"instance": "a", "presence": "well", "kind": "", "age_s": 0.0},
        {"instance": "b", "presence": "wants", "kind": "redis", "age_s": 0.0},
    ]
    assert (seen["used"], seen["holds"], seen["local_hold"]) == (0, [hold], None)
    assert seen["policies"] == [str(TERMS)]


@pytest.mark.parametrize(
    ("error", "status"), [("connection", 502), ("timeout", 504), ("alone", 200)], ids=["away", "slow", "alone"]
)
async def test_fleet_without_a_bucket_is_what_was_heard_last(wire: Wire, desk: Desk, error: str, status: int) -> None:
    desk.budget.error = error
    await desk.held.hold("", "alice", "migration", 3600)
    desk.fleet = Fleet(alive=3, hold=desk.held.local)
    answer = await _fleet(wire)
    seen: dict[str, Any] = answer.json()
    assert (answer.status, seen["error"]) == (status, error)
    assert (seen["fleet"]["alive"], seen["fleet"]["hold"], seen["local_hold"]) == (3, HELD, HELD)
    assert (seen["used"], seen["members"], seen["holds"]) == (None, [], [])


async def test_fleet_that_was_never_heard_of_is_null(wire: Wire, desk: Desk) -> None:
    desk.budget.hangs = True
    answer = await _fleet(wire)
    assert (answer.status, answer.json()["fleet"]) == (504, None)
