from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from sidecar.core.words import Brake, Fleet
from sidecar.fleet_table import BRAKES, hold_line, lines, span

NOW = 1_700_000_000.0
HOLD = {"scope": "service", "instance": "", "author": "alice", "reason": "migration", "until": NOW + 3600}


def _seen(fleet: Fleet | None, **more: object) -> dict[str, Any]:
    seen = {"service": "app", "instance": "a", "mode": "enforce", "budget": "10", "used": 3}
    rest: dict[str, Any] = {"members": [], "holds": [], "local_hold": None}
    return {**seen, **rest, "fleet": asdict(fleet) if fleet else None, **more}


def _member(instance: str, presence: str, kind: str = "", age_s: float = 1.0) -> dict[str, Any]:
    return {"instance": instance, "presence": presence, "kind": kind, "age_s": age_s}


def test_whole_of_a_fleet_in_trouble_is_told() -> None:
    fleet = Fleet(
        alive=4,
        wanting=3,
        down=1,
        brake=Brake.CLOSED,
        cause="redis",
        policies=2,
        losses=1,
        away=("redis://h2: timeout",),
        helped=5,
        unhelped=2,
        unclear=1,
        useless=("mysql", "redis"),
    )
    members = [_member("a", "well"), _member("longer-name", "wants", "redis", 75), _member("c", "down", "redis", 3700)]
    assert list(lines(_seen(fleet, members=members, holds=[HOLD]), NOW)) == [
        "app: 4 alive, 3 of them wanting a cull, 1 down, 3 of 10 tokens in use",
        f"brake   {BRAKES['closed']} (they share a cause: redis)",
        "culls   5 helped, 2 did not, 1 are unclear",
        (
            "useless mysql, redis: culls did not help, so there are none for these kinds; a person has to look, "
            "then health-arbiter release"
        ),
        "drift   2 different policies, the strictest of each number holds",
        "away    redis://h2: timeout, and its share of the budget",
        "memory  lost 1 times",
        "hold    the service by alice, 1h left: migration",
        "",
        "INSTANCE     PRESENCE  KIND   HEARD",
        "a            well      -      1s ago",
        "longer-name  wants     redis  1m15s ago",
        "c            down      redis  1h 2m ago",
        "... and 2 more",
    ]


def test_fleet_that_is_well_is_three_lines() -> None:
    assert list(lines(_seen(Fleet(alive=1), mode="shadow", used=None), NOW)) == [
        "app (shadow): 1 alive, 0 of them wanting a cull, 0 down",
        "brake   off",
        "culls   0 helped, 0 did not, 0 are unclear",
    ]


def test_nothing_known_is_said_so() -> None:
    local = {**HOLD, "instance": "a", "scope": "instance"}
    assert list(lines(_seen(None, used=None, local_hold=local), NOW)) == [
        "app: nothing is known of the fleet",
        "hold    instance a by alice, 1h left: migration (known to this sidecar only)",
    ]


def test_hold_of_the_last_beat_is_told_once() -> None:
    seen = _seen(Fleet(alive=1), local_hold=HOLD)
    seen["fleet"]["hold"] = HOLD
    assert sum(line.startswith("hold") for line in lines(seen, NOW)) == 1
    seen["local_hold"] = None
    assert "hold    the service by alice, 1h left: migration" in list(lines(seen, NOW))


@pytest.mark.parametrize("phase", Brake)
def test_every_phase_of_the_brake_has_a_sentence(phase: Brake) -> None:
    assert BRAKES[phase].startswith(phase)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0s"),
        (0, "0s"),
        (0.6, "1s"),
        (59, "59s"),
        (60, "1m"),
        (61, "1m1s"),
        (90, "1m30s"),
        (599, "9m59s"),
        (599.6, "10m"),
        (601, "11m"),
        (3540, "59m"),
        (3599, "1h"),
        (3600, "1h"),
        (3661, "1h 2m"),
        (604800, "168h"),
    ],
)
def test_span_is_as_a_person_says_it(seconds: float, text: str) -> None:
    assert span(seconds) == text


def test_closed_brake_says_what_a_person_has_to_do() -> None:
    _, brake, *_ = lines(_seen(Fleet(alive=3, wanting=3, brake=Brake.CLOSED)), NOW)
    assert "nobody is culled" in brake
    assert brake.endswith("a person has to look, then health-arbiter release")


def test_nothing_that_moves_a_cursor_is_printed() -> None:
    evil = {**HOLD, "reason": "a\x1b[2Jb\nc", "author": "größe\u202e"}
    assert hold_line(evil, NOW) == "the service by größe?, 1h left: a?[2Jb?c"
    member = _member("a\x07", "well", "k\r")
    assert list(lines(_seen(Fleet(alive=1), members=[member]), NOW))[-1] == "a?        well      k?    1s ago"
    assert hold_line({**HOLD, "reason": "größe 🚀"}, NOW) == "the service by alice, 1h left: größe 🚀"
