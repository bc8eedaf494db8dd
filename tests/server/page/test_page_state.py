"""The data of the status page: with a shared store, with one that is away, and without one."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any
from unittest.mock import AsyncMock

import pytest

from harness.server_group import StubBudget
from sidecar.config.settings import BudgetConfig
from sidecar.core.claims import CauseTrial, Fleet, Presence, Unknown
from sidecar.core.fleet.members import About, Member, MemberList
from sidecar.core.types import Entry, Hold, State
from sidecar.server.page import page_state, timeline
from sidecar.server.page.containers import ContainerFacts, own_row
from sidecar.server.page.page_state import PageSources, PageState
from sidecar.server.page.timeline import DETAIL_SHOWN, EVENTS

PAUSED = CauseTrial("redis", 1, 0, 540.0, 1)


OWN = About(State.UP, 5, "life", 100, 0, 5, "0.2", 1)


class Office:
    """Sidecar ``a``, whose store may be away."""

    def __init__(self, budget: str = "10") -> None:
        self.age_s = 0.0
        self.budget = StubBudget(time.time)
        self.fleet: Fleet | None = None
        self.local: list[Entry] = []
        self.failures: list[Exception] = []
        sources = PageSources(
            "a",
            lambda: OWN,
            lambda: {"at": 1.0, "state": "up", "alone": "No shared store.", "mode": "enforce"},
            self.budget,
            lambda: self.fleet,
            lambda: self.age_s,
            lambda since: [entry for entry in self.local if entry.at >= since],
            runbook_url="https://wiki/runbooks",
        )
        self.status = PageState(BudgetConfig(budget=budget), sources, limit_s=5.0, on_failure=self.failures.append)


@pytest.fixture
def office() -> Office:
    return Office()


async def test_quick_parts_come_from_memory(office: Office) -> None:
    office.budget.server.fails = "connection"
    parts = office.status.quick()
    assert parts["why"]["state"] == "up"
    assert "at" not in parts["why"]
    assert parts["csrf"] == office.status.csrf
    assert parts["csrf"] != Office().status.csrf


def rows(parts: dict[str, Any]) -> list[Any]:
    """All containers of the parts."""
    return list(parts["containers"])


async def test_containers_tokens_and_holds_are_those_of_the_store(office: Office) -> None:
    now = time.time()
    every = (Member("b", Presence.SUSPECT, "redis", 1.0, duplicate=True), Member("c", Presence.DOWN, "disk", 2.0))
    gone = (("d", 3.0),)
    office.budget.known = MemberList(Fleet(1, 1, 1, trials=(PAUSED,)), 1, every, grants=(now,), departed=gone)
    await office.budget.hold("b", "anna", "look", 60)
    parts = await office.status.slow()
    shown = [(row.instance, row.state, row.cause, row.duplicate) for row in rows(parts)]
    assert shown == [("a", "up", "", False), ("b", "suspect", "redis", True), ("c", "down", "disk", False)]
    (trial,) = parts["fleet"]["trials"]
    assert trial == {
        "cause": "redis",
        "limit": 1,
        "out": 0,
        "failures": 1,
        "since": 0.0,
        "paused_until": pytest.approx(now + 540, abs=7),
    }
    assert parts["fleet"]["departed"] == [{"instance": "d", "at": pytest.approx(now - 3, abs=7)}]
    assert (parts["budget"]["used"], parts["budget"]["capacity"], parts["store"]) == (1, 10, None)
    assert parts["budget"]["back_at"] == [pytest.approx(now + 600, abs=0.01)]
    (hold,) = parts["holds"]
    assert (hold["scope"], hold["instance"], hold["author"], hold["here_only"]) == ("instance", "b", "anna", False)
    assert parts["banner"]["runbook"] == "https://wiki/runbooks#hold"


async def test_banner_says_why_the_suspects_are_refused_and_a_part_of_the_fleet_is_the_capacity() -> None:
    office = Office(budget="20%")
    office.budget.known = MemberList(Fleet(9, 1, 1), 1, (Member("b", Presence.SUSPECT, "redis", 1.0),))
    await office.budget.note([Entry("denied", time.time(), "b", "redis", "floor", seconds=9.0)])
    parts = await office.status.slow()
    assert parts["banner"]["sentence"].endswith("too few containers would stay in service.")
    assert parts["budget"]["capacity"] == 2


@pytest.mark.parametrize(("presence", "state"), [(Presence.DOWN, "down"), (Presence.SUSPECT, "silent")])
async def test_row_without_a_description_is_as_old_as_its_last_beat(
    office: Office, presence: Presence, state: str
) -> None:
    office.budget.known = MemberList(Fleet(1), 0, (Member("b", presence, "redis", 3_600.0),))
    now = time.time()
    _, row = rows(await office.status.slow())
    assert (row.state, row.since, row.born) == (state, pytest.approx(now - 3_600, abs=60), 0)


async def test_what_was_known_is_shown_with_its_age_while_the_store_is_away(office: Office) -> None:
    ended = Hold("bob", "over", time.time() - 1)
    office.budget.known = MemberList(Fleet(2), 3, (Member("b", Presence.SUSPECT, "redis", 1.0),), (ended,))
    await office.budget.note([Entry("culled", time.time() - 60, "b")])
    known_at = time.time()
    await office.status.slow()
    asked_at = time.time()
    office.budget.server.fails = "connection"
    office.local = [Entry("redis_away", time.time(), "a"), Entry("culled", time.time() - 90, "old")]
    await office.budget.hold("", "anna", "look", 60)
    office.fleet, office.age_s = Fleet(2), 120.0
    parts = await office.status.slow()
    assert parts["store"]["error"] == "connection"
    assert known_at - 1 <= parts["known_at"] <= asked_at + 1, "in whole seconds"
    assert [row.instance for row in rows(parts)] == ["a", "b"]
    assert (parts["budget"]["used"], parts["fleet"]["alive"]) == (3, 2)
    assert [(hold["author"], hold["here_only"]) for hold in parts["holds"]] == [("anna", True)]
    assert ([event["what"] for event in parts["events"]], parts["stored"]) == (["culled", "redis_away"], False)
    assert parts["banner"]["level"] == "critical"
    assert "Redis has given no answer since " in parts["banner"]["sentence"]


async def test_without_any_list_the_last_beat_is_what_was_known(office: Office) -> None:
    office.budget.server.fails = "timeout"
    parts = await office.status.slow()
    assert (parts["known_at"], parts["fleet"], parts["budget"]) == (None, None, None)
    assert [row.instance for row in rows(parts)] == ["a"]
    office.fleet, office.age_s = Fleet(3, used=4, capacity=10), 90.0
    asked_at = time.time()
    parts = await office.status.slow()
    assert asked_at - 91 <= parts["known_at"] <= time.time() - 89, "in whole seconds"
    assert (parts["fleet"]["alive"], parts["budget"]["used"]) == (3, 4)


async def test_budget_without_a_shared_store_comes_from_the_own_grants(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def member_list() -> Unknown:
        return Unknown("alone")

    monkeypatch.setattr(office.budget, "member_list", member_list)
    now = time.time()
    ago_s = {700: "granted", 100: "granted", 20: "denied", 10: "granted"}
    office.local = [Entry(what, now - ago) for ago, what in ago_s.items()]
    parts = await office.status.slow()
    assert (parts["budget"]["used"], parts["budget"]["capacity"], parts["fleet"]) == (2, 10, None)
    assert (parts["banner"]["sentence"], parts["known_at"]) == ("No shared store.", None)
    assert parts["budget"]["back_at"] == pytest.approx([now + 500, now + 590], abs=0.01)


def test_own_row_has_what_is_newer_than_its_beat_unless_another_container_has_its_name() -> None:
    row = ContainerFacts("a", "suspect", "redis", 1, 7)
    own = ContainerFacts("a", "up", "", 5, 0, 5, 100, "0.2", "life", 1)
    assert own_row(row, OWN) == own
    assert own_row(row, OWN._replace(state=State.DOWN)).cause == "redis"
    assert own_row(row._replace(duplicate=True), OWN) == row._replace(duplicate=True)


async def test_newest_events_are_shown_and_each_is_read_once(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "PAGE", 100)
    now = time.time()
    await office.budget.note([Entry("suspect", now, f"c{number}") for number in range(EVENTS + 150)])
    events = (await office.status.slow())["events"]
    assert [event["instance"] for event in events] == [f"c{number}" for number in range(150, EVENTS + 150)]
    await office.budget.note([Entry("culled", now, "new")])
    again = (await office.status.slow())["events"]
    assert (len(again), again[-1]["instance"], again[-1]["what"]) == (EVENTS, "new", "culled")
    assert "once" not in again[-1]


async def test_page_gets_the_beginning_of_a_culls_evidence(office: Office) -> None:
    await office.budget.note([Entry("culled", time.time(), "a", detail="5 errors\n" + "x" * 20_000)])
    (event,) = (await office.status.slow())["events"]
    assert event["detail"] == "5 errors\n" + "x" * (DETAIL_SHOWN - 9)


# -- the document that all viewers get ------------------------------------------------------------------------------


async def _document(office: Office) -> dict[str, Any]:
    return dict(json.loads(b"".join(await office.status.document())))


async def test_viewers_share_a_read_until_it_is_old_or_an_order_has_changed_the_state(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = await asyncio.gather(office.status.document(), office.status.document())
    assert first is second
    office.budget.known = MemberList(Fleet(7), 0)
    assert await office.status.document() is first
    office.status.hurry()
    assert (await _document(office))["fleet"]["alive"] == 7
    monkeypatch.setattr(page_state, "FRESH_S", 0.0)
    office.budget.known = MemberList(Fleet(8), 0)
    assert (await _document(office))["fleet"]["alive"] == 8


async def test_slow_store_delays_no_more_than_the_first_answers(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_state, "STORE_WAIT_S", 0.01)
    monkeypatch.setattr(page_state, "FRESH_S", 0.0)
    answered = asyncio.Event()

    async def slow() -> dict[str, Any]:
        await answered.wait()
        return {"fleet": "known"}

    monkeypatch.setattr(office.status, "slow", slow)
    for _ in range(2):
        parts = await _document(office)
        assert (parts["why"]["state"], "fleet" in parts) == ("up", False)
        assert parts["banner"]["sentence"], "a page without a headline would look as if all were well"
    answered.set()
    monkeypatch.setattr(page_state, "STORE_WAIT_S", 60)
    assert (await _document(office))["fleet"] == "known"


async def test_failed_read_of_the_store_leaves_what_was_known(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    await _document(office)
    failing = AsyncMock(side_effect=KeyError("a"))
    monkeypatch.setattr(office.status, "slow", failing)
    office.status.hurry()
    assert "fleet" in await _document(office)
    assert [type(error) for error in office.failures] == [KeyError]
