"""What the beats of a sidecar have shown it, and what the fleet has decided about its container."""

from __future__ import annotations

from harness.claims import WINDOW_ONLY, S, beat
from harness.server_group import START_US
from sidecar.core.fleet.view import Attended, BeatReply
from sidecar.store.own_beats import OwnBeats


def test_each_beat_is_decided_until_the_first_decision_and_during_a_probation() -> None:
    own = OwnBeats(WINDOW_ONLY, lambda: 0.0)
    due = [own.is_due()]
    for is_watched in (True, True, False):
        own.attended(Attended(is_watched=is_watched))
        due.append(own.is_due())
    assert due == [True, True, True, False]


def test_newcomer_has_waited_since_the_first_decision() -> None:
    now_s, waits_us = [0.0], []
    own = OwnBeats(WINDOW_ONLY, lambda: now_s[0])
    for now_s[0] in (0.0, 10.0, 25.0):
        waits_us.append(own.attend(beat("a"), BeatReply(START_US)).waited_us)
        own.attended(Attended(is_waiting=True))
    assert waits_us == [0, 10 * S, 25 * S]
