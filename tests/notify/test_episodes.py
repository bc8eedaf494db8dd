"""When people are notified: episodes, their levels and their ends, row by row."""

from __future__ import annotations

import pytest

from sidecar.core.life.delays import honour_s
from sidecar.core.types import CauseTrial, Entry, Fleet, Hold, Unknown
from sidecar.notify.episodes import Episodes, Notification
from sidecar.notify.rules import LEVELS, Observation, Severity

CALM = Fleet(10)
DISK = CauseTrial("disk", 1, 0, 60.0, 1)
REDIS = CauseTrial("redis", 1, 0, 540.0, 1)
PAUSED = Fleet(10, suspect=1, trials=(REDIS,))
BOTH = Fleet(10, suspect=2, trials=(DISK, REDIS))
SHARED = Fleet(10, suspect=6, cause="redis", trials=(REDIS,))
TRIED = Fleet(10, suspect=6, cause="redis", trials=(CauseTrial("redis", 1, 1, 0.0, 1),))
OVER = Fleet(10, trials=(CauseTrial("redis", 1, 0, 0.0, 1),))
HELPED = Fleet(10, suspect=3, cause="redis", trials=(CauseTrial("redis", 2, 0, 0.0, 0),))
AWAY = Unknown("timeout")
FAILED = Entry("action_failed", 5.0, "a", reason="command", detail="the command ended with exit code 5\nunit not found")


def episodes(**options: float) -> Episodes:
    return Episodes("a", **{"honour_s": 300.0, **options})


def notified(*rows: tuple[float, Observation], subject: Episodes | None = None) -> list[tuple[float, str]]:
    """When each word is due; a recovery as ``-topic``."""
    subject = subject or episodes()
    return [
        (now, f"-{one.topic}" if one.is_over else one.word)
        for now, observation in rows
        for one in subject.look(now, observation)
    ]


def fleets(*rows: tuple[float, Fleet | Unknown]) -> list[tuple[float, Observation]]:
    return [(now, Observation(answer)) for now, answer in rows]


def budgets(*rows: tuple[float, int], capacity: int = 10) -> list[tuple[float, Observation]]:
    return [(now, Observation(CALM, used, capacity)) for now, used in rows]


def test_condition_of_the_first_look_is_no_news_at_any_time_of_the_clock() -> None:
    """With 65.1 s of quiet, as three beats of 21.7 s give, rounding would make four of five instants news."""
    for number in range(1, 100):
        assert notified((1000.123 * number, Observation(PAUSED)), subject=episodes(quiet_s=65.1)) == []


PAUSES = {
    "it is sent once": ([(0, CALM), (10, PAUSED), (20, PAUSED), (90, PAUSED)], [(10, "paused")]),
    "the cause that most share is sent too": (
        [(0, CALM), (10, PAUSED), (40, SHARED), (50, SHARED)],
        [(10, "paused"), (40, "paused_shared")],
    ),
    "one that most share at once is one message": ([(0, CALM), (10, SHARED)], [(10, "paused_shared")]),
    "a level that was higher before is not sent again": (
        [(0, CALM), (10, SHARED), (40, PAUSED), (60, SHARED)],
        [(10, "paused_shared")],
    ),
    "it is over after a minute of quiet": (
        [(0, CALM), (10, PAUSED), (20, CALM), (50, CALM), (79, CALM), (80, CALM), (90, CALM)],
        [(10, "paused"), (80, "-paused")],
    ),
    "the end of the pause is no end while containers are suspect": (
        [(0, CALM), (10, PAUSED), (20, TRIED), (80, TRIED), (90, PAUSED), (100, TRIED), (200, TRIED)],
        [(10, "paused")],
    ),
    "it is over when nobody is suspect, although the last cull did not help": (
        [(0, CALM), (10, PAUSED), (20, TRIED), (80, OVER), (140, OVER)],
        [(10, "paused"), (140, "-paused")],
    ),
    "it is over when a cull helps": (
        [(0, CALM), (10, PAUSED), (20, TRIED), (80, HELPED), (140, HELPED)],
        [(10, "paused"), (140, "-paused")],
    ),
    "flapping is one episode": (
        [(0, CALM), (10, PAUSED), (20, CALM), (70, PAUSED), (80, CALM), (130, PAUSED), (140, CALM), (200, CALM)],
        [(10, "paused"), (200, "-paused")],
    ),
    "an unknown level is no quiet": (
        [(0, CALM), (10, PAUSED), (20, CALM), (50, AWAY), (80, CALM), (100, CALM), (140, CALM)],
        [(10, "paused"), (140, "-paused")],
    ),
    "the next episode is sent again": (
        [(0, CALM), (10, PAUSED), (20, CALM), (80, CALM), (90, PAUSED)],
        [(10, "paused"), (80, "-paused"), (90, "paused")],
    ),
    "a sidecar that starts late leaves it to the others": (
        [(0, PAUSED), (10, PAUSED), (20, SHARED)],
        [(20, "paused_shared")],
    ),
    "and sends the end with them": ([(0, PAUSED), (10, CALM), (70, CALM)], [(70, "-paused")]),
    "so does a sidecar that was away for long": (
        [(0, CALM), (10, AWAY), (100, PAUSED), (110, CALM), (170, CALM)],
        [(170, "-paused")],
    ),
    "also one that was away for exactly a minute": ([(0, CALM), (10, AWAY), (60, PAUSED)], []),
    "but not one that missed a beat or two": ([(0, CALM), (10, AWAY), (30, PAUSED)], [(30, "paused")]),
}


@pytest.mark.parametrize(("rows", "expected"), PAUSES.values(), ids=PAUSES)
def test_paused(rows: list[tuple[float, Fleet | Unknown]], expected: list[tuple[float, str]]) -> None:
    assert notified(*fleets(*rows)) == expected


BUDGET = {
    "a single cull is quiet": ([(0, 0), (10, 1), (20, 0)], 10, []),
    "however small the budget": ([(0, 0), (10, 1), (20, 0)], 2, []),
    "each level is sent": (
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
    "hovering is not sent again": ([(0, 0), (10, 5), (20, 4), (30, 5), (40, 4), (50, 5)], 10, [(10, "budget_50")]),
    "no budget is no news": ([(0, 0), (10, 0)], 0, []),
}


@pytest.mark.parametrize(("rows", "capacity", "expected"), BUDGET.values(), ids=BUDGET)
def test_budget(rows: list[tuple[float, int]], capacity: int, expected: list[tuple[float, str]]) -> None:
    assert notified(*budgets(*rows, capacity=capacity)) == expected


def test_budget_of_one_is_empty_when_a_claim_is_refused() -> None:
    rows = [
        (0.0, Observation(CALM, 0, 1)),
        (5.0, Observation(CALM, 1, 1)),
        (10.0, Observation(CALM, 1, 1, refused=True)),
    ]
    assert notified(*rows) == [(10, "budget_empty")]


REST = {
    "paused: each further cause is a higher level": (
        fleets((0, CALM), (10, PAUSED), (20, BOTH)),
        [(10, "paused"), (20, "paused")],
    ),
    "paused: one cause less is not the end": (
        fleets((0, CALM), (10, BOTH), (20, PAUSED), (90, CALM), (150, CALM)),
        [(10, "paused"), (150, "-paused")],
    ),
    "paused: the cause that most share is above any number of others": (
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
    "not honoured: longer than allowed": (
        [
            (0, Observation(CALM)),
            (10, Observation(CALM, kept_s=300)),
            (11, Observation(CALM, kept_s=301)),
            (90, Observation(CALM, kept_s=380)),
        ],
        [(11, "not_honoured")],
    ),
    "not honoured: over at once when it leaves": (
        [(11, Observation(CALM, kept_s=301)), (12, Observation(CALM, is_leaving=True))],
        [(11, "not_honoured"), (12, "-not_honoured")],
    ),
    "not honoured: a silent minute is over too": (
        [(11, Observation(CALM, kept_s=301)), (12, Observation(CALM)), (72, Observation(CALM))],
        [(11, "not_honoured"), (72, "-not_honoured")],
    ),
    "action: once, and over as soon as the container is not down any more": (
        [
            (0, Observation(CALM, failed_action=FAILED)),
            (90, Observation(AWAY, failed_action=FAILED)),
            (91, Observation(CALM)),
            (92, Observation(CALM, failed_action=FAILED)),
        ],
        [(0, "action_failed"), (91, "-action"), (92, "action_failed")],
    ),
    "nothing known, nothing sent": ([(0, Observation()), (1000, Observation())], []),
}


@pytest.mark.parametrize(("rows", "expected"), REST.values(), ids=REST)
def test_rest(rows: list[tuple[float, Observation]], expected: list[tuple[float, str]]) -> None:
    assert notified(*rows) == expected


@pytest.mark.parametrize(("drain_s", "expected"), [(10, 300), (100, 300), (200, 600)])
def test_container_may_stay_for_five_minutes_or_three_drains(drain_s: float, expected: float) -> None:
    assert honour_s(drain_s) == expected


def first(rows: list[tuple[float, Observation]], **options: float) -> Notification:
    subject = episodes(**options)
    return next(one for now, observation in rows for one in subject.look(now, observation))


def test_every_sidecar_claims_the_same_word_for_the_same_episode() -> None:
    early = first(fleets((0, CALM), (10, PAUSED)))
    late = first(fleets((3, CALM), (21, PAUSED)))
    assert early.claim == late.claim == "message:paused:1"


def test_claims_of_a_level_and_of_the_end_differ() -> None:
    subject = episodes()
    rows = fleets((0, CALM), (10, PAUSED), (20, SHARED), (30, CALM), (90, CALM))
    claims = [one.claim for now, observation in rows for one in subject.look(now, observation)]
    assert claims == ["message:paused:1", "message:paused:101", "message:paused:over"]


def test_claim_never_outlasts_the_quiet_between_two_episodes() -> None:
    assert first(fleets((0, CALM), (10, PAUSED)), quiet_s=90.0).claim_s == 90.0


def test_hold_of_one_instance_is_not_the_hold_of_the_service() -> None:
    one = first(fleets((0, CALM), (10, Fleet(9, hold=Hold("ann", "look", 99.0, "b")))))
    assert (one.instance, one.claim) == ("b", "message:hold:1:b")


def test_unknown_condition_is_not_ongoing() -> None:
    subject = episodes()
    notified(*budgets((0, 4), (10, 10)), subject=subject)
    subject.look(100, Observation(CALM))
    assert subject.ongoing == []


def test_old_level_does_not_silence_the_next_one() -> None:
    rows = [*budgets((0, 4), (10, 10)), (20.0, Observation(CALM)), *budgets((500, 5), (510, 8))]
    assert notified(*rows) == [(10, "budget_empty"), (510, "budget_80")]


def test_ongoing_condition_is_as_it_is_now() -> None:
    subject = episodes()
    notified(*budgets((0, 4), (10, 10), (20, 6)), subject=subject)
    assert [(one.word, one.since) for one in subject.ongoing] == [("budget_50", 10)]


@pytest.mark.parametrize("topic", LEVELS)
def test_severity_rises_with_the_words_of_a_topic(topic: str) -> None:
    order = [list(Severity).index(severity) for _, severity in LEVELS[topic]]
    assert order == sorted(order)


def test_failed_action_is_told_on_one_line_with_what_is_left_to_restart_the_container() -> None:
    found = first([(0.0, Observation(CALM, failed_action=FAILED))])
    assert found.sentence == (
        "The action command of a failed: the command ended with exit code 5 unit not found. The container is out of "
        "service, and the sidecar does not repeat the action: only the failing check (503) is left to restart it."
    )
    assert found.facts == {
        "instance": "a",
        "action": "command",
        "result": "the command ended with exit code 5 unit not found",
    }


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
def test_pause_names_its_causes_and_its_time(fleet: Fleet, sentence: str, facts: dict[str, object]) -> None:
    found = first(fleets((0, CALM), (10, fleet)))
    assert (found.sentence, found.facts) == (sentence, facts)
