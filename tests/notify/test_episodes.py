"""When a person is told: spells, their levels and their ends, row by row."""

from __future__ import annotations

import pytest

from sidecar.core.life.delays import honour_s
from sidecar.core.types import CauseTrial, Fleet, Hold, Unknown
from sidecar.notify.episodes import Occasion, Occasions
from sidecar.notify.rules import LEVELS, Seen, Severity

CALM = Fleet(10)
DISK = CauseTrial("disk", 1, 0, 60.0, 1)
REDIS = CauseTrial("redis", 1, 0, 540.0, 1)
PAUSED = Fleet(10, suspect=1, trials=(REDIS,))
BOTH = Fleet(10, suspect=2, trials=(DISK, REDIS))
SHARED = Fleet(10, suspect=6, cause="redis", trials=(REDIS,))
TRIED = Fleet(10, suspect=6, cause="redis", trials=(CauseTrial("redis", 1, 1, 0.0, 1),))
AWAY = Unknown("timeout")


def occasions(**options: float) -> Occasions:
    return Occasions("a", **{"honour_s": 300.0, **options})


def told(*rows: tuple[float, Seen], subject: Occasions | None = None) -> list[tuple[float, str]]:
    """When which word was told; a recovery as ``-word``."""
    subject = subject or occasions()
    return [
        (now, f"-{one.topic}" if one.is_over else one.word) for now, seen in rows for one in subject.look(now, seen)
    ]


def fleets(*rows: tuple[float, Fleet | Unknown]) -> list[tuple[float, Seen]]:
    return [(now, Seen(answer)) for now, answer in rows]


def budgets(*rows: tuple[float, int], capacity: int = 10) -> list[tuple[float, Seen]]:
    return [(now, Seen(CALM, used, capacity)) for now, used in rows]


def test_what_another_process_told_is_not_told_again_and_its_end_is() -> None:
    subject = occasions()
    subject.go_on("not_honoured", -500.0)
    assert subject.own == {"not_honoured": -500.0}
    kept = Seen(CALM, kept_s=700.0)
    assert told((0, kept), (30, kept), subject=subject) == []
    (over,) = subject.look(40, Seen(CALM, is_leaving=True))
    assert (over.topic, over.is_over, over.instance, over.since) == ("not_honoured", True, "a", -500.0)
    assert subject.own == {}


def test_redis_that_is_still_away_after_a_takeover_is_no_news_and_its_return_is() -> None:
    subject = occasions()
    subject.go_on("redis", -400.0)
    away = [(float(now), Seen(AWAY)) for now in range(0, 400, 10)]
    assert told(*away, subject=subject) == []
    assert told((400, Seen(CALM)), (430, Seen(CALM)), (460, Seen(CALM)), subject=subject) == [(460, "-redis")]


def test_what_is_there_at_the_first_look_is_no_news_whatever_the_clock_shows() -> None:
    """With a quiet of 65.1 s, as three beats of 21.7 s make it, four in five instants would be rounded to news."""
    for number in range(1, 100):
        assert told((1000.123 * number, Seen(PAUSED)), subject=occasions(quiet_s=65.1)) == []


def test_what_the_whole_fleet_sees_is_not_for_one_to_go_on_with() -> None:
    with pytest.raises(ValueError, match="paused"):
        occasions().go_on("paused", 0.0)


PAUSES = {
    "it is told once": ([(0, CALM), (10, PAUSED), (20, PAUSED), (90, PAUSED)], [(10, "paused")]),
    "the cause that most share is told too": (
        [(0, CALM), (10, PAUSED), (40, SHARED), (50, SHARED)],
        [(10, "paused"), (40, "paused_shared")],
    ),
    "one that most share at once is one message": ([(0, CALM), (10, SHARED)], [(10, "paused_shared")]),
    "what was louder is not told again": (
        [(0, CALM), (10, SHARED), (40, PAUSED), (60, SHARED)],
        [(10, "paused_shared")],
    ),
    "it is over after a minute of quiet": (
        [(0, CALM), (10, PAUSED), (20, CALM), (50, CALM), (79, CALM), (80, CALM), (90, CALM)],
        [(10, "paused"), (80, "-paused")],
    ),
    "the next trial ends it": ([(0, CALM), (10, PAUSED), (20, TRIED), (80, TRIED)], [(10, "paused"), (80, "-paused")]),
    "flapping is one spell": (
        [(0, CALM), (10, PAUSED), (20, CALM), (70, PAUSED), (80, CALM), (130, PAUSED), (140, CALM), (200, CALM)],
        [(10, "paused"), (200, "-paused")],
    ),
    "what is not known is no quiet": (
        [(0, CALM), (10, PAUSED), (20, CALM), (50, AWAY), (80, CALM), (100, CALM), (140, CALM)],
        [(10, "paused"), (140, "-paused")],
    ),
    "the next spell is told again": (
        [(0, CALM), (10, PAUSED), (20, CALM), (80, CALM), (90, PAUSED)],
        [(10, "paused"), (80, "-paused"), (90, "paused")],
    ),
    "who comes late was told by others": ([(0, PAUSED), (10, PAUSED), (20, SHARED)], [(20, "paused_shared")]),
    "and tells the end with them": ([(0, PAUSED), (10, CALM), (70, CALM)], [(70, "-paused")]),
    "so does who was away for long": (
        [(0, CALM), (10, AWAY), (100, PAUSED), (110, CALM), (170, CALM)],
        [(170, "-paused")],
    ),
    "not who missed a beat or two": ([(0, CALM), (10, AWAY), (30, PAUSED)], [(30, "paused")]),
}


@pytest.mark.parametrize(("rows", "expected"), PAUSES.values(), ids=PAUSES)
def test_paused(rows: list[tuple[float, Fleet | Unknown]], expected: list[tuple[float, str]]) -> None:
    assert told(*fleets(*rows)) == expected


BUDGET = {
    "a single cull is quiet": ([(0, 0), (10, 1), (20, 0)], 10, []),
    "however small the budget": ([(0, 0), (10, 1), (20, 0)], 2, []),
    "each level is told": (
        [(0, 0), (10, 4), (20, 5), (30, 7), (40, 8), (50, 9), (60, 10)],
        10,
        [(20, "budget_50"), (40, "budget_80"), (60, "budget_empty")],
    ),
    "a jump is one message": ([(0, 1), (10, 10)], 10, [(10, "budget_empty")]),
    "there is one end": (
        [(0, 1), (10, 10), (100, 9), (200, 6), (300, 4), (330, 3), (360, 3)],
        10,
        [(10, "budget_empty"), (360, "-budget")],
    ),
    "hovering is not told again": ([(0, 0), (10, 5), (20, 4), (30, 5), (40, 4), (50, 5)], 10, [(10, "budget_50")]),
    "no budget is no news": ([(0, 0), (10, 0)], 0, []),
}


@pytest.mark.parametrize(("rows", "capacity", "expected"), BUDGET.values(), ids=BUDGET)
def test_budget(rows: list[tuple[float, int]], capacity: int, expected: list[tuple[float, str]]) -> None:
    assert told(*budgets(*rows, capacity=capacity)) == expected


def test_budget_of_one_is_empty_when_it_refuses_somebody() -> None:
    rows = [(0.0, Seen(CALM, 0, 1)), (5.0, Seen(CALM, 1, 1)), (10.0, Seen(CALM, 1, 1, refused=True))]
    assert told(*rows) == [(10, "budget_empty")]


REST = {
    "paused: each further cause is louder": (
        fleets((0, CALM), (10, PAUSED), (20, BOTH)),
        [(10, "paused"), (20, "paused")],
    ),
    "paused: one cause less is not the end": (
        fleets((0, CALM), (10, BOTH), (20, PAUSED), (90, CALM), (150, CALM)),
        [(10, "paused"), (150, "-paused")],
    ),
    "paused: the cause that most share is louder than any number of others": (
        fleets((0, CALM), (10, BOTH), (20, SHARED)),
        [(10, "paused"), (20, "paused_shared")],
    ),
    "hold: set and over": (
        fleets((0, CALM), (10, Fleet(9, hold=Hold("ann", "deploy", 99.0))), (20, CALM), (80, CALM)),
        [(10, "hold"), (80, "-hold")],
    ),
    "redis: not before five minutes": (
        fleets((0, CALM), (10, AWAY), (299, AWAY), (301, AWAY), (400, AWAY), (410, CALM), (470, CALM)),
        [(301, "redis_unknown"), (470, "-redis")],
    ),
    "redis: a fresh sidecar waits as long": (
        fleets((100, AWAY), (399, AWAY), (400, AWAY)),
        [(400, "redis_unknown")],
    ),
    "redis: a clear answer begins anew": (fleets((0, AWAY), (200, CALM), (310, AWAY), (490, AWAY)), []),
    "not honoured: longer than it may": (
        [(0, Seen(CALM)), (10, Seen(CALM, kept_s=300)), (11, Seen(CALM, kept_s=301)), (90, Seen(CALM, kept_s=380))],
        [(11, "not_honoured")],
    ),
    "not honoured: over at once when it leaves": (
        [(11, Seen(CALM, kept_s=301)), (12, Seen(CALM, is_leaving=True))],
        [(11, "not_honoured"), (12, "-not_honoured")],
    ),
    "not honoured: a silent minute is over too": (
        [(11, Seen(CALM, kept_s=301)), (12, Seen(CALM)), (72, Seen(CALM))],
        [(11, "not_honoured"), (72, "-not_honoured")],
    ),
    "nothing known, nothing told": ([(0, Seen()), (1000, Seen())], []),
}


@pytest.mark.parametrize(("rows", "expected"), REST.values(), ids=REST)
def test_rest(rows: list[tuple[float, Seen]], expected: list[tuple[float, str]]) -> None:
    assert told(*rows) == expected


@pytest.mark.parametrize(("drain_s", "expected"), [(10, 300), (100, 300), (200, 600)])
def test_container_may_stay_for_five_minutes_or_three_drains(drain_s: float, expected: float) -> None:
    assert honour_s(drain_s) == expected


def first(rows: list[tuple[float, Seen]], **options: float) -> Occasion:
    subject = occasions(**options)
    return next(one for now, seen in rows for one in subject.look(now, seen))


def test_every_sidecar_claims_the_same_word_for_the_same_spell() -> None:
    early = first(fleets((0, CALM), (10, PAUSED)))
    late = first(fleets((3, CALM), (21, PAUSED)))
    assert early.claim == late.claim == "message:paused:1"


def test_claims_of_a_level_and_of_the_end_differ() -> None:
    subject = occasions()
    rows = fleets((0, CALM), (10, PAUSED), (20, SHARED), (30, CALM), (90, CALM))
    claims = [one.claim for now, seen in rows for one in subject.look(now, seen)]
    assert claims == ["message:paused:1", "message:paused:101", "message:paused:over"]


def test_claim_never_outlasts_the_quiet_between_two_spells() -> None:
    assert first(fleets((0, CALM), (10, PAUSED)), quiet_s=90.0).claim_s == 90.0


def test_hold_of_one_instance_is_another_than_that_of_the_service() -> None:
    one = first(fleets((0, CALM), (10, Fleet(9, hold=Hold("ann", "look", 99.0, "b")))))
    assert (one.instance, one.claim) == ("b", "message:hold:1:b")


def test_what_is_no_longer_known_is_not_said_to_last() -> None:
    subject = occasions()
    told(*budgets((0, 4), (10, 10)), subject=subject)
    subject.look(100, Seen(CALM))
    assert subject.ongoing == []


def test_level_that_was_told_long_ago_does_not_silence_the_next_one() -> None:
    rows = [*budgets((0, 4), (10, 10)), (20.0, Seen(CALM)), *budgets((500, 5), (510, 8))]
    assert told(*rows) == [(10, "budget_empty"), (510, "budget_80")]


def test_what_lasts_is_shown_as_it_is_now() -> None:
    subject = occasions()
    told(*budgets((0, 4), (10, 10), (20, 6)), subject=subject)
    assert [(one.word, one.since) for one in subject.ongoing] == [("budget_50", 10)]


@pytest.mark.parametrize("topic", LEVELS)
def test_each_topic_grows_louder(topic: str) -> None:
    order = [list(Severity).index(severity) for _, severity in LEVELS[topic]]
    assert order == sorted(order)


@pytest.mark.parametrize(
    ("fleet", "sentence", "facts"),
    [
        (
            PAUSED,
            "Culls for redis did not help: they are paused for 9m. An engineer has to look.",
            {"causes": "redis", "paused_s": 540, "alive": 10, "suspect": 1},
        ),
        (
            BOTH,
            "Culls for disk, redis did not help: they are paused for 9m. An engineer has to look.",
            {"causes": "disk, redis", "paused_s": 540, "alive": 10, "suspect": 2},
        ),
        (
            SHARED,
            (
                "Culls for redis did not help: they are paused for 9m. "
                "Most of the 6 suspects of 10 containers share one cause: redis. An engineer has to look."
            ),
            {"causes": "redis", "paused_s": 540, "alive": 10, "suspect": 6, "cause": "redis"},
        ),
    ],
    ids=["one", "two", "shared"],
)
def test_pause_is_told_with_its_causes_and_how_long(fleet: Fleet, sentence: str, facts: dict[str, object]) -> None:
    told_of = first(fleets((0, CALM), (10, fleet)))
    assert (told_of.sentence, told_of.facts) == (sentence, facts)
