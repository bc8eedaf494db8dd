"""What becomes a line of the ledger: each story is told once, in order, and what all see carries a shared word."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from harness.cases import cases
from harness.containers import (
    DENIED,
    DOWN,
    DRAINING,
    FINE,
    GRANTED,
    POLICY,
    SICK,
    STARTING,
    UP,
    WHY,
    answered,
    begun,
    heard,
)
from sidecar.controller.ledger_entries import EntryWriter
from sidecar.core.app_reports import ErrorLevel
from sidecar.core.claims import CauseTrial, Denied, Fleet, Granted, Unknown
from sidecar.core.explain.samples import CullEvidence, ErrorSample
from sidecar.core.fleet.common_trait import Traits
from sidecar.core.fleet.fleet_events import (
    BeatRecord,
    CausePaused,
    DataLost,
    Duplicated,
    DuplicateEnded,
    FleetEvent,
    HoldBegan,
    HoldEnded,
    HoldLost,
    PauseEnded,
    StoreAway,
    StoreBack,
)
from sidecar.core.life import transitions
from sidecar.core.life.events import (
    AppRestarted,
    Culled,
    CullOrdered,
    Event,
    Moved,
    NotHonoured,
    Restarted,
    Retired,
    Revived,
    ReviveOrdered,
    TokenAnswered,
    Trigger,
)
from sidecar.core.life.snapshot import Record
from sidecar.core.types import DETAIL_LIMIT, ENTRY_WORDS, Entry, Evidence, Hold, Policy, State

WALL_S = 1_000.0
"""Unix time when the story begins: that of the latches that ``harness.containers`` answers with."""

REDIS = Evidence(60, 5, {"redis": 4, "http": 1})
PAUSED = Denied("paused", 0, 10, 60.0, 8, 6)
SHADOW = POLICY._replace(enforce=False)
CALM = Fleet(10)


class Story:
    """A container, and the writer of its entries."""

    def __init__(self, policy: Policy = POLICY) -> None:
        self.policy = policy
        self.container = begun(policy)
        self.writer = EntryWriter("alloc")
        self.entries: list[Entry] = []

    def at(self, second: float, event: Trigger) -> None:
        self.container, _, events = transitions.step(self.container, event, second, self.policy)
        record = Record(events, self.container, REDIS)
        self.entries += self.writer.of_step(record, WALL_S + second, second)

    def told(self, *steps: tuple[float, Trigger]) -> list[Entry]:
        """The entries so far, after these steps; the fleet hears at once of a container that has become suspect."""
        for second, event in steps:
            self.at(second, event)
            if self.container.state is State.SUSPECT and not self.container.is_announced:
                self.at(second, heard(self.container))
        return self.entries

    def asks(self, second: float = 3.0) -> Story:
        """Excessive from the first second on, and a claim on its way."""
        self.told((0.0, SICK), (second, SICK))
        assert self.container.asking
        return self

    def is_told(self, second: float, answer: Granted | Denied | Unknown) -> None:
        self.at(second, answered(self.container, answer))

    @property
    def whats(self) -> list[str]:
        return [entry.what for entry in self.entries]


def entry(what: str, second: float, **about: object) -> Entry:
    return Entry(what, WALL_S + second, "alloc", "redis", **about)  # type: ignore[arg-type]  # as the test says


# -- one container ------------------------------------------------------------------------------------------


def test_cull_is_told_from_the_first_suspicion_on_to_the_restart_in_place() -> None:
    story = Story().asks()
    story.is_told(4.0, GRANTED)
    story.told((14.0, SICK), (24.0, SICK), (35.0, AppRestarted("two")))
    assert story.entries == [
        entry("suspect", 0.0, reason="errors", detail=WHY),
        entry("granted", 4.0, reason="granted", detail="token granted, 1 of 10 in use"),
        entry("culled", 4.0, reason="errors", seconds=4.0, detail=WHY),
        entry("restarted", 35.0, seconds=31.0, detail="the app was restarted in place after its cull"),
    ]


def test_same_refusal_is_told_once_a_spell_and_another_reason_beside_it() -> None:
    story = Story().asks()
    answers: list[Denied | Unknown] = [PAUSED, PAUSED, DENIED, Unknown("timeout")]
    for number, answer in enumerate(answers):
        story.is_told(10.0 * number + 4, answer)
        story.at(10.0 * number + 20, SICK)
    assert [(one.what, one.reason, one.seconds) for one in story.entries[1:]] == [
        ("denied", "paused", 60.0),
        ("denied", "window", 200.0),
    ]


def test_token_that_comes_too_late_is_told_and_the_recovery_too() -> None:
    story = Story().asks()
    story.at(4.0, FINE)
    story.is_told(5.0, GRANTED)
    assert story.whats == ["suspect", "granted", "recovered"]


def test_shadow_mode_tells_what_would_have_been() -> None:
    story = Story(SHADOW).asks()
    story.is_told(4.0, GRANTED)
    story.told((10.0, SICK), (64.0, FINE))
    assert story.whats == ["suspect", "granted", "would_cull", "would_recover"]
    assert story.entries[2:] == [
        entry("would_cull", 4.0, reason="errors", detail=WHY),
        entry("would_recover", 64.0, seconds=60.0),
    ]


@pytest.mark.parametrize(
    ("event", "written"),
    [
        (Retired(was=UP, state=DRAINING, why="old"), Entry("retired", WALL_S, "alloc", detail="old")),
        (
            Restarted(was=DOWN, state=STARTING, app_start="two", out_s=40.0),
            Entry("restarted", WALL_S, "alloc", seconds=40.0, detail="the app was restarted in place after its cull"),
        ),
        (
            Revived(was=DOWN, state=UP, out_s=60.0, order=ReviveOrdered("ann", "false alarm")),
            Entry("revived", WALL_S, "alloc", reason="false alarm", author="ann", seconds=60.0),
        ),
        (
            Revived(was=DOWN, state=UP, out_s=600.0, order=None),
            Entry(
                *("revived", WALL_S, "alloc"),
                reason="not_replaced",
                seconds=600.0,
                detail="it was not replaced in time, and is back in service",
            ),
        ),
        (NotHonoured("id", 300.0), Entry("not_honoured", WALL_S, "alloc", seconds=300.0, once="not_honoured id")),
        (TokenAnswered("id", GRANTED, 0.1, is_late=True), None),
        (TokenAnswered("id", Unknown("timeout"), 0.1), None),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Moved | NotHonoured | TokenAnswered) else "",
)
def test_event_is_an_entry(event: Event, written: Entry | None) -> None:
    entries = EntryWriter("alloc").of_step(Record((event,), begun(), REDIS), WALL_S, 5.0)
    assert entries == ([written] if written else [])


def test_cull_has_its_evidence_redacted_in_the_lines_below() -> None:
    sample = ErrorSample("f1", "mysql", ErrorLevel.SERVER_ERROR, 9, 5.0, 35.0, "login of bob@example.org failed")
    culled = Culled(was=State.SUSPECT, state=State.DRAINING, why=WHY, verdict=SICK.verdict, order=None, suspect_s=1.0)
    record = Record((culled,), begun(), REDIS, CullEvidence("id", WALL_S, (sample,), "threads: 4"))
    (written,) = EntryWriter("alloc").of_step(record, WALL_S, 40.0)
    first, told, *rest = written.detail.splitlines()
    assert (first, rest) == (WHY, ["threads: 4"])
    assert told.startswith("9 x mysql (f1, 1970-01-01T00:16:05Z to 1970-01-01T00:16:35Z): login of ")
    assert "bob@example.org" not in told
    printed = record._replace(cull_evidence=CullEvidence("id", WALL_S, capture="x" * 50_000))
    (written,) = EntryWriter("alloc").of_step(printed, WALL_S, 40.0)
    assert written.detail == f"{WHY}\n{'x' * 50_000}"[:DETAIL_LIMIT]


@pytest.mark.parametrize(("reported", "version"), [("", "411"), ("412", "412")])
def test_cull_has_the_node_and_the_version_of_the_app(reported: str, version: str) -> None:
    culled = Culled(was=State.SUSPECT, state=State.DRAINING, why=WHY, verdict=SICK.verdict, order=None, suspect_s=1.0)
    record = Record((culled,), begun()._replace(app_version=reported), REDIS)
    (written,) = EntryWriter("alloc", Traits("411", "n7")).of_step(record, WALL_S, 40.0)
    assert (written.node, written.app_version) == ("n7", version)


def test_cull_by_order_is_told_with_who_gave_it() -> None:
    story = Story()
    story.told((0.0, FINE), (5.0, CullOrdered("ann", "stuck")))
    story.is_told(6.0, GRANTED)
    assert story.whats == ["granted", "culled"]
    culled = story.entries[-1]
    assert (culled.reason, culled.author, culled.detail, culled.seconds) == ("ordered", "ann", "stuck", 1.0)


def test_order_that_is_refused_is_told_each_time_and_is_no_near_miss() -> None:
    story = Story()
    story.at(0.0, FINE)
    for second in (5.0, 15.0):
        story.at(second, CullOrdered("ann", "stuck"))
        story.is_told(second + 1, PAUSED)
    assert [(one.what, one.reason, one.author) for one in story.entries] == [("denied", "paused", "ann")] * 2


# -- restarts in place of a container that is well ------------------------------------------------------------


@cases(
    "seconds, entries",
    {
        "far apart": ([30, 3635], [(30, 1), (3635, 1)]),
        "two more soon": ([30, 45, 60], [(30, 1)]),
        "and it goes on": ([30, 45, 3629, 3630], [(30, 1), (3630, 3)]),
        "an app that does not stay up": (
            range(30, 86_430, 20),
            [(30, 1), *((30 + 3600 * hour, 180) for hour in range(1, 24))],
        ),
    },
)
def test_restarts_of_an_hour_are_told_with_the_first_one_after_it(
    seconds: Iterable[float], entries: list[tuple[float, int]]
) -> None:
    story = Story()
    story.container = story.container._replace(app_start=None)
    story.told((0.0, FINE), (1.0, AppRestarted("first")), (10.0, FINE))
    assert story.entries == [], "the first id names the incarnation that is there"
    for second in seconds:
        story.told((second, AppRestarted(f"life-{second}")), (second + 1.0, FINE))
    said = [f" ({count} restarts since the last entry)" if count > 1 else "" for _, count in entries]
    assert [(one.at - WALL_S, one.reason, one.detail) for one in story.entries] == [
        (at, "no_cull", f"the app was restarted in place, without a cull{times}")
        for (at, _), times in zip(entries, said, strict=True)
    ]
    assert len({one.once for one in story.entries}) == len(entries)


# -- the fleet and its store ----------------------------------------------------------------------------------

HOLD = Hold("ann", "deploy", WALL_S + 600)
STOPPED = CauseTrial("redis", 1, 0, 540.0, 1)
OF_FLEET: list[tuple[FleetEvent, Entry]] = [
    (StoreAway("timeout"), Entry("redis_away", WALL_S, "a", reason="timeout", detail="Redis did not answer in time")),
    (StoreBack(2.0), Entry("redis_back", WALL_S, "a", seconds=2.0)),
    (CausePaused(STOPPED), Entry("paused", WALL_S, "", "redis", seconds=540.0, once="paused redis 1")),
    (Duplicated(), Entry("duplicate", WALL_S, "a", once="duplicate a")),
    (HoldBegan(HOLD), Entry("hold", WALL_S, "", "", "deploy", "ann", 600.0, once="hold  1600")),
    (HoldLost(HOLD), Entry("hold_lost", WALL_S, "", "", "deploy", "ann", 600.0, once="hold_lost  1600")),
    (DataLost(CALM), Entry("data_loss", WALL_S, once="data_loss")),
]


@pytest.mark.parametrize(("event", "entry"), OF_FLEET, ids=[entry.what for _, entry in OF_FLEET])
def test_what_all_see_has_a_key_that_they_share(event: FleetEvent, entry: Entry) -> None:
    assert EntryWriter("a").of_beat(BeatRecord(CALM, (event,)), WALL_S) == [entry]
    first = EntryWriter("a").of_beat(BeatRecord(CALM, (event,), is_first=True), WALL_S)
    assert first == [entry] * isinstance(event, (Duplicated, StoreAway, StoreBack)), (
        "the others have written what began earlier"
    )
    assert entry.what in ENTRY_WORDS


@pytest.mark.parametrize("event", [StoreAway("alone"), HoldEnded(), PauseEnded("redis"), DuplicateEnded()])
def test_what_others_write_or_nobody_asks_for_is_no_entry(event: FleetEvent) -> None:
    assert EntryWriter("a").of_beat(BeatRecord(CALM, (event,)), WALL_S) == []
