"""The banner of the page: for each situation what it says, how urgent, and which command it names."""

from __future__ import annotations

from typing import Any, Final

import pytest

from sidecar.core.claims import CauseTrial, Fleet, Unknown
from sidecar.core.fleet.common_trait import CommonTrait
from sidecar.core.types import Hold
from sidecar.server.banner import ContainerRow, Situation, banner

NOW: Final = 1_700_000_000.0  # 22:13:20 UTC
WELL: Final = [ContainerRow(f"c{at}", "up", errors=0, weight=100) for at in range(10)]
SICK: Final = [row._replace(state="suspect", cause="redis", errors=9) for row in WELL]
MIXED: Final = [
    *SICK[:2],
    SICK[2]._replace(cause="disk", since=int(NOW - 300)),
    SICK[3]._replace(errors=70, since=int(NOW - 60)),
]
HOLD: Final = Hold("anna", "migration", NOW + 600, "")
PAUSED: Final = CauseTrial("redis", 1, 0, 540.0, 1)
TRIED: Final = CauseTrial("redis", 1, 1, 0.0, 0)
TOKENS: Final = {"used": 0, "capacity": 10, "grants": (), "budget_window": 600.0}
FULL: Final = {**TOKENS, "used": 10, "grants": (NOW - 480,)}


def _down(age_s: float) -> list[ContainerRow]:
    return [ContainerRow("d", "down", "redis", since=int(NOW - age_s)), *WELL]


def _situation(**fields: Any) -> Situation:
    rest = {"fleet": Fleet(10), "rows": WELL, "holds": [], "tokens": TOKENS, "unknown": None, "away_since": None}
    return Situation(**{**rest, "alone": "", "is_shadow": False, "now": NOW, **fields})


CASES: Final = {
    "well": ({}, "ok", "All is well: 10 containers, none suspect, none down.", ""),
    "one suspect": (
        {"rows": [*SICK[:1], *WELL[1:]]},
        "warning",
        "1 of 10 containers (c0) has too many errors because of redis.",
        "health-arbiter why c0",
    ),
    "outage": (
        {"rows": [*SICK[:4], *WELL[4:]], "fleet": Fleet(10, 4, cause="redis", trials=(TRIED,))},
        "critical",
        (
            "4 of 10 containers have too many errors because of redis. The fleet tries one cull, and"
            " waits to see whether it helps."
        ),
        "health-arbiter why c0",
    ),
    "suspects of one version": (
        {
            "rows": [*SICK[:3], *WELL],
            "common": CommonTrait("version", "412", 3, 3, 0, 10),
        },
        "critical",
        (
            "3 of 13 containers (c0, c1, c2) have too many errors because of redis. All 3 suspects run version 412; of"
            " the healthy none does: roll back."
        ),
        "health-arbiter why c0",
    ),
    "outage of several causes": (
        {"rows": [*MIXED, *WELL[4:]], "fleet": Fleet(10, 4, cause="redis")},
        "critical",
        "4 of 10 containers have too many errors since 22:08 UTC, most because of redis.",
        "health-arbiter why c3",
    ),
    "outage under a hold": (
        {"rows": SICK, "holds": [HOLD]},
        "critical",
        "anna holds all culls until 22:23 UTC (migration), and 10 containers have too many errors.",
        "health-arbiter release",
    ),
    "outage, and a cull did not help": (
        {"rows": SICK, "fleet": Fleet(10, 10, cause="redis", trials=(PAUSED,))},
        "critical",
        (
            "All 10 containers have too many errors because of redis. Culls for it are paused, because the last one did"
            " not help."
        ),
        "health-arbiter why c0",
    ),
    "a pause, nobody suspect": (
        {"fleet": Fleet(10, trials=(PAUSED,))},
        "warning",
        "Culls for redis are paused, because the last one did not help. No container is suspect now.",
        "health-arbiter events --since 1h",
    ),
    "no tokens": (
        {"rows": [*SICK[:1], *WELL[1:]], "tokens": FULL},
        "critical",
        (
            "1 of 10 containers (c0) has too many errors because of redis. All tokens are in use, and the next comes"
            " back at 22:15 UTC."
        ),
        "health-arbiter why c0",
    ),
    "suspects that are not listed yet": (
        {"fleet": Fleet(10, 3, 1), "rows": WELL[:1]},
        "warning",
        "3 of 10 containers are suspect, 1 drain or are down.",
        "health-arbiter events --since 1h",
    ),
    "a pause, suspects that are not listed yet": (
        {"fleet": Fleet(10, 3, trials=(PAUSED,)), "rows": WELL[:1]},
        "warning",
        "Culls for redis are paused, because the last one did not help. 3 containers are suspect.",
        "health-arbiter events --since 1h",
    ),
    "no tokens, nobody asks": ({"tokens": FULL}, "ok", "All is well: 10 containers, none suspect, none down.", ""),
    "slow outage": (
        {"rows": [row._replace(errors=2, weight=80) for row in WELL]},
        "warning",
        (
            "20 errors in 10 of 10 containers, 10 get fewer requests, and none stands out: a restart of"
            " single containers would not help."
        ),
        "health-arbiter events --since 1h",
    ),
    "cull": (
        {"rows": _down(20)},
        "warning",
        "1 container (d) was culled because of redis and has not been replaced yet.",
        "health-arbiter events --since 1h",
    ),
    "not replaced": (
        {"rows": _down(600)},
        "critical",
        "1 container (d) has been down since 22:03 UTC and has no replacement.",
        "nomad job eval -force-reschedule <job>",
    ),
    "hold": (
        {"holds": [HOLD]},
        "info",
        "anna holds all culls until 22:23 UTC (migration).",
        "health-arbiter release",
    ),
    "hold of one, and a suspect": (
        {"holds": [Hold("anna", "x", NOW, "c 1")], "rows": [*SICK[:1], *WELL[1:]]},
        "warning",
        "anna holds c 1 until 22:13 UTC (x), and 1 container (c0) has too many errors.",
        "health-arbiter release --instance 'c 1'",
    ),
    "Redis away": (
        {"unknown": Unknown("timeout"), "away_since": NOW - 300, "rows": SICK},
        "critical",
        (
            "Redis has given no answer since 22:08 UTC, so no container can be culled: Redis did not answer in time."
            " Health answers are unchanged."
        ),
        "health-arbiter doctor",
    ),
    "without Redis": (
        {"unknown": Unknown("alone"), "alone": "it is alone", "fleet": None},
        "info",
        "It is alone.",
        "",
    ),
    "just started": (
        {"fleet": None},
        "info",
        "The fleet is not known yet: this sidecar has just started.",
        "",
    ),
    "all start": (
        {"rows": [row._replace(state="starting") for row in WELL]},
        "info",
        "No container is judged yet: 10 containers are starting.",
        "",
    ),
    "the only one starts": (
        {"rows": [WELL[0]._replace(state="starting")], "fleet": Fleet(1)},
        "info",
        "No container is judged yet: 1 container (c0) is starting.",
        "",
    ),
    "all but one start": (
        {"rows": [*(row._replace(state="starting") for row in WELL[1:]), WELL[0]]},
        "ok",
        "All is well: 10 containers, none suspect, none down.",
        "",
    ),
    "one name twice": (
        {"rows": [WELL[0]._replace(duplicate=True), *WELL[1:]]},
        "warning",
        "Two containers run under one instance name (c0), and neither may be culled.",
        "health-arbiter doctor",
    ),
    "different settings": (
        {"fleet": Fleet(10, settings=2)},
        "warning",
        "The sidecars run with 2 different settings; the strictest of each holds.",
        "health-arbiter doctor",
    ),
    "slow outage in shadow mode": (
        {"rows": [row._replace(errors=2, weight=80) for row in WELL], "is_shadow": True},
        "warning",
        (
            "Shadow mode, nothing is culled. 20 errors in 10 of 10 containers, 10 would get fewer requests, and none"
            " stands out: a restart of single containers would not help."
        ),
        "health-arbiter events --since 1h",
    ),
    "shadow mode": (
        {"is_shadow": True},
        "ok",
        "Shadow mode, nothing is culled. All is well: 10 containers, none suspect, none down.",
        "",
    ),
}


OUTAGE: Final = {"rows": [*MIXED, *WELL[4:]], "fleet": Fleet(10, 4, cause="redis", trials=(TRIED,))}
BEGINNING: Final = "4 of 10 containers have too many errors since 22:08 UTC, most because of redis."


def test_trial_of_another_cause_is_not_that_of_the_suspects() -> None:
    other = Fleet(10, 4, cause="redis", trials=(TRIED._replace(cause="mysql"),))
    assert banner(_situation(**{**OUTAGE, "fleet": other})).sentence == BEGINNING


@pytest.mark.parametrize(("fields", "level", "sentence", "command"), CASES.values(), ids=CASES)
def test_banner(fields: dict[str, Any], level: str, sentence: str, command: str) -> None:
    made = banner(_situation(**fields))
    assert (made.sentence, made.level, made.command) == (sentence, level, command)
    needs_no_action = {CASES[case][2] for case in ("just started", "all start", "the only one starts")}
    assert bool(made.action) is (made.level != "ok" and made.sentence not in needs_no_action)


def test_runbook_of_a_container_alone_is_that_of_redis() -> None:
    made = banner(_situation(**CASES["without Redis"][0]))  # type: ignore[arg-type]  # a row has the fields first
    assert made.as_json("https://wiki")["runbook"] == "https://wiki#redis"
    assert made.as_json("")["runbook"] == ""


def test_store_that_is_away_is_named() -> None:
    away = _situation(unknown=Unknown("timeout"), store="redis://:***@10.0.0.5:6379")
    assert banner(away).action.startswith("Repair Redis (redis://:***@10.0.0.5:6379) or the network to it;")


@pytest.mark.parametrize(
    ("case", "action"),
    [
        ("one suspect", "Look at its errors."),
        ("outage", "Treat it as an incident of the service: repair what is behind redis, or roll back."),
        (
            "outage, and a cull did not help",
            "A restart is no remedy: repair what is behind redis, or roll back, then health-arbiter release.",
        ),
        ("hold", "Ask anna before you end it."),
        ("suspects that are not listed yet", "The list does not show them: look at the events."),
    ],
)
def test_action_fits_the_number_of_suspects_and_their_refusal(case: str, action: str) -> None:
    assert banner(_situation(**CASES[case][0])).action == action  # type: ignore[arg-type]  # a row has the fields first


@pytest.mark.parametrize(
    ("suspects", "of", "level"),
    [(1, 1, "warning"), (2, 2, "critical"), (2, 10, "critical"), (2, 11, "warning"), (3, 15, "critical")],
)
def test_two_suspects_and_a_fifth_of_the_service_are_an_incident(suspects: int, of: int, level: str) -> None:
    rows = [ContainerRow(str(n), "suspect" if n < suspects else "up", errors=9) for n in range(of)]
    made = banner(_situation(rows=rows))
    assert made.level == level
    if (suspects, of) == (2, 11):
        assert made.action == "Look at the errors of the worst."


@pytest.mark.parametrize(
    ("with_errors", "of", "level"), [(1, 2, "ok"), (2, 4, "warning"), (2, 5, "ok"), (3, 5, "warning")]
)
def test_half_of_the_containers_with_errors_are_a_slow_outage(with_errors: int, of: int, level: str) -> None:
    rows = [ContainerRow(str(n), "up", errors=int(n < with_errors), weight=100) for n in range(of)]
    assert banner(_situation(rows=rows)).level == level


@pytest.mark.parametrize(("age_s", "level"), [(480, "warning"), (481, "critical")])
def test_eight_minutes_without_a_replacement_are_too_long(age_s: float, level: str) -> None:
    assert banner(_situation(rows=_down(age_s))).level == level
