"""A person's orders: hold, release, cull or revive; what is refused is named by its field."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from harness.listeners import serving
from harness.raw_http import Answer, Observed, RawConnection, get, post
from harness.server_group import StubBudget
from sidecar.core.explain import reasons
from sidecar.core.fleet.members import MemberList
from sidecar.core.types import Entry, Hold
from sidecar.net import web
from sidecar.net.json_fields import BadFieldError
from sidecar.server.hold_orders import HoldOrders
from sidecar.server.orders import NO_REASON, Order, read_cull_or_revive, read_hold, read_release

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

LEAST = {"for": "1h", "reason": "why", "author": "alice"}


def _hold(**fields: object) -> Order:
    return read_hold(json.dumps({**LEAST, **fields}).encode(), "a")


def _release(*pairs: tuple[str, str]) -> Order:
    return read_release(pairs, "a")


@pytest.mark.parametrize(
    ("fields", "order"),
    [
        pytest.param({}, Order("", "alice", "why", 3600.0), id="least"),
        pytest.param({"scope": "instance"}, Order("a", "alice", "why", 3600.0), id="own instance"),
        pytest.param({"scope": "instance", "instance": "b"}, Order("b", "alice", "why", 3600.0), id="another"),
        pytest.param({"for": 90}, Order("", "alice", "why", 90.0), id="seconds"),
        pytest.param({"for": "1s"}, Order("", "alice", "why", 1.0), id="shortest"),
        pytest.param({"for": "168h"}, Order("", "alice", "why", 604800.0), id="longest"),
        pytest.param({"reason": " größer 🚀 "}, Order("", "alice", "größer 🚀", 3600.0), id="trimmed, any script"),
        pytest.param({"reason": "x" * 200}, Order("", "alice", "x" * 200, 3600.0), id="longest reason"),
        pytest.param({"author": "x" * 100}, Order("", "x" * 100, "why", 3600.0), id="longest author"),
    ],
)
def test_hold_is_read(fields: dict[str, object], order: Order) -> None:
    assert _hold(**fields) == order


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        pytest.param({"for": "0.9s"}, "for: takes 1s to 168h", id="too short"),
        pytest.param({"for": "169h"}, "for: takes 1s to 168h", id="too long"),
        pytest.param({"for": None}, "for: is not a duration", id="null for a duration"),
        pytest.param({"reason": "x" * 201}, "reason: takes a line of 1 to 200", id="long reason"),
        pytest.param({"reason": "a\x1b[2Jb"}, "reason: takes a line", id="terminal codes"),
        pytest.param({"reason": "a\u202eb"}, "reason: takes a line", id="text that turns round"),
        pytest.param({"reason": 5}, "reason: takes a line", id="number for a reason"),
        pytest.param({"author": "x" * 101}, "author: takes a line of 1 to 100", id="long author"),
        pytest.param({"scope": "all"}, "scope: takes one of service, instance", id="scope"),
        pytest.param({"scope": "instance", "instance": "a b"}, "instance: takes 1 to 128", id="blank in the instance"),
        pytest.param({"instance": "b"}, "instance: goes with scope instance", id="instance without its scope"),
    ],
)
def test_bad_hold_is_refused_by_the_field(fields: dict[str, object], complaint: str) -> None:
    with pytest.raises(BadFieldError, match=f"^{complaint}"):
        _hold(**fields)


@pytest.mark.parametrize("missing", sorted(LEAST))
def test_missing_field_is_named(missing: str) -> None:
    rest = {name: value for name, value in LEAST.items() if name != missing}
    with pytest.raises(BadFieldError, match=f"^{missing}: is missing$"):
        read_hold(json.dumps(rest).encode(), "a")


@pytest.mark.parametrize(
    ("pairs", "release"),
    [
        ((), Order("")),
        ((("scope", "instance"),), Order("a")),
        ((("instance", "b"), ("scope", "instance")), Order("b")),
        ((("author", "alice"),), Order("", "alice")),
        ((("instance", "b"),), "instance: goes with scope instance"),
        ((("scope", "service"), ("scope", "instance")), "scope: given twice"),
        ((("for", "1h"),), "for: no such field"),
    ],
)
def test_release_is_read_or_refused_by_the_field(pairs: Any, release: Order | str) -> None:
    if isinstance(release, str):
        with pytest.raises(BadFieldError, match=f"^{release}"):
            _release(*pairs)
    else:
        assert _release(*pairs) == release


@pytest.mark.parametrize(
    ("body", "order"),
    [
        (b'{"author":"alice"}', Order("", "alice", NO_REASON)),
        (b'{"author":"alice","reason":" stuck "}', Order("", "alice", "stuck")),
        (b"{}", "body: takes an object with fields of author, reason"),
        (b'{"reason":"x"}', "author: is missing"),
        (b'{"author":"alice","instance":"b"}', "instance: no such field"),
    ],
)
def test_order_to_cull_or_revive_is_read_or_refused_by_the_field(body: bytes, order: Order | str) -> None:
    if isinstance(order, str):
        with pytest.raises(BadFieldError, match=f"^{order}"):
            read_cull_or_revive(body)
    else:
        assert read_cull_or_revive(body) == order


# -- /hold on a real socket -----------------------------------------------------------------------------------------


NOW_S = 1_700_000_000.0
ORDER = {"for": "1h", "reason": "migration", "author": "alice"}
TCP = "over TCP from 127.0.0.1"
HELD = {"scope": "service", "instance": "", "author": "alice", "reason": "migration", "until": NOW_S + 3600}
TIMEOUT = {"error": "timeout", "sentence": "Redis did not answer in time"}
ALONE = {"error": "alone", "sentence": reasons.failure("alone")}
AWAY = {"error": "connection", "sentence": "Redis cannot be reached"}


class HoldsRig:
    """Sidecar ``a`` with what it is handed."""

    def __init__(self) -> None:
        self.budget = StubBudget(lambda: NOW_S)
        self.log: list[str] = []
        self.ledger: list[Entry] = []

    def fail(self, error: str) -> None:
        """Let the store fail from now on."""
        if error == "timeout":
            self.budget.server.hang()
        else:
            self.budget.server.fails = error

    def routes(self) -> web.Routes:
        log, record = self.log.append, self.ledger.append
        return HoldOrders(self.budget, instance="a", limit_s=0.2, wall=lambda: NOW_S, log=log, record=record).routes()


@pytest.fixture
async def rig() -> HoldsRig:
    return HoldsRig()


@pytest.fixture
async def wire(rig: HoldsRig, observed: Observed) -> AsyncIterator[RawConnection]:
    async with serving(rig.routes(), observed) as listener, await RawConnection.to(listener) as wire:
        yield wire
    assert observed.failures == []


async def _ordered(wire: RawConnection, **fields: object) -> Answer:
    return await wire.ask(post("/hold", json.dumps({**ORDER, **fields}).encode()))


async def _released(wire: RawConnection, query: str = "") -> Answer:
    return await wire.ask(get(f"/hold{query}", method="DELETE"))


async def _shared(rig: HoldsRig) -> list[Hold]:
    known = await rig.budget.member_list()
    assert isinstance(known, MemberList)
    return list(known.holds)


@pytest.mark.parametrize(
    ("fields", "scope", "instance"),
    [
        pytest.param({}, "service", "", id="service"),
        pytest.param({"scope": "instance"}, "instance", "a", id="own instance"),
        pytest.param({"scope": "instance", "instance": "b"}, "instance", "b", id="another instance"),
    ],
)
async def test_hold_is_stored_in_the_shared_store(
    wire: RawConnection, rig: HoldsRig, fields: dict[str, str], scope: str, instance: str
) -> None:
    answer = await _ordered(wire, **fields)
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
    wire: RawConnection, rig: HoldsRig, error: dict[str, str]
) -> None:
    rig.fail(error["error"])
    answer = await _ordered(wire)
    assert (answer.status, answer.json()) == (200, {"hold": HELD, "stored": False, **error})
    assert rig.budget.local_holds.in_force == Hold("alice", "migration", NOW_S + 3600)
    assert rig.log == [f"alice holds the service: migration ({TCP}, here only: {error['sentence']})"]
    assert rig.ledger[0].detail == f"ordered at a {TCP}, here only: {error['sentence']}"
    for was_held in (True, False):
        released = {"released": was_held, "scope": "service", "instance": "", **error}
        assert (await _released(wire)).json() == released
    assert rig.budget.local_holds.in_force is None


@pytest.mark.parametrize(
    ("error", "status"), [(AWAY, 502), (TIMEOUT, 504), (ALONE, 404)], ids=["away", "hangs", "alone"]
)
async def test_order_about_another_instance_without_an_answer_does_nothing(
    wire: RawConnection, rig: HoldsRig, error: dict[str, str], status: int
) -> None:
    rig.fail(error["error"])
    alone = {"error": "instance: there is no shared store, and this is a, not b"}
    for answer in (
        await _ordered(wire, scope="instance", instance="b"),
        await _released(wire, "?scope=instance&instance=b"),
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
    wire: RawConnection, rig: HoldsRig, observed: Observed, request_: bytes, error: str
) -> None:
    answer = await wire.ask(request_)
    assert (answer.status, observed.words) == (400, ["body"])
    assert answer.error.startswith(error)
    assert rig.budget.server.calls.total() == 0


async def test_release_ends_the_hold_in_the_shared_store_and_is_recorded_with_its_author(
    wire: RawConnection, rig: HoldsRig
) -> None:
    for instance in ("", "a"):
        await rig.budget.hold(instance, "bob", "why", 60)
    released = {"released": True, "scope": "service", "instance": ""}
    assert (await _released(wire, "?author=alice")).json() == released
    assert await _shared(rig) == [Hold("bob", "why", NOW_S + 60, "a")]
    released = {"released": True, "scope": "instance", "instance": "a"}
    assert (await _released(wire, "?scope=instance")).json() == released
    assert (await _released(wire, "?scope=instance")).json() == {**released, "released": False}
    assert await _shared(rig) == []
    assert rig.log[:2] == [f"alice releases the service ({TCP})", f"a person releases instance a ({TCP})"]
    detail = f"ordered at a {TCP}"
    assert rig.ledger[:2] == [
        Entry("release", NOW_S, "", author="alice", detail=detail),
        Entry("release", NOW_S, "a", detail=detail),
    ]
