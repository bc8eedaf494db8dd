"""The answer to a beat: when something is due, and the fleet as people see it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.rule_fleet import START_US, TERMS
from sidecar.core.claims import Beat, CauseTrial, Presence
from sidecar.core.fleet.decide import is_due
from sidecar.core.fleet.fleet_events import fleet_of
from sidecar.core.fleet.records import Epoch, FleetState, HoldRow, Trial
from sidecar.core.fleet.view import BeatReply, Known
from sidecar.core.types import US_PER_S, Hold

S = US_PER_S
NOW = START_US
EPOCH = Epoch(born_us=NOW - 10**9, grants=5, losses=1, lost_us=NOW - 10**8, servers="one")
STATE = FleetState(several_us=NOW - 5 * S)
KNOWN = Known(EPOCH, NOW - 10 * S, 10 * S)
HEARD = BeatReply(NOW, alive=10, former="0\n\n0")
BEAT = Beat("me", "0", Presence.WELL)


def reading(heard: BeatReply = HEARD, epoch: Epoch = EPOCH, state: FleetState = STATE) -> BeatReply:
    return replace(heard, epoch=epoch, state=state)


QUIET = reading()


@pytest.mark.parametrize(
    ("found", "beat", "known", "expected"),
    [
        (QUIET, BEAT, KNOWN, False),
        (QUIET, BEAT, Known(), False),
        (QUIET, BEAT._replace(presence=Presence.SUSPECT), KNOWN, False),
        (QUIET, BEAT._replace(first=True), KNOWN, True),
        (QUIET, BEAT._replace(presence=Presence.DOWN), KNOWN, True),
        (QUIET, BEAT._replace(presence=Presence.GONE), KNOWN, True),
        (QUIET, BEAT._replace(incarnation="1"), KNOWN, True),
        (reading(replace(HEARD, former="")), BEAT, KNOWN, True),
        (reading(replace(HEARD, struck=("a",), silent=1)), BEAT, KNOWN, False),
        (reading(replace(HEARD, struck=("a",), silent=5)), BEAT, KNOWN, True),
        (reading(replace(HEARD, struck=("a",), silent=1), state=replace(STATE, missing=1)), BEAT, KNOWN, True),
        (reading(replace(HEARD, struck=("a",), silent=1), state=replace(STATE, open_culls={"x": 1})),
            BEAT, KNOWN, True),
        (reading(state=replace(STATE, due_us=NOW)), BEAT, KNOWN, True),
        (reading(state=replace(STATE, due_us=NOW + 1)), BEAT, KNOWN, False),
        (reading(state=replace(STATE, several_us=NOW - 600 * S)), BEAT, KNOWN, True),
        (reading(replace(HEARD, alive=1), state=replace(STATE, several_us=0)), BEAT, KNOWN, False),
        (reading(epoch=Epoch()), BEAT, Known(), True),
        (reading(epoch=replace(EPOCH, servers="two")), BEAT, KNOWN, True),
        (reading(epoch=replace(EPOCH, grants=4)), BEAT, KNOWN, True),
        (reading(epoch=replace(EPOCH, grants=4, losses=2)), BEAT, KNOWN, False),
        (reading(epoch=replace(EPOCH, born_us=NOW - 5)), BEAT, KNOWN, True),
        (reading(epoch=replace(EPOCH, born_us=NOW - 5)), BEAT, Known(), False),
        (QUIET, BEAT, KNOWN._replace(elapsed_us=20 * S), True),
        (reading(replace(HEARD, run_id="2"), replace(EPOCH, run_id="1")), BEAT, KNOWN, True),
        (reading(replace(HEARD, run_id="1"), replace(EPOCH, run_id="1")), BEAT, KNOWN, False),
        (HEARD, BEAT, KNOWN, True),
    ],
    ids=[
        "all is quiet", "nothing is known", "a suspect", "its first", "down", "gone", "another life", "a new row",
        "one was struck off", "half was", "one, and somebody is missing", "one, and a cull is open", "something ends",
        "not yet", "several, long unsaid", "a single one", "never born", "another address", "fewer grants",
        "that is recorded", "another epoch", "that nobody can know", "the clock was stepped",
        "another process", "the same process", "no record can be read",
    ],
)  # fmt: skip
def test_beat_is_followed_by_a_decision_only_where_something_is_due(
    found: BeatReply, beat: Beat, known: Known, *, expected: bool
) -> None:
    assert is_due(found, beat, known, TERMS) is expected


def test_fleet_is_what_the_state_and_the_answer_to_the_beat_say() -> None:
    state = FleetState(
        trials={"redis": Trial(4), "disk": Trial(1, 2, NOW - S, 100 * S), "net": Trial(1, 0, NOW, 100 * S)},
        open_culls={"redis": 3},
        missing=2,
        retiring=1,
        outcomes={"helped|redis": 3, "unhelped|disk": 2, "unclear|a|b": 1},
    )
    counts = {"redis": 4, "disk": 1}
    reply = replace(HEARD, causes=counts, settings=2, median_errors=3, median_ratio=250_000, used=3, draining=3)
    fleet = fleet_of(reading(reply, state=state), TERMS, "me", duplicate=True)
    assert (fleet.alive, fleet.suspect, fleet.down, fleet.cause, fleet.retiring) == (10, 5, 2, "redis", 1)
    assert fleet.draining == 2, "of those that are down"
    assert fleet.trials == (
        CauseTrial("disk", 1, 0, 99.0, 2),
        CauseTrial("net", 1, 0, 0.0, 0),
        CauseTrial("redis", 4, 3),
    )
    assert (fleet.paused, fleet.settings, fleet.losses) == (("disk",), 2, 1)
    assert (fleet.helped, fleet.unhelped, fleet.unclear) == (3, 2, 1)
    assert fleet.culls_by == (("helped", "redis", 3), ("unclear", "a|b", 1), ("unhelped", "disk", 2))
    assert (fleet.used, fleet.capacity, fleet.duplicate) == (3, 10, True)
    assert (fleet.median_errors, fleet.median_ratio) == (3, 0.25)


@pytest.mark.parametrize(
    ("holds", "scope"),
    [
        (("", ""), None),
        (("service", "own"), ""),
        (("", "own"), "me"),
        (("over", "own"), "me"),
        (("end", "own"), "me"),
    ],
)
def test_hold_in_force_is_shown_that_of_the_service_first(holds: tuple[str, str], scope: str | None) -> None:
    rows = {
        "service": HoldRow("ada", "look", NOW - S, 60 * S),
        "own": HoldRow("ada", "look", NOW - S, 60 * S),
        "over": HoldRow("bob", "gone", NOW - 9 * S, S),
        "end": HoldRow("", "", NOW, 0),
    }
    found = reading(
        replace(HEARD, holds={scope: rows[kind] for scope, kind in zip(("", "me"), holds, strict=True) if kind in rows})
    )
    expected = None if scope is None else Hold("ada", "look", (NOW + 59 * S) / S, scope)
    assert fleet_of(found, TERMS, "me").hold == expected


@pytest.mark.parametrize(
    ("alive", "errors", "ratio", "shown"), [(3, 0, 0, (0, 0)), (3, -1, -1, (None, None)), (2, 4, 5, (None, None))]
)
def test_medians_are_those_of_three_members_at_least_if_they_are_known(
    alive: int, errors: int, ratio: int, shown: tuple[object, object]
) -> None:
    fleet = fleet_of(reading(replace(HEARD, alive=alive, median_errors=errors, median_ratio=ratio)), TERMS, "me")
    assert (fleet.median_errors, fleet.median_ratio) == shown
