"""The past as a standby is told of it: decisions, samples, the last cull and the hour, all of it or nothing."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import replace
from random import Random
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.controller import HandBudget, Notes
from sidecar.controller.controller import Controller, Pace
from sidecar.controller.error_histogram import Minutes
from sidecar.controller.evidence_capture import Inquest
from sidecar.controller.ledger import Ledger
from sidecar.core.explain import history, samples
from sidecar.core.explain.history import Decision, History
from sidecar.core.explain.hour_counts import MINUTES
from sidecar.core.explain.samples import Kept
from sidecar.core.life import transitions
from sidecar.core.life.measurements import Measurements
from sidecar.core.life.weight import Weight
from sidecar.core.types import Entry, Level, Ping, Policy, Unknown
from sidecar.notify.episodes import Occasions
from sidecar.notify.message import Context
from sidecar.notify.messenger import Messenger
from sidecar.notify.watch import Watch
from sidecar.takeover import past
from sidecar.takeover.handover import LENGTH, message
from sidecar.takeover.inherited_sockets import MOST_PAST_BYTES
from sidecar.takeover.past import Past
from sidecar.takeover.state_transfer import RefusedError

POLICY: Final = Policy()
LIFE: Final = "boot-1"
ENTRIES: Final = [
    Entry("culled", 1_999_990.123, "a", "redis", "errors", detail="5 server errors\n5 x redis: connection lost"),
    Entry("hold", 1_999_991.0, author="anna", seconds=600.0, detail="migration", once="hold:anna"),
]


class Unanswered:
    """A bucket that is away."""

    async def note(self, _entries: object) -> Unknown:
        return Unknown("timeout")

    async def first(self, _word: str, _for_s: float) -> Unknown:
        return Unknown("timeout")

    async def roll(self) -> Unknown:
        return Unknown("timeout")


class Teller:
    """One sidecar with its parts on clocks of its own, which stand until a test moves them."""

    def __init__(self, now: float = 1_020.0, wall: float = 2_000_000.0, life: str = LIFE) -> None:
        self.now, self.wall = now, wall
        container = transitions.start("web/a", now, POLICY, app_start=life)
        self.inquest = Inquest(self._clock, self._wall, lambda _error: None)
        self.controller = Controller(
            container,
            policy=POLICY,
            pace=Pace(),
            measurements=Measurements(60, int(now)),
            weight=Weight(),
            budget=HandBudget(),
            journal=Notes(),
            clock=self._clock,
            wall=self._wall,
            rng=Random(0),
            observe=lambda _record: None,
            on_failure=lambda _error: None,
            inquest=self.inquest,
        )
        self.history = History(self._wall)
        self.minutes = Minutes(lambda: sum(self.controller.measurements.errors.ever().values()), self._clock)
        self.ledger = Ledger(
            Unanswered(), "a", wall=self._wall, clock=self._clock, rng=Random(0), on_failure=lambda _error: None
        )
        self.messenger = Messenger(
            Occasions("a", honour_s=300.0),
            (),
            Unanswered(),
            Watch(),
            Context("web", "prod", "a"),
            clock=self._clock,
            wall=self._wall,
            rng=Random(0),
            on_failure=lambda _error: None,
        )
        self.past = Past(self.controller, self.history, self.minutes, self.ledger, self.messenger)

    def _clock(self) -> float:
        return self.now

    def _wall(self) -> float:
        return self.wall

    def passes(self, seconds: float) -> None:
        self.now, self.wall = self.now + seconds, self.wall + seconds

    def takes(self, *pings: Ping) -> None:
        self.controller.measurements.turn(int(self.now))
        for ping in pings:
            self.controller.measurements.take(ping, self.now)
            self.inquest.samples.take(ping, self.now)

    def tells(self) -> bytes:
        """As it comes over the wire."""
        return message("past", past=self.past.freeze(self.now, self.wall))[LENGTH.size :]

    def hears(self, told: bytes) -> None:
        self.past.thaw(told, self.now, self.wall)

    @property
    def shown(self) -> tuple[object, ...]:
        """All that a person could see of it."""
        newest = self.inquest.samples.newest()
        shown = self.history.newest(), self.history.answered_at, newest, self.inquest.kept, self.minutes.counts()
        return *shown, self.ledger.unsent(past.MOST_ENTRIES), self.messenger.own


def _story() -> Teller:
    """Decisions, errors with a message and with a fingerprint, one cull that was looked at, two minutes."""
    one = Teller()
    one.history.restore([Decision(one.wall - 50, "suspect", "errors", "5 server errors in 60 s")], one.wall - 40)
    one.takes(Ping(2, kind="redis", message="order 17 failed"), Ping(1, Level.CLIENT_ERROR, "http", "x", "f1"))
    one.inquest.kept = Kept("web/a/boot-0", one.wall, one.inquest.samples.newest(), "3 threads")
    one.ledger.add(*ENTRIES)
    one.messenger.go_on({"not_honoured": one.now - 400, "redis": one.now - 5})
    one.passes(70)
    one.takes(Ping(3, kind="disk", message="full"))
    one.passes(5)
    return one


def _spoilt(told: bytes, place: tuple[str | int, ...], value: object) -> bytes:
    content = json.loads(told)
    above = content["past"]
    for step in place[:-1]:
        above = above[step]
    above[place[-1]] = value
    return json.dumps(content).encode()


def test_all_of_it_is_there_on_the_clocks_of_who_reads_it() -> None:
    one, other = _story(), Teller(now=9_055.0, wall=3_000_000.0)
    other.hears(one.tells())
    decision, sample, kept = other.history.newest()[0], other.inquest.samples.newest()[0], other.inquest.kept
    assert decision.at == pytest.approx(other.wall - 125)
    assert decision[1:] == ("suspect", "errors", "5 server errors in 60 s", 1)
    assert other.history.answered_at == pytest.approx(other.wall - 115)
    assert [each.fingerprint for each in other.inquest.samples.newest()] == [
        each.fingerprint for each in one.inquest.samples.newest()
    ]
    assert (sample.errors, sample.kind, sample.level, sample.message) == (3, "disk", Level.SERVER_ERROR, "full")
    assert (sample.first, sample.last) == pytest.approx((other.now - 5, other.now - 5))
    assert kept is not None
    assert kept.at == pytest.approx(other.wall - 75)
    assert (kept.claim_id, kept.capture) == ("web/a/boot-0", "3 threads")
    assert [(each.message, other.now - each.last) for each in kept.samples] == [("x", 75.0), ("order 17 failed", 75.0)]
    assert other.minutes.counts() == one.minutes.counts()
    assert other.ledger.unsent(9) == ENTRIES
    assert other.messenger.own == pytest.approx({"not_honoured": other.now - 475, "redis": other.now - 80})


def test_on_the_same_clocks_nothing_at_all_is_another() -> None:
    one, other = _story(), Teller()
    other.now, other.wall = one.now, one.wall
    other.hears(one.tells())
    assert other.shown == one.shown


def test_errors_of_a_known_message_or_fingerprint_are_added_to_what_there_was() -> None:
    other = Teller()
    other.hears(_story().tells())
    other.takes(Ping(5, kind="redis", message="order 4711 failed"), Ping(7, fingerprint="f1"))
    assert [(each.errors, each.message) for each in other.inquest.samples.newest()] == [
        (8, "x"),
        (7, "order 4711 failed"),
        (3, "full"),
    ]


def test_samples_of_a_life_that_has_ended_stay_away_and_all_else_comes() -> None:
    other = Teller(life="boot-2")
    other.takes(Ping(message="of the new life"))
    other.hears(_story().tells())
    assert [each.message for each in other.inquest.samples.newest()] == ["of the new life"]
    assert other.history.newest()
    assert other.inquest.kept is not None


def test_what_was_decided_before_the_past_was_read_comes_behind_it() -> None:
    other = Teller()
    other.history.restore([Decision(other.wall, "up", "", "it is judged from now on")], None)
    other.hears(_story().tells())
    assert [each.what for each in other.history.newest()] == ["up", "suspect"]


@pytest.mark.parametrize(("counted", "newest"), [(4, [4, 0]), (0, [3, 0])], ids=["state too", "state was lost"])
def test_hour_goes_on_with_the_count_of_the_state_or_without_it(counted: int, newest: list[int]) -> None:
    """Of four errors the last came after the past was told: the state knows it, if that could be used."""
    one, other = Teller(), Teller()
    one.takes(Ping(3))
    other.takes(*([Ping(counted)] if counted else []))
    other.hears(one.tells())
    assert other.minutes.counts()[-1:] == newest[:1]
    other.passes(60)
    assert other.minutes.counts()[-2:] == newest
    other.takes(Ping(2))
    assert other.minutes.counts()[-2:] == [newest[0], 2]


@pytest.mark.parametrize(("told_s", "heard_s"), [(59, 5), (1, 59), (30, 30)])
def test_hour_of_a_clock_that_is_elsewhere_in_its_minute_is_forgotten_in_time(told_s: int, heard_s: int) -> None:
    one, other = Teller(now=960.0 + told_s), Teller(now=5_040.0 + heard_s)
    one.takes(Ping(3))
    other.hears(one.tells())
    assert sum(other.minutes.counts()) == 3
    other.passes(3_600)
    assert sum(other.minutes.counts()) == 0


MARKS: Final = {
    "an error": lambda one: one.takes(Ping()),
    "an error that does not count": lambda one: one.takes(Ping(1, Level.CLIENT_ERROR, message="m")),
    "a decision": lambda one: one.history.restore([], None),
    "a cull": lambda one: setattr(one.inquest, "kept", Kept("c", 1.0)),
    "a name of the life": lambda one: setattr(
        one.controller, "container", replace(one.controller.container, incarnation="boot-2")
    ),
    "a life that ends": lambda one: one.inquest.samples.clear(),
    "an entry": lambda one: one.ledger.add(Entry("hold", 1.0)),
}


@pytest.mark.parametrize("change", MARKS.values(), ids=MARKS)
def test_mark_is_another_after_any_change_and_the_same_until_then(change: Any) -> None:
    one = _story()
    before = one.past.mark()
    one.passes(1_000)
    assert one.past.mark() == before
    change(one)
    assert one.past.mark() != before


def test_wall_clock_that_was_set_back_makes_nothing_younger_than_now() -> None:
    one, other = _story(), Teller()
    one.wall -= 3_600
    other.hears(one.tells())
    assert [each.at for each in other.history.newest()] == [other.wall]
    assert other.history.answered_at == other.wall


NAN, INF = float("nan"), float("inf")
SPOILT: Final[list[tuple[tuple[str | int, ...], object]]] = [
    (("format",), 2),
    (("format",), None),
    (("decisions",), None),
    (("decisions",), "suspect"),
    (("decisions", 0), ["suspect"]),
    (("decisions", 0, 0), "long ago"),
    (("decisions", 0, 0), NAN),
    (("decisions", 0, 0), 1e300),
    (("decisions", 0, 1), None),
    (("decisions", 0, 3), ["a", "b"]),
    (("decisions", 0, 4), -1),
    (("decisions", 0, 4), 1.5),
    (("answered_age_s",), INF),
    (("answered_age_s",), True),
    (("life",), 7),
    (("samples",), {}),
    (("samples", 0, 1), 7),
    (("samples", 0, 4), "shout"),
    (("samples", 0, 5), 10**30),
    (("samples", 0, 6), -INF),
    (("samples", 0, 8), None),
    (("kept",), []),
    (("kept", "claim_id"), None),
    (("kept", "age_s"), "x"),
    (("kept", "samples"), [[]]),
    (("kept", "capture"), 5),
    (("minutes",), None),
    (("minutes", 3), -1),
    (("minutes", 3), True),
    (("ever",), 1.0),
    (("minute_age_s",), None),
    (("minute_age_s",), -(10**400)),
    (("entries",), {}),
    (("entries", 0), ["culled"]),
    (("entries", 0, 0), None),
    (("entries", 0, 1), NAN),
    (("entries", 0, 6), "long"),
    (("entries", 0, 7), 3),
    (("own_ages_s",), None),
    (("own_ages_s", "redis"), None),
    (("own_ages_s", "redis"), 1e300),
]


@pytest.mark.parametrize(("place", "value"), SPOILT, ids=[f"{place}={str(value)[:20]}" for place, value in SPOILT])
def test_what_is_broken_is_refused_as_a_whole(place: tuple[str | int, ...], value: object) -> None:
    other = Teller()
    other.takes(Ping(message="our own"))
    before = deepcopy(other.shown)
    with pytest.raises(RefusedError):
        other.hears(_spoilt(_story().tells(), place, value))
    assert other.shown == before


@pytest.mark.parametrize(
    "told",
    [b"", b"{", b"[]", b'{"what":"past"}', b'{"what":"past","past":[]}', b'{"what":"past","past":' + b"[" * 99_999],
    ids=["nothing", "half", "list", "no past", "past is a list", "deep"],
)
def test_what_is_no_past_at_all_is_refused(told: bytes) -> None:
    with pytest.raises(RefusedError):
        Teller().hears(told)


ANYTHING: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from([place for place, _ in SPOILT]), ANYTHING)
def test_whatever_stands_in_its_place_it_is_refused_or_can_be_shown(
    place: tuple[str | int, ...], value: object
) -> None:
    other = Teller()
    try:
        other.hears(_spoilt(_story().tells(), place, value))
    except RefusedError:
        return
    decisions, answered_at, newest, _, counts, *_ = (json.loads(json.dumps(each)) for each in other.shown)
    assert len(counts) == MINUTES
    assert all(0 <= at <= other.wall for at, *_ in decisions)
    assert answered_at is None or answered_at <= other.wall
    assert len(newest) <= samples.MOST


def test_more_and_longer_than_we_keep_is_cut_to_the_newest() -> None:
    content = json.loads(_story().tells())
    told = content["past"]
    (decision,), sample = told["decisions"], told["samples"][0]
    told["decisions"] = [[*decision[:3], f"{number:05}" + "x" * 9_999, 1] for number in range(500)]
    told["samples"] = [[f"f{number}" + "k" * 999, None, *sample[2:8], "m" * 9_999] for number in range(500)]
    told["kept"]["samples"] *= 500
    told["kept"]["capture"] = "c" * 99_999
    told["minutes"] = list(range(500))
    told["entries"] = [["hold", number, *told["entries"][1][2:]] for number in range(500)]
    told["own_ages_s"]["brake"] = 1.0
    other = Teller()
    other.hears(json.dumps(content).encode())
    newest, kept = other.history.newest(), other.inquest.kept
    assert (len(newest), newest[0].sentence[:5], len(newest[0].sentence)) == (
        history.MOST,
        "00499",
        past.SENTENCE_LIMIT,
    )
    known = list(other.inquest.samples.keyed())
    assert len(known) == samples.MOST
    assert str(known[-1][0]).startswith("f499")
    assert {len(key) for key, _ in known} == {past.WORD_LIMIT}
    assert {len(each.message) for _, each in known} == {samples.MESSAGE_LIMIT + 1}
    assert kept is not None
    assert (len(kept.samples), len(kept.capture or "")) == (samples.MOST, past.CAPTURE_LIMIT)
    assert other.minutes.counts()[0] == 440
    assert [entry.at for entry in other.ledger.unsent(999)] == [*range(300, 500)]
    assert other.messenger.own.keys() == {"not_honoured", "redis"}


def test_the_most_there_can_be_is_told_and_taken() -> None:
    """Every text as long as it may be, of characters that take most room on the wire."""
    one, wide = Teller(), "\U0001f4a5" * 5_000
    one.history.restore([Decision(one.wall, "x" * 64, wide, wide)] * history.MOST, one.wall)
    one.takes(*(Ping(1, kind="k" * 64, message=f"{letter}{wide}") for letter in "ghijklmnopqrstuvwxyz"))
    one.inquest.kept = Kept("web/a/boot-1", one.wall, one.inquest.samples.newest(), wide * 9)
    one.ledger.add(*(Entry("culled", float(number), "a", detail=wide[:2_048]) for number in range(1_000)))
    told = one.tells()
    assert len(told) <= MOST_PAST_BYTES
    other = Teller()
    other.hears(told)
    assert [entry.at for entry in other.ledger.unsent(999)] == [float(number) for number in range(968, 1_000)]
    assert len(other.inquest.samples.newest()) == samples.MOST


def test_half_a_character_in_a_message_costs_nothing() -> None:
    """JSON can write one alone, and UTF-8 cannot."""
    one, other = Teller(), Teller()
    one.takes(Ping(message="broken \ud83d here"), Ping(message="m", fingerprint="f\udc00"))
    other.hears(one.tells())
    assert [each.message for each in other.inquest.samples.newest()] == ["m", "broken \ud83d here"]
