"""The fleet as JSON, with and without an answer of the store: its members, its tokens, its banner."""

from __future__ import annotations

from typing import Any, Final

import pytest

from harness.listeners import serving
from harness.raw_http import Answer, Observed, RawConnection, get
from harness.server_group import StubBudget
from sidecar.config.settings import BudgetConfig
from sidecar.core.claims import CauseTrial, Fleet, Presence, Unknown
from sidecar.core.fleet.members import About, Member, MemberList
from sidecar.core.types import Entry, Hold, State
from sidecar.server.fleet_api import FleetApi

NOW_S: Final = 1_700_000_000.0
IDENTITY: Final = {"service": "app", "instance": "a", "mode": "enforce", "store": "redis://:***@h"}
OWN: Final = About(State.UP, 5, "life", 100, 0, 5, "0.2", 1)
HELD: Final = {"scope": "service", "instance": "", "author": "anna", "reason": "look", "until": NOW_S + 60}
PAUSED: Final = CauseTrial("redis", 1, 0, 540.0, 1, 1e9)


class Office:
    """Sidecar ``a``, whose store may be away."""

    def __init__(self, budget: str = "10", alone: str = "") -> None:
        self.budget = StubBudget(lambda: NOW_S)
        self.fleet: Fleet | None = None
        self.own = OWN
        self.local: list[Entry] = []
        self.api = FleetApi(
            self.budget,
            BudgetConfig(budget=budget),
            identity=IDENTITY,
            own=lambda: self.own,
            fleet=lambda: self.fleet,
            fleet_age_s=lambda: 90.0,
            local_entries=lambda since: [entry for entry in self.local if entry.at >= since],
            limit_s=5.0,
            wall=lambda: NOW_S,
            alone=alone,
            runbook_url="https://wiki/runbooks",
        )

    async def answer(self) -> Answer:
        async with (
            serving({"/fleet": {"GET": self.api.get}}, observed := Observed()) as server,
            await RawConnection.to(server) as wire,
        ):
            answer = await wire.ask(get("/fleet"))
        assert observed.failures == []
        return answer

    async def fields(self) -> dict[str, Any]:
        return dict((await self.answer()).json())


@pytest.fixture
async def office() -> Office:
    return Office()


async def test_fleet_is_shown_member_by_member(office: Office) -> None:
    held = Hold("anna", "look", NOW_S + 60)
    about = OWN._replace(errors=3)
    office.budget.known = MemberList(
        Fleet(2, 1, trials=(PAUSED, CauseTrial("kafka", 1, 0)), hold=held, median_errors=3, median_ratio=0.25),
        1,
        (Member("a", Presence.WELL, "", 1.0, about), Member("b", Presence.SUSPECT, "redis", 2.0, duplicate=True)),
        (held,),
        ('{"window_us": 600000000}',),
        grants=(NOW_S - 60,),
        departed=(("c", 3.0),),
    )
    answer = await office.answer()
    fields = answer.json()
    assert (answer.status, {name: fields[name] for name in IDENTITY}) == (200, IDENTITY)
    fleet = fields["fleet"]
    assert (fleet["alive"], fleet["suspect"], fleet["hold"], fleet["paused"]) == (2, 1, HELD, ["redis"])
    trial = {"cause": "redis", "limit": 1, "out": 0, "paused_s": 540.0, "failures": 1, "since": 1e9}
    assert fleet["trials"] == [trial], "kafka is as at its beginning"
    assert (fleet["median_errors"], fleet["median_ratio"], fleet["duplicate"]) == (3, 0.25, False)
    a = {"presence": "up", "kind": "", "age_s": 1.0, "about": OWN._asdict(), "duplicate": False}
    b = {"presence": "suspect", "kind": "redis", "age_s": 2.0, "about": None, "duplicate": True}
    assert fields["members"] == [
        {"instance": "a", **a, "state": "up", "since": 5},
        {"instance": "b", **b, "state": "suspect", "since": None},
    ]
    assert (fields["departed"], fields["settings"]) == ([{"instance": "c", "age_s": 3.0}], ['{"window_us": 600000000}'])
    assert (fields["used"], fields["capacity"], fields["grants"]) == (1, 10, [NOW_S - 60])
    assert (fields["holds"], fields["local_hold"], fields["own"]) == ([HELD], None, OWN._asdict())
    banner = fields["banner"]
    assert banner["runbook"] == "https://wiki/runbooks#hold"
    assert banner["sentence"] == (
        "anna holds all culls until 22:14 UTC (look), and 1 container (b) has too many errors."
    )


@pytest.mark.parametrize(
    ("member", "state", "since"),
    [
        (Member("b", Presence.DOWN, "redis", 3_600.0), "down", NOW_S - 3_600),
        (Member("b", Presence.SUSPECT, "redis", 3_600.0), "silent", NOW_S - 3_600),
        (Member("b", Presence.WELL, "", 1.0, OWN._replace(state=State.STARTING)), "starting", 5),
        (Member("b", Presence.DOWN, "redis", 1.0, OWN), "down", NOW_S),
        (Member("b", Presence.DOWN, "redis", 1.0, OWN._replace(state=State.DRAINING)), "draining", 5),
    ],
    ids=["down", "silent", "starting", "down, and its sidecar has not said so", "draining"],
)
async def test_state_is_that_of_the_store_and_as_detailed_as_its_sidecar_told_it(
    office: Office, member: Member, state: str, since: float
) -> None:
    office.budget.known = MemberList(Fleet(1), 0, (member,))
    _, row = (await office.fields())["members"]
    assert (row["state"], row["since"]) == (state, since)


async def test_own_member_has_what_is_newer_than_its_beat_unless_another_container_has_its_name(office: Office) -> None:
    beaten = Member("a", Presence.SUSPECT, "redis", 1.0, OWN._replace(errors=7))
    for member, own, expected in (
        (beaten, OWN, ("up", "", 0)),
        (beaten, OWN._replace(state=State.DOWN, errors=9), ("down", "redis", 9)),
        (beaten._replace(duplicate=True), OWN, ("suspect", "redis", 7)),
    ):
        office.own = own
        office.budget.known = MemberList(Fleet(1), 0, (member,))
        (row,) = (await office.fields())["members"]
        assert (row["state"], row["kind"], row["about"]["errors"]) == expected


async def test_what_suspects_have_in_common_stands_in_the_banner_too(office: Office) -> None:
    members = [
        Member(f"{presence}{n}", presence, "", 1.0, OWN._replace(app_version=version))
        for presence, version in ((Presence.SUSPECT, "412"), (Presence.WELL, "411"))
        for n in range(5)
    ]
    office.budget.known = MemberList(Fleet(10, 5), 0, tuple(members))
    fields = await office.fields()
    assert fields["common"]["value"] == "412"
    assert "All 5 suspects run version 412; " in fields["banner"]["sentence"]


async def test_part_of_the_fleet_is_the_capacity() -> None:
    office = Office(budget="20%")
    office.budget.known = MemberList(Fleet(9, 1, 1), 1)
    fields = await office.fields()
    assert (fields["capacity"], fields["bound"]) == (2, "at most 2 culls in any window, or 6 with refunds")


@pytest.mark.parametrize(("error", "status"), [("connection", 502), ("timeout", 504)], ids=["away", "slow"])
async def test_fleet_without_the_store_is_the_last_known_summary(office: Office, error: str, status: int) -> None:
    office.budget.server.fails = error
    first = await office.fields()
    assert (first["fleet"], first["fleet_age_s"], first["used"], first["capacity"]) == (None, None, None, 10)
    await office.budget.hold("", "anna", "look", 60)
    office.fleet = Fleet(alive=3, used=4, capacity=12, hold=Hold("anna", "look", NOW_S + 60))
    assert (await office.fields())["holds"] == [], "the local one, which stands beside them"
    office.fleet = office.fleet._replace(hold=Hold("bob", "look", NOW_S + 60))
    answer = await office.answer()
    fields: dict[str, Any] = answer.json()
    assert (answer.status, fields["error"], fields["fleet_age_s"]) == (status, error, 90.0)
    assert (fields["fleet"]["alive"], fields["local_hold"], fields["used"], fields["capacity"]) == (3, HELD, 4, 12)
    assert ([one["instance"] for one in fields["members"]], fields["departed"]) == (["a"], [])
    assert fields["holds"] == [{**HELD, "author": "bob"}]
    assert fields["banner"]["level"] == "critical"
    assert "Redis has given no answer since 22:11 UTC" in fields["banner"]["sentence"]
    assert IDENTITY["store"] in fields["banner"]["action"]


@pytest.mark.parametrize(("budget", "capacity", "sentence"), [("10", 10, ""), ("100%", 1, " All tokens are in use")])
async def test_budget_without_a_shared_store_comes_from_the_own_grants(
    monkeypatch: pytest.MonkeyPatch, budget: str, capacity: int, sentence: str
) -> None:
    office = Office(budget, alone="No shared store.")
    office.own = OWN._replace(state=State.SUSPECT)

    async def member_list() -> Unknown:
        return Unknown("alone")

    monkeypatch.setattr(office.budget, "member_list", member_list)
    ago_s = {700: "granted", 100: "granted", 20: "denied", 10: "granted"}
    office.local = [Entry(what, NOW_S - ago) for ago, what in ago_s.items()]
    answer = await office.answer()
    fields = answer.json()
    assert (answer.status, fields["used"], fields["capacity"], fields["fleet"]) == (200, 2, capacity, None)
    assert fields["grants"] == [NOW_S - 100, NOW_S - 10]
    assert f"1 of 1 container (a) has too many errors since 00:00 UTC.{sentence}" in fields["banner"]["sentence"]
