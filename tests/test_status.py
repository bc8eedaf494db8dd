"""What the status page is made of: with a bucket, with one that is away, and with none that is shared."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from harness.twin import TwinBudget
from harness.unreliable import UnreliableBudget
from sidecar import settings, status
from sidecar.budget.held import HeldBudget
from sidecar.core.fleet import FleetBucket
from sidecar.core.history import Decision
from sidecar.core.members import pack
from sidecar.core.terms import Share, Terms
from sidecar.core.words import About, Beat, Claim, Entry, Fleet, Presence, State, Unknown
from sidecar.minutes import Minutes
from sidecar.status import DETAIL_SHOWN, EVENTS, Sources, Status

TERMS = Terms(min_healthy=Share(0), never_last=False, brake=0, lost_is_empty=False)


class Office:
    """Sidecar ``a``, whose bucket may be told to be away."""

    def __init__(self, **flags: str) -> None:
        self.twin = TwinBudget(FleetBucket(), TERMS, lambda: time.time_ns() // 1000)
        self.budget = UnreliableBudget(self.twin)
        self.held = HeldBudget(self.budget, time.time, "a")
        self.history: list[Decision] = []
        self.fleet: Fleet | None = None
        self.local: list[Entry] = []
        explaining: Any = SimpleNamespace(
            local=lambda: {"at": 1.0, "state": "up"}, history=SimpleNamespace(newest=lambda: self.history)
        )
        pulse: Any = SimpleNamespace(fleet=None)
        self.pulse = pulse
        sources = Sources(explaining, self.held, pulse, Minutes(lambda: 3, time.monotonic), lambda _since: self.local)
        self.status = Status(settings.load({"instance": "a", **flags}, {}), sources)


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


async def test_members_tokens_and_holds_are_those_of_the_bucket(office: Office) -> None:
    await office.held.beat(Beat("b", "1", Presence.WANTS, "redis"))
    await office.held.claim(Claim("c/1", "c", "1", "disk"))
    await office.held.hold("b", "anna", "look", 60)
    parts = await office.status.slow()
    members = [(one["instance"], one["presence"], one["kind"]) for one in parts["fleet"]["members"]]
    assert members == [("b", "wants", "redis"), ("c", "down", "disk")]
    assert (parts["budget"]["used"], parts["budget"]["capacity"], parts["bucket"]) == (1, 10, None)
    (back,) = parts["budget"]["back_at"]
    assert back == pytest.approx(time.time() + 600, abs=5)
    (hold,) = parts["holds"]
    assert (hold["scope"], hold["instance"], hold["author"], hold["here_only"]) == ("instance", "b", "anna", False)


async def test_what_others_told_and_who_departed_is_shown_and_numbers_alone_are_no_news(office: Office) -> None:
    about = About(State.UP, 7, "1", 100, 0, 5, "0.9")
    await office.held.beat(Beat("b", "1", Presence.WELL, about=pack(about)))
    await office.held.beat(Beat("c", "1", Presence.GONE))
    first = (await office.status.slow())["fleet"]
    assert [one["about"] for one in first["members"]] == [about._asdict()]
    assert [one["instance"] for one in first["departed"]] == ["c"]
    await office.held.beat(Beat("b", "1", Presence.WELL, about=pack(about._replace(errors=1))))
    assert (await office.status.slow())["fleet"] is first
    await office.held.beat(Beat("b", "1", Presence.WELL, about=pack(about._replace(state=State.RETIRING))))
    assert (await office.status.slow())["fleet"]["members"][0]["about"]["state"] == "retiring"


async def test_part_of_the_fleet_is_counted_as_the_capacity() -> None:
    office = Office(budget="20%", redis_url="redis://h")
    for name in "bcdefghijk":
        await office.held.beat(Beat(name, "1", Presence.WELL))
    assert (await office.status.slow())["budget"]["capacity"] == 2


async def test_ages_alone_are_not_news(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    await office.held.beat(Beat("b", "1", Presence.WELL))
    first = (await office.status.slow())["fleet"]
    assert (await office.status.slow())["fleet"] is first
    monkeypatch.setattr(status, "AGES_S", 0.0)
    assert (await office.status.slow())["fleet"] is not first


async def test_bucket_that_is_away_leaves_what_was_last_heard(office: Office) -> None:
    office.pulse.fleet = Fleet(alive=3)
    office.local = [Entry("redis_away", 5.0, "a")]
    office.budget.error = "connection"
    await office.held.hold("", "anna", "look", 60)
    parts = await office.status.slow()
    assert parts["bucket"]["error"] == "connection"
    assert (parts["budget"], parts["fleet"]["alive"], parts["fleet"]["members"]) == (None, 3, [])
    assert [(hold["author"], hold["here_only"]) for hold in parts["holds"]] == [("anna", True)]
    assert ([event["what"] for event in parts["events"]], parts["stored"]) == (["redis_away"], False)


async def test_bucket_of_ones_own_is_known_by_the_own_grants(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    async def roll() -> Unknown:
        return Unknown("alone")

    monkeypatch.setattr(office.held, "roll", roll)
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


async def test_newest_events_are_shown_and_each_is_asked_for_once(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status, "EVENTS_PAGE", 100)
    now = time.time()
    await office.held.note([Entry("suspect", now, f"c{number}") for number in range(EVENTS + 150)])
    events = (await office.status.slow())["events"]
    assert [event["instance"] for event in events] == [f"c{number}" for number in range(150, EVENTS + 150)]
    await office.held.note([Entry("culled", now, "new")])
    again = (await office.status.slow())["events"]
    assert (len(again), again[-1]["instance"], again[-1]["what"]) == (EVENTS, "new", "culled")
    assert "once" not in again[-1]


async def test_of_the_evidence_of_a_cull_the_page_gets_the_beginning(office: Office) -> None:
    await office.held.note([Entry("culled", time.time(), "a", detail="5 errors\n" + "x" * 20_000)])
    (event,) = (await office.status.slow())["events"]
    assert event["detail"] == "5 errors\n" + "x" * (DETAIL_SHOWN - 9)


async def test_errors_are_of_the_minute_in_which_they_came() -> None:
    at, ever = 0.0, 10
    minutes = Minutes(lambda: ever, lambda: at)
    ever = 14
    assert minutes.counts()[-2:] == [0, 4]
    at = 61.0
    assert minutes.counts()[-2:] == [4, 0]
