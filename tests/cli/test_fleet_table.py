from __future__ import annotations

from typing import Any

import pytest

from sidecar.cli.fleet_table import DUPLICATE, GONE, SILENT, Row, chosen, foot, head, hold_line, rows, span
from sidecar.core.fleet import about as members_json
from sidecar.core.types import CauseTrial, Fleet

NOW = 1_700_000_000.0
RELEASE = "look for the cause, or try again at once with health-arbiter release --service"
HOLD = {"scope": "service", "instance": "", "author": "alice", "reason": "migration", "until": NOW + 3600}


def _seen(fleet: Fleet | None, **more: object) -> dict[str, Any]:
    seen = {"service": "app", "instance": "a", "mode": "enforce", "budget": "10", "used": 3}
    rest: dict[str, Any] = {"members": [], "holds": [], "local_hold": None}
    return {**seen, **rest, "fleet": members_json.fleet(fleet) if fleet else None, **more}


def _member(instance: str, presence: str, kind: str = "", age_s: float = 1.0) -> dict[str, Any]:
    return {"instance": instance, "presence": presence, "kind": kind, "age_s": age_s}


def test_whole_of_a_fleet_in_trouble_is_told() -> None:
    fleet = Fleet(
        alive=4,
        suspect=3,
        down=1,
        cause="redis",
        trials=(CauseTrial("mysql", 2, 1), CauseTrial("redis", 1, 0, 545.0, 2), CauseTrial("http", 1, 0, 30.0, 1)),
        median_errors=2,
        median_ratio=0.0042,
        duplicate=True,
        policies=2,
        losses=1,
        away=("redis://h2: timeout",),
        helped=5,
        unhelped=2,
        unclear=1,
    )
    members = [
        _member("a", "well"),
        _member("longer-name", "suspect", "redis", 75),
        _member("c", "down", "redis", 3700),
    ]
    seen = _seen(fleet, members=members, holds=[HOLD])
    assert list(head(seen, NOW)) == [
        "app: 4 alive, 3 of them suspect, 1 down, 3 of 10 tokens in use, 7 left",
        "culls   5 helped, 2 did not help, 1 unclear",
        "trial   mysql: 1 of at most 2 culls without an outcome",
        f"paused  no culls for redis for 9m5s: the last 2 culls did not help; {RELEASE}",
        f"paused  no culls for http for 30s: the last cull did not help; {RELEASE}",
        "cause   most suspects share redis",
        "median  2 errors of a container in the window, 0.42 % of its requests",
        "double  another container beats under the name of this one, so neither of them may be culled",
        "drift   2 different settings, the strictest of each holds: see health-arbiter doctor",
        "away    redis://h2: timeout, and its share of the budget",
        "memory  lost 1 times",
        "hold    the service by alice, 1h left: migration",
    ]
    assert rows(seen, NOW) == [
        Row("longer-name", "suspect", "redis", heard="1m15s ago"),
        Row("c", "down", "redis", since="1h 2m"),
        Row("a", "well", heard="1s ago"),
    ]
    assert list(foot(seen, 0)) == ["... and 2 more"]


def test_fleet_that_is_well_is_two_lines() -> None:
    assert list(head(_seen(Fleet(alive=1), mode="shadow", used=None), NOW)) == [
        "app (shadow): 1 alive, 0 of them suspect, 0 down",
        "culls   0 helped, 0 did not help, 0 unclear",
    ]


def test_nothing_known_is_said_so() -> None:
    local = {**HOLD, "instance": "a", "scope": "instance"}
    assert list(head(_seen(None, used=None, local_hold=local), NOW)) == [
        "app: nothing is known of the fleet",
        "hold    instance a by alice, 1h left: migration (known to this sidecar only)",
    ]


def test_hold_of_the_last_beat_is_told_once() -> None:
    seen = _seen(Fleet(alive=1), local_hold=HOLD)
    seen["fleet"]["hold"] = HOLD
    assert sum(line.startswith("hold") for line in head(seen, NOW)) == 1
    seen["local_hold"] = None
    assert "hold    the service by alice, 1h left: migration" in list(head(seen, NOW))


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


def test_nothing_that_moves_a_cursor_is_printed() -> None:
    evil = {**HOLD, "reason": "a\x1b[2Jb\nc", "author": "größe\u202e"}
    assert hold_line(evil, NOW) == "the service by größe?, 1h left: a?[2Jb?c"
    own = {**OWN, "incarnation": "\x1b[2J"}
    lines = head(
        _seen(
            Fleet(alive=1, cause="k\r", trials=(CauseTrial("\x07", 1, 0), CauseTrial("\x08", 1, 0, 9)), away=("\n",)),
            own=own,
            service="\u202e",
        ),
        NOW,
    )
    assert all(line.isprintable() for line in lines)
    assert hold_line({**HOLD, "reason": "größe 🚀"}, NOW) == "the service by alice, 1h left: größe 🚀"


# -- rows ---------------------------------------------------------------------------------------------------

OWN = {
    "state": "up",
    "since": NOW - 90,
    "incarnation": "life-1",
    "weight": 80,
    "errors": 2,
    "limit": 5,
    "version": "0.9",
}


def test_own_container_is_told_in_full_and_others_as_far_as_the_bucket_knows() -> None:
    members = [_member("a", "well"), _member("b", "well", age_s=3)]
    seen = _seen(Fleet(alive=2), members=members, own=OWN)
    assert rows(seen, NOW) == [
        Row("a", "well", "-", "1m30s", "1s ago", "2/5", "80%", "life-1", "0.9"),
        Row("b", "well", heard="3s ago"),
    ]
    assert list(head(seen, NOW))[-1] == (
        "here    a: up for 1m30s, 2 errors of 5, weight 80 %, incarnation life-1, version 0.9"
    )


@pytest.mark.parametrize(
    ("state", "shown"), [("suspect", "suspect"), ("retiring", "retiring"), ("draining", "draining"), ("up", "well")]
)
def test_own_state_is_told_where_it_says_more_than_its_presence(state: str, shown: str) -> None:
    (row,) = rows(_seen(Fleet(alive=1), members=[_member("a", "well")], own={**OWN, "state": state}), NOW)
    assert row.state == shown


@pytest.mark.parametrize(("age_s", "state"), [(30, "well"), (30.1, SILENT)])
def test_one_that_was_not_heard_of_for_three_beats_is_silent(age_s: float, state: str) -> None:
    (row,) = rows(_seen(Fleet(alive=1), members=[_member("b", "well", age_s=age_s)], beat_interval=10.0), NOW)
    assert row.state == state


GONE_ONES = [{"instance": "new", "age_s": 3.0}, {"instance": "old", "age_s": 70.0}]


def test_what_needs_a_look_comes_first_and_the_longest_of_a_kind_before_others() -> None:
    members = [
        _member("well", "well"),
        _member("down-new", "down", "redis", 5),
        _member("down-old", "down", "redis", 500),
        _member("suspect", "suspect", "redis"),
        _member("silent", "well", age_s=40),
    ]
    seen = _seen(Fleet(alive=3, down=2), members=members, beat_interval=10.0)
    told = rows({**seen, "departed": GONE_ONES}, NOW)
    assert [row.instance for row in told] == ["silent", "suspect", "down-old", "down-new", "new", "old", "well"]
    assert told[4:6] == [Row("new", GONE, heard="silent for 3s"), Row("old", GONE, heard="silent for 1m10s")]


def test_of_many_who_are_gone_the_newest_have_a_row() -> None:
    many = [{"instance": f"n{number:02}", "age_s": float(number)} for number in range(25)]
    seen = _seen(Fleet(alive=1), members=[_member("a", "well")], departed=many)
    assert [row.instance for row in rows(seen, NOW)] == [*(f"n{number:02}" for number in range(10)), "a"]
    assert list(foot(seen, 0)) == ["... and 15 more that fell silent or said goodbye before: --all shows them"]
    assert len(rows(seen, NOW, most_gone=None)) == 26
    assert list(foot(seen, 0, most_gone=None)) == []


@pytest.mark.parametrize(
    ("presence", "state", "shown"),
    [
        ("well", "up", ("well", "20s")),
        ("well", "starting", ("starting", "20s")),
        ("well", "retiring", ("retiring", "20s")),
        ("well", "stopping", ("stopping", "20s")),
        ("well", "suspect", ("well", "-")),
        ("suspect", "suspect", ("suspect", "20s")),
        ("suspect", "up", ("suspect", "-")),
        ("down", "draining", ("draining", "20s")),
        ("down", "down", ("down", "20s")),
        ("down", "up", ("down", "5s")),
        ("down", "stopping", ("down", "5s")),
    ],
)
def test_what_another_sidecar_told_is_shown_where_it_does_not_contradict_the_fleet(
    presence: str, state: str, shown: tuple[str, str]
) -> None:
    about = {**OWN, "state": state, "since": NOW - 20}
    (row,) = rows(_seen(Fleet(alive=1), members=[{**_member("b", presence, age_s=5), "about": about}], own=OWN), NOW)
    assert (row.state, row.since) == shown
    assert (row.errors, row.weight, row.life, row.version) == ("2/5", "80%", "life-1", "0.9")


def test_name_of_two_lives_is_marked_and_comes_first() -> None:
    doubled = [{**_member(name, "well"), "about": {**OWN, "state": "up"}, "duplicate": True} for name in ("a", "c")]
    members = [_member("b", "down"), *doubled, {**_member("d", "well"), "duplicate": False}]
    told = rows(_seen(Fleet(alive=3, down=1), members=members, own=OWN), NOW)
    assert [(row.instance, row.state) for row in told] == [
        ("a", DUPLICATE),
        ("c", DUPLICATE),
        ("b", "down"),
        ("d", "well"),
    ]


def test_one_that_is_silent_is_so_whatever_it_told() -> None:
    member = {**_member("b", "well", age_s=31), "about": OWN}
    (row,) = rows(_seen(Fleet(alive=1), members=[member], beat_interval=10.0), NOW)
    assert (row.state, row.heard, row.errors) == (SILENT, "31s ago", "2/5")


def test_of_many_rows_only_some_of_the_well_are_left_out() -> None:
    well, bad = (
        [Row(f"w{number}", "well") for number in range(500)],
        [Row(f"b{number}", "suspect") for number in range(50)],
    )
    assert chosen([*bad, *well], 40) == (bad, 500)
    assert chosen([*bad[:3], *well], 40) == ([*bad[:3], *well[:37]], 463)
    assert chosen([*bad, *well], None) == ([*bad, *well], 0)
    assert chosen(well[:40], 40) == (well[:40], 0)
    assert list(foot(_seen(Fleet(alive=500), members=[{}] * 500), 460)) == [
        "... and 460 more, all well: --all shows them"
    ]


def test_tokens_tell_what_is_left_and_when_the_next_is_back() -> None:
    seen = _seen(Fleet(alive=1, retiring=2), grants=[NOW - 60, NOW - 5], budget_window=600.0)
    (line, *_) = head(seen, NOW)
    assert line == (
        "app: 1 alive, 0 of them suspect, 0 down, 2 retiring, 3 of 10 tokens in use, 7 left, the next is back in 9m"
    )
    (line, *_) = head({**seen, "budget": "5%", "grants": []}, NOW)
    assert line.endswith("3 of 5% tokens in use")


def test_age_of_a_container_is_told_where_its_sidecar_says_it() -> None:
    about = {**OWN, "born": NOW - 6 * 3600}
    members = [{**_member("a", "well"), "about": None}, {**_member("b", "well"), "about": about}]
    seen = _seen(Fleet(alive=2), members=members, own=OWN)
    assert [(row.instance, row.age) for row in rows(seen, NOW)] == [("a", "-"), ("b", "6h")]
    assert list(head({**seen, "own": about}, NOW))[-1].startswith("here    a: up for 1m30s, age 6h, 2 errors of 5, ")
