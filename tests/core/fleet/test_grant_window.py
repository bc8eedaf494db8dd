"""The gates of pace: spacing, the tokens of the window, and those that were given back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.rule_fleet import START_US, TERMS, draft_of, fleet_of_size, names, word
from sidecar.core.claims import Presence
from sidecar.core.fleet import gates, grant_window
from sidecar.core.fleet.fleet_settings import OFF, FleetSettings
from sidecar.core.fleet.gates import GateRefusal
from sidecar.core.fleet.grant_window import Bounds
from sidecar.core.fleet.records import Epoch
from sidecar.core.fleet.view import View
from sidecar.core.types import US_PER_S

S = US_PER_S
NOW = START_US
OLD = Epoch(NOW - 10**12, servers="one")
FOUR = replace(TERMS, capacity="4", window_us=600 * S)


def view(*ages_s: float, refunded: int = 0) -> View:
    """A store that granted so many seconds ago; the tokens of the first of them were given back."""
    grants = {f"{at}": NOW - round(age_s * S) for at, age_s in enumerate(ages_s)}
    return View(NOW, epoch=OLD, grants=grants, refunded=frozenset(list(grants)[:refunded]), alive=20)


@pytest.mark.parametrize(
    ("ages_s", "wait_us"),
    [([], 0), ([30], 0), ([29.999999], 1), ([0], 30 * S), ([40, 10, 500], 20 * S), ([-3600], 30 * S)],
    ids=["none", "in time", "a microsecond early", "just now", "the newest counts", "by a clock that was ahead"],
)
def test_grants_keep_their_distance(ages_s: list[float], wait_us: int) -> None:
    expected = GateRefusal("spacing", wait_us) if wait_us else None
    assert gates.by_spacing(draft_of(view(*ages_s), replace(TERMS, spacing_us=30 * S))) == expected
    assert gates.by_spacing(draft_of(view(*ages_s), TERMS)) is None


@pytest.mark.parametrize(
    ("ages_s", "refunded", "terms", "refusal", "used"),
    [
        ([60] * 3, 0, FOUR, None, 3),
        ([60] * 4, 0, FOUR, GateRefusal("window", 540 * S + 1), 4),
        ([600] * 4, 0, FOUR, GateRefusal("window", 1), 4),
        ([600.000001] * 4, 0, FOUR, None, 0),
        ([-7200] * 4, 0, FOUR, GateRefusal("window", 600 * S + 1), 4),
        ([60] * 4, 1, FOUR, GateRefusal("window", 540 * S + 1), 4),
        ([60] * 4, 1, replace(FOUR, refund_max=0), None, 3),
        ([60] * 12, 11, replace(FOUR, refund_max=0), GateRefusal("refund_max", 540 * S + 1), 1),
        ([60] * 6, 5, replace(FOUR, refund_max=6), GateRefusal("refund_max", 540 * S + 1), 1),
        ([60] * 6, 2, replace(FOUR, refund_max=6), GateRefusal("window", 540 * S + 1), 4),
        ([60] * 9, 0, replace(FOUR, strategy="fixed"), None, 9),
        ([], 0, replace(FOUR, capacity="0"), GateRefusal("window", 600 * S), 0),
    ],
    ids=[
        "one is left",
        "none is",
        "a window is closed",
        "and then over",
        "a wait is never longer than a window",
        "given back, and refunds are off",
        "given back",
        "thrice the capacity at most",
        "or what is said",
        "not given back enough",
        "the article's counter decides elsewhere",
        "a budget of none",
    ],
)
def test_tokens_of_the_window(
    ages_s: list[float], refunded: int, terms: FleetSettings, refusal: GateRefusal | None, used: int
) -> None:
    if terms.strategy == "fixed":
        ages_s = [0.0 for _ in ages_s]
    draft = draft_of(view(*ages_s, refunded=refunded), terms)
    assert gates.by_window(draft) == refusal
    assert grant_window.used(draft) == used


@pytest.mark.parametrize(
    ("terms", "bounds"),
    [
        (FOUR, Bounds(4, 4)),
        (replace(FOUR, refund_max=0), Bounds(4, 12)),
        (replace(FOUR, refund_max=9), Bounds(4, 9)),
        (replace(FOUR, strategy="previous"), Bounds(7, 0)),
        (replace(FOUR, strategy="previous", capacity="1"), Bounds(1, 0)),
        (replace(FOUR, strategy="fixed"), Bounds(0, 0)),
    ],
)
def test_store_keeps_the_bound_that_the_strategy_promises(terms: FleetSettings, bounds: Bounds) -> None:
    assert grant_window.bounds(draft_of(view(), terms)) == bounds


@pytest.mark.parametrize(("age_s", "is_granted"), [(0, True), (600, True), (600.000001, False)])
def test_grant_is_known_for_a_window(age_s: float, *, is_granted: bool) -> None:
    assert grant_window.is_granted(draft_of(view(age_s)), "0") is is_granted


# -- given back ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("refund_max", "most", "last_word"), [(OFF, 2, "window"), (5, 5, "refund_max"), (0, 6, "refund_max")]
)
def test_token_of_a_cull_that_helped_comes_back_up_to_a_limit(refund_max: int, most: int, last_word: str) -> None:
    it = fleet_of_size(10, replace(TERMS, capacity="2", refund_max=refund_max, window_us=3600 * S))
    answers = []
    for name in names(8):
        answers.append(word(it.claim(name)))
        if answers[-1] == "granted":
            it.beat(name, Presence.DOWN)
            it.replaced(name)
            it.advance_beating(70, *names(10))
    assert answers == ["granted"] * most + [last_word] * (8 - most)
