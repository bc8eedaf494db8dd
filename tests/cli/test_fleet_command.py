"""The fleet as an operator sees it: the lines, the rows, the table of any width, and names that are traps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
import pytest

from sidecar.cli import fleet_command
from sidecar.cli.fleet_command import DUPLICATE, GONE, SILENT, Row, head, hold_line, rows, span
from sidecar.core.claims import CauseTrial, Fleet
from sidecar.core.explain import reasons
from sidecar.core.fleet.members import fleet_json
from sidecar.core.types import Hold

NOW = 1_700_000_000.0
HOLD = {"scope": "service", "instance": "", "author": "alice", "reason": "migration", "until": NOW + 3600}


def _seen(fleet: Fleet | None, **more: object) -> dict[str, Any]:
    seen = {"service": "app", "instance": "a", "mode": "enforce", "budget": "10", "used": 3}
    rest: dict[str, Any] = {"members": [], "holds": [], "local_hold": None}
    return {**seen, **rest, "fleet": fleet_json(fleet) if fleet else None, **more}


def _member(instance: str, state: str, kind: str = "", age_s: float = 1.0, **more: Any) -> dict[str, Any]:
    """A member as ``/fleet`` has it, in its state for 20 s; ``age_s``: since it was heard of, or is down."""
    presence = {"silent": "up", "draining": "down"}.get(state, state)
    since = NOW - age_s if state == "down" else NOW - 20
    told = {"state": state, "since": since, "presence": presence, "kind": kind, "age_s": age_s}
    return {"instance": instance, **told, **more}


BANNER = {
    "level": "warning",
    "sentence": "3 have too many errors.",
    "action": "Look.",
    "command": "health-arbiter why c",
}


def shown(seen: dict[str, Any], width: int = 80, *, is_all: bool = False) -> list[str]:
    limit = None if is_all else fleet_command.ROWS_LIMIT
    return list(map(click.unstyle, fleet_command.as_text(seen, NOW, width, limit)))


def test_fleet_in_trouble_is_shown_with_all_of_it() -> None:
    fleet = Fleet(
        alive=4,
        suspect=3,
        down=1,
        trials=(
            CauseTrial("mysql", 2, 1, since=NOW - 250),
            CauseTrial("redis", 1, 0, 545.0, 2),
            CauseTrial("http", 1, 0, 1.0, 1),
        ),
        median_errors=2,
        median_ratio=0.0042,
        losses=1,
        helped=5,
        unhelped=2,
        unclear=1,
    )
    members = [
        _member("a", "up", duplicate=True),
        _member("longer-name", "suspect", "redis", 75),
        _member("c", "down", "redis", 3700),
    ]
    seen = _seen(fleet, members=members, holds=[HOLD], banner=BANNER, bound="at most 10 culls")
    assert list(head(seen, NOW)) == [
        "app: 4 alive, 3 of them suspect, 1 down, 3 of 10 tokens in use, 7 left",
        "now     3 have too many errors.",
        "do      Look. health-arbiter why c",
        "bound   at most 10 culls",
        "culls   5 helped, 2 did not help, 1 unclear",
        "trial   mysql: 1 of at most 2 culls without an outcome, its episode began 4m 10s ago",
        "paused  no culls for redis for 9m 5s: the last 2 culls did not help",
        "paused  no culls for http for 1s: the last cull did not help",
        "median  2 errors of a container in the window, 0.42 % of its requests",
        "memory  Redis lost its record of earlier culls 1 time: no cull in the window of the budget after one",
        "hold    the service by alice, 1h left: migration",
    ]
    assert rows(seen, NOW) == [
        {"instance": "a", "state": "duplicate", "cause": "", "since": "20s", "heard": "1s ago"},
        {"instance": "longer-name", "state": "suspect", "cause": "redis", "since": "20s", "heard": "1m 15s ago"},
        {"instance": "c", "state": "down", "cause": "redis", "since": "1h 2m"},
    ]
    assert shown(seen)[-1] == "... and 2 more: --all shows those that are known"


def test_container_that_drains_is_not_counted_as_down_and_a_lost_hold_is_told() -> None:
    lost = Hold("ann", "deploy", NOW + 60)
    headline, _, hold = shown(_seen(Fleet(alive=4, down=2, draining=1, lost_hold=lost), used=None))
    assert headline == "app: 4 alive, 0 of them suspect, 1 draining, 1 down"
    assert hold == f"lost    {reasons.lost_hold(lost)}"


def test_healthy_fleet_is_two_lines_and_an_unknown_one_says_so() -> None:
    # In shadow a container that would be culled is one that serves.
    well = {"level": "ok", "sentence": "All is well.", "action": "", "command": ""}
    assert shown(_seen(Fleet(alive=1, down=1), mode="shadow", used=None, banner=well)) == [
        "app (shadow): 2 alive, 0 of them suspect, 1 would be down",
        "culls   0 helped, 0 did not help, 0 unclear",
    ]
    waits = {**well, "level": "info", "sentence": "The fleet is not known yet."}
    assert shown(_seen(None, used=None, banner=waits))[1:] == ["now     The fleet is not known yet."]
    local = {**HOLD, "instance": "a", "scope": "instance"}
    assert shown(_seen(None, used=None, local_hold=local)) == [
        "app: nothing is known of the fleet",
        "hold    instance a by alice, 1h left: migration (known to this sidecar only)",
    ]


def test_tokens_tell_what_is_left_and_when_the_next_is_back() -> None:
    seen = _seen(Fleet(alive=1, retiring=2), grants=[NOW - 60, NOW - 5], budget_window=600.0)
    assert shown(seen)[0] == (
        "app: 1 alive, 0 of them suspect, 0 down, 2 retiring, 3 of 10 tokens in use, 7 left, the next is back in 9m"
    )
    assert shown({**seen, "budget": "5%", "grants": []})[0].endswith("3 of 5% tokens in use")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-5, "0s"), (0.6, "1s"), (60, "1m"), (61, "1m 1s"), (599, "9m 59s"), (599.6, "10m"), (601, "11m"), (3599, "1h")],
)
def test_span_is_rounded_to_what_matters(seconds: float, text: str) -> None:
    assert span(seconds) == text


def test_nothing_that_moves_a_cursor_is_printed() -> None:
    evil = {**HOLD, "reason": "a\x1b[2Jb\nc", "author": "größe\u202e"}
    assert hold_line(evil, NOW) == "the service by größe?, 1h left: a?[2Jb?c"
    trials = (CauseTrial("\x07", 1, 0), CauseTrial("\x08", 1, 0, 9))
    lines = head(_seen(Fleet(alive=1, trials=trials), service="\u202e", banner={**BANNER, "sentence": "k\r"}), NOW)
    assert all(line.isprintable() for line in lines)
    assert hold_line({**HOLD, "reason": "größe 🚀"}, NOW) == "the service by alice, 1h left: größe 🚀"


# -- rows ---------------------------------------------------------------------------------------------------

ABOUT = {"incarnation": "life-1", "weight": 80, "errors": 2, "limit": 5, "version": "0.9", "node": "n7"}


def test_container_is_shown_as_far_as_the_fleet_knows() -> None:
    members = [_member("a", "up", about={**ABOUT, "born": NOW - 6 * 3600}), _member("b", "up", age_s=3, since=None)]
    told, other = rows(_seen(Fleet(alive=2), members=members), NOW)
    known = {"instance": "a", "state": "up", "cause": "", "since": "20s", "heard": "1s ago", "age": "6h"}
    figures = {"errors": "2/5", "weight": "80%", "incarnation": "life-1", "version": "0.9", "node": "n7", "app": ""}
    assert told == known | figures
    assert other == {"instance": "b", "state": "up", "cause": "", "heard": "3s ago"}


def test_node_and_version_of_the_app_have_columns_where_a_container_tells_them() -> None:
    member = _member("b", "up", age_s=3, about={**ABOUT, "app_version": "412"})
    seen = _seen(Fleet(alive=2), members=[_member("a", "up"), member])
    lines = shown(seen, 120)
    assert [line.split()[-3:-1] for line in lines[-3:]] == [["NODE", "APP"], ["-", "-"], ["n7", "412"]]
    assert "NODE" not in "".join(shown({**seen, "members": [_member("a", "up")]}, 120))


def test_most_urgent_comes_first_and_the_longest_of_a_kind_before_others() -> None:
    members = [
        _member("well", "up", duplicate=False),
        _member("down-new", "down", "redis", 5),
        _member("down-old", "down", "redis", 500),
        _member("draining", "draining", "redis"),
        _member("suspect", "suspect", "redis"),
        _member("silent", "silent", age_s=40),
        *(_member(name, "up", duplicate=True) for name in ("a", "twin")),
    ]
    departed = [{"instance": "new", "age_s": 3.0}, {"instance": "old", "age_s": 70.0}]
    seen = _seen(Fleet(alive=5, down=2), members=members, departed=departed)
    assert [(row["instance"], row["state"], row.get("heard", "-")) for row in rows(seen, NOW)] == [
        ("a", DUPLICATE, "1s ago"),
        ("twin", DUPLICATE, "1s ago"),
        ("silent", SILENT, "40s ago"),
        ("suspect", "suspect", "1s ago"),
        ("draining", "draining", "-"),
        ("down-old", "down", "-"),
        ("down-new", "down", "-"),
        ("new", GONE, "silent for 3s"),
        ("old", GONE, "silent for 1m 10s"),
        ("well", "up", "1s ago"),
    ]


@pytest.mark.parametrize(("suspects", "gone", "well"), [(3, 20, 17), (50, 0, 0)])
def test_of_many_rows_only_some_of_the_well_and_of_the_gone_are_left_out_unless_all_are_asked_for(
    suspects: int, gone: int, well: int
) -> None:
    departed = [{"instance": f"gone-{number}", "age_s": 1.0} for number in range(20)]
    members = [_member(f"web-{number:03}", "up") for number in range(500)]
    members += [_member(f"bad-{number:03}", "suspect") for number in range(suspects)]
    seen = _seen(Fleet(alive=len(members)), members=members, departed=departed)

    def counted(lines: list[str]) -> list[int]:
        return [sum(line.startswith(word) for line in lines) for word in ("bad-", "gone-", "web-")]

    assert counted(shown(seen)) == [suspects, gone, well]
    assert shown(seen)[-1] == f"... and {520 - gone - well} more: --all shows those that are known"
    assert counted(shown(seen, is_all=True)) == [suspects, 20, 500]
    assert not any(line.startswith("...") for line in shown(seen, is_all=True))


# -- table --------------------------------------------------------------------------------------------------

ALLOCATION = "5cfd2a7c-0a1b-4a0e-9a9d-3f7d8c1f9c11"
STARTED = "2026-11-20T17:00:00.123456Z"


ROWS: Sequence[Row] = [
    {"instance": "web-2", "state": "silent", "heard": "40s ago"},
    {
        "instance": ALLOCATION,
        "state": "suspect",
        "cause": "redis",
        "since": "1m 30s",
        "heard": "3s ago",
        "age": "6h 2m",
        "errors": "7/5",
        "weight": "40%",
        "version": "0.9.0",
        "incarnation": STARTED,
    },
    {"instance": "web-1", "state": "up", "heard": "1s ago"},
]


def table(rows: Sequence[Row], width: int) -> list[str]:
    return list(map(click.unstyle, fleet_command.table(rows, width)))


def test_small_terminal_shows_what_matters() -> None:
    assert table(ROWS, 70) == [
        "INSTANCE                              STATE    CAUSE  SINCE   HEARD",
        "web-2                                 silent   -      -       40s ago",
        "5cfd2a7c-0a1b-4a0e-9a9d-3f7d8c1f9c11  suspect  redis  1m 30s  3s ago",
        "web-1                                 up       -      -       1s ago",
    ]


@pytest.mark.parametrize(("width", "last"), [(75, "HEARD"), (76, "AGE"), (129, "VERSION"), (130, "INCARNATION")])
def test_terminal_shows_as_many_columns_as_fit(width: int, last: str) -> None:
    lines = table(ROWS, width)
    assert lines[0].split()[-1] == last
    assert max(map(len, lines)) <= width


@pytest.mark.parametrize("width", [48, 120])
def test_name_is_never_cut_because_people_search_for_it(width: int) -> None:
    _, row = table([{"instance": "n" * 128, "state": "up", "cause": "k" * 64}], width)
    assert row.startswith(f"{'n' * 128}  up     {'k' * 64}  ")


@pytest.mark.parametrize("name", ["\x1b[2J\x1b[31mred", "a\nb\rc\x07", "\u202eturned", "\x9b2J", "\ud800"])
def test_no_letter_of_others_moves_the_cursor(name: str) -> None:
    lines = fleet_command.table([{"instance": name, "state": "suspect", "kind": name, "life": name}], 120)
    assert "\x1b[33m" in lines[1]
    assert all(map(str.isprintable, map(click.unstyle, lines)))
