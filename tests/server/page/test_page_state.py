"""The data of the status page: with a shared store, with one that is away, and without one."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from harness.budgets import StubBudget, UnreliableBudget
from sidecar.config.slices import BudgetConfig, JudgingConfig
from sidecar.core.fleet.about import About, Member, MemberList
from sidecar.core.types import CauseTrial, Entry, Fleet, Presence, State, Unknown
from sidecar.server.history import Decision
from sidecar.server.page import page_state
from sidecar.server.page.page_state import DETAIL_SHOWN, EVENTS, PageSources, PageState
from sidecar.store.budget_with_holds import BudgetWithHolds

PAUSED = CauseTrial("redis", 1, 0, 540.0, 1)


class Office:
    """Sidecar ``a``, whose store may be away."""

    def __init__(self, budget: str = "10") -> None:
        self.shared = StubBudget(time.time)
        self.budget = UnreliableBudget(self.shared)
        self.held = BudgetWithHolds(self.budget, time.time, "a")
        self.history: list[Decision] = []
        self.fleet: Fleet | None = None
        self.local: list[Entry] = []
        sources = PageSources(
            lambda: {"at": 1.0, "state": "up"},
            cast("Any", SimpleNamespace(newest=lambda: self.history)),
            self.held,
            lambda: self.fleet,
            lambda: [0] * 60,
            lambda _since: self.local,
        )
        self.status = PageState(JudgingConfig(), BudgetConfig(budget=budget), sources, limit_s=5.0)

    async def shown(self, fleet: Fleet, *members: Member, **changes: Any) -> dict[str, Any]:
        """The page's data of such a fleet."""
        self.shared.known = MemberList(fleet, 0, members)._replace(**changes)
        shown: dict[str, Any] = (await self.status.slow())["fleet"]
        return shown


@pytest.fixture
def office() -> Office:
    return Office()


async def test_quick_parts_come_from_memory(office: Office) -> None:
    office.budget.error = "connection"
    parts = office.status.quick()
    assert parts["why"] == {"state": "up"}
    assert (parts["errors"]["limit"], parts["errors"]["window_s"], len(parts["errors"]["minutes"])) == (5, 60, 60)
    assert parts["csrf"] == office.status.csrf
    assert parts["csrf"] != Office().status.csrf


async def test_members_tokens_and_holds_are_those_of_the_store(office: Office) -> None:
    now = time.time()
    every = (Member("b", Presence.SUSPECT, "redis", 1.0, duplicate=True), Member("c", Presence.DOWN, "disk", 2.0))
    office.shared.known = MemberList(Fleet(1, 1, 1, trials=(PAUSED,)), 1, every, grants=(now,))
    await office.held.hold("b", "anna", "look", 60)
    parts = await office.status.slow()
    members = [(one["instance"], one["presence"], one["kind"], one["duplicate"]) for one in parts["fleet"]["members"]]
    assert members == [("b", "suspect", "redis", True), ("c", "down", "disk", False)]
    assert (parts["fleet"]["paused"], parts["fleet"]["trials"]) == (["redis"], [PAUSED._asdict()])
    assert (parts["budget"]["used"], parts["budget"]["capacity"], parts["store"]) == (1, 10, None)
    assert parts["budget"]["back_at"] == [pytest.approx(now + 600, abs=0.01)]
    (hold,) = parts["holds"]
    assert (hold["scope"], hold["instance"], hold["author"], hold["here_only"]) == ("instance", "b", "anna", False)


async def test_descriptions_and_departed_members_are_shown_and_numbers_alone_are_no_news(office: Office) -> None:
    about = About(State.UP, 7, "1", 100, 0, 5, "0.9")
    well = Member("b", Presence.WELL, "", 1.0, about)
    gone = {"departed": (("c", 3.0),)}
    first = await office.shown(Fleet(1, trials=(PAUSED,)), well, **gone)
    assert [one["about"] for one in first["members"]] == [about._asdict()]
    assert [one["instance"] for one in first["departed"]] == ["c"]
    older = well._replace(age_s=2.0, about=about._replace(errors=1))
    shorter = PAUSED._replace(paused_s=539.0)
    assert await office.shown(Fleet(1, trials=(shorter,)), older, **gone) is first
    retiring = well._replace(about=about._replace(state=State.RETIRING))
    again = await office.shown(Fleet(1, trials=(PAUSED,)), retiring, **gone)
    assert again["members"][0]["about"]["state"] == "retiring"


@pytest.mark.parametrize(
    ("trial", "is_duplicate"),
    [(PAUSED._replace(paused_s=0.0), False), (PAUSED._replace(failures=2), False), (PAUSED, True)],
    ids=["the pause is over", "paused again", "another container under one name"],
)
async def test_pause_that_ends_and_a_duplicate_name_are_news(
    office: Office, trial: CauseTrial, *, is_duplicate: bool
) -> None:
    well = Member("b", Presence.WELL, "", 1.0)
    first = await office.shown(Fleet(1, trials=(PAUSED,)), well)
    assert await office.shown(Fleet(1, trials=(trial,)), well._replace(duplicate=is_duplicate)) is not first


async def test_part_of_the_fleet_is_counted_as_the_capacity() -> None:
    office = Office(budget="20%")
    office.shared.known = MemberList(Fleet(10), 0)
    assert (await office.status.slow())["budget"]["capacity"] == 2


async def test_ages_alone_are_not_news(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    well = Member("b", Presence.WELL, "", 1.0)
    first = await office.shown(Fleet(1), well)
    assert await office.shown(Fleet(1), well._replace(age_s=2.0)) is first
    monkeypatch.setattr(page_state, "AGES_S", 0.0)
    assert await office.shown(Fleet(1), well) is not first


async def test_last_known_fleet_is_shown_while_the_store_is_away(office: Office) -> None:
    office.fleet = Fleet(alive=3)
    office.local = [Entry("redis_away", 5.0, "a")]
    office.budget.error = "connection"
    await office.held.hold("", "anna", "look", 60)
    parts = await office.status.slow()
    assert parts["store"]["error"] == "connection"
    assert (parts["budget"], parts["fleet"]["alive"], parts["fleet"]["members"]) == (None, 3, [])
    assert [(hold["author"], hold["here_only"]) for hold in parts["holds"]] == [("anna", True)]
    assert ([event["what"] for event in parts["events"]], parts["stored"]) == (["redis_away"], False)


async def test_budget_without_a_shared_store_comes_from_the_own_grants(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def member_list() -> Unknown:
        return Unknown("alone")

    monkeypatch.setattr(office.held, "member_list", member_list)
    now = time.time()
    office.history = [
        Decision(now - 10, "granted", "granted", ""),
        Decision(now - 20, "denied", "window", ""),
        Decision(now - 100, "granted", "granted", ""),
        Decision(now - 700, "granted", "granted", ""),
    ]
    parts = await office.status.slow()
    assert (parts["budget"]["used"], parts["budget"]["capacity"], parts["fleet"]) == (2, 10, None)
    assert parts["budget"]["back_at"] == pytest.approx([now + 500, now + 590], abs=0.01)


async def test_newest_events_are_shown_and_each_is_read_once(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_state, "EVENTS_PAGE", 100)
    now = time.time()
    await office.held.note([Entry("suspect", now, f"c{number}") for number in range(EVENTS + 150)])
    events = (await office.status.slow())["events"]
    assert [event["instance"] for event in events] == [f"c{number}" for number in range(150, EVENTS + 150)]
    await office.held.note([Entry("culled", now, "new")])
    again = (await office.status.slow())["events"]
    assert (len(again), again[-1]["instance"], again[-1]["what"]) == (EVENTS, "new", "culled")
    assert "once" not in again[-1]


async def test_page_gets_the_beginning_of_a_culls_evidence(office: Office) -> None:
    await office.held.note([Entry("culled", time.time(), "a", detail="5 errors\n" + "x" * 20_000)])
    (event,) = (await office.status.slow())["events"]
    assert event["detail"] == "5 errors\n" + "x" * (DETAIL_SHOWN - 9)
