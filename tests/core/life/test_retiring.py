"""Stories of planned ends: when the lease is asked for, what it leads to, and when it is given back."""

from __future__ import annotations

from math import inf

import pytest

from harness.cases import cases
from harness.containers import (
    AGING,
    BUSY,
    DENIED,
    DOWN,
    DRAINING,
    FINE,
    GRANTED,
    LEASE,
    ORDERED,
    REPLAYED,
    RETIRING,
    REVIVED,
    SICK,
    SUSPECT,
    UNKNOWN,
    UP,
    asks,
    begun,
    claim,
    lease,
    lease_wishes,
    leased,
    retired,
    retiring,
    step,
)
from sidecar.core.app_reports import Load
from sidecar.core.claims import NO_IDENTITY, Answer, Denied, LeaseRequest, RandomIdentity
from sidecar.core.life.container import Container, resume
from sidecar.core.life.events import (
    Answered,
    AppRestarted,
    ClearWindow,
    GiveBack,
    SaveIncarnation,
    Trigger,
)
from sidecar.core.life.retiring import due_at, is_due
from sidecar.core.types import Latch, Policy, State

ASK, RELEASE = lease(), GiveBack("lease-1")
PATIENT = AGING._replace(busy_load=0.5)
Row = tuple[float, Trigger | Answer, State, list[LeaseRequest | GiveBack]]
"""Second, what happens (an answer is that to our lease), the state it leads to, and what is wished of the lease."""


def check_story(rows: list[Row], policy: Policy = AGING, container: Container | None = None) -> Container:
    """Every row leads where it says; where all of them lead to."""
    container = container or begun(policy)
    for now, happened, state, wishes in rows:
        event = leased(happened) if isinstance(happened, Answer) else happened
        container, effects = step(container, event, now, policy)
        assert (container.state, lease_wishes(effects)) == (state, wishes), f"at {now} s"
        assert not asks(effects) or state is SUSPECT
    return container


DUE: list[Row] = [(0, FINE, UP, []), (99.9, FINE, UP, []), (100, FINE, RETIRING, [ASK])]
"""Retiring from second 100 on."""


@cases(
    "policy, rows",
    {
        "drains and goes down": (
            AGING,
            [(105, GRANTED, DRAINING, []), (114, FINE, DRAINING, []), (115, FINE, DOWN, [])],
        ),
        "granted again after a lost answer": (AGING, [(105, REPLAYED, DRAINING, []), (115, SICK, DOWN, [])]),
        "idle ends the drain": (AGING, [(105, GRANTED, DRAINING, []), (109, FINE._replace(idle_at=109), DOWN, [])]),
        "without a drain down at once": (AGING._replace(drain_s=0.0), [(105, GRANTED, DOWN, [])]),
        "asks once while the request is on its way": (
            AGING,
            [(101, FINE, RETIRING, []), (104, FINE, RETIRING, []), (105, GRANTED, DRAINING, [])],
        ),
        "denied asks again at the next check": (
            AGING,
            [(105, DENIED, RETIRING, []), (114.9, FINE, RETIRING, []), (115, FINE, RETIRING, [ASK])],
        ),
        "or sooner if that may help": (
            AGING,
            [(105, Denied("slots", 1, 1, 4.0), RETIRING, []), (109, FINE, RETIRING, [ASK])],
        ),
        "unknown asks again after a second": (
            AGING,
            [(105, UNKNOWN, RETIRING, []), (106, FINE, RETIRING, [ASK]), (107, GRANTED, DRAINING, [])],
        ),
        "unknown backs off, a clear answer ends that": (
            AGING,
            [
                (105, UNKNOWN, RETIRING, []),
                (106, FINE, RETIRING, [ASK]),
                (106, UNKNOWN, RETIRING, []),
                (107.9, FINE, RETIRING, []),
                (108, FINE, RETIRING, [ASK]),
                (108, DENIED, RETIRING, []),
                (118, FINE, RETIRING, [ASK]),
                (118, UNKNOWN, RETIRING, []),
                (119, FINE, RETIRING, [ASK]),
            ],
        ),
    },
)
def test_due_container_goes_under_a_lease_and_never_without(policy: Policy, rows: list[Row]) -> None:
    check_story([*DUE, *rows], policy)


def test_retired_container_is_latched_without_a_token_and_says_how_old_it_was() -> None:
    container, effects = step(retiring(), leased(GRANTED), 21_720.0, AGING._replace(lifetime_s=21_600.0))
    assert container.latch == Latch("", 1_000.0, "retired at age 6h 2m, its lifetime is 6h", lease="lease-1")
    assert effects == (SaveIncarnation(),)
    assert (container.asked, container.would_culls) == (False, 0)


# -- busy containers live longer ------------------------------------------------------------------------------


@cases(
    "rows",
    {
        "goes as soon as it is idle": [(100, BUSY, UP, []), (150, BUSY, UP, []), (150.1, FINE, RETIRING, [ASK])],
        "busy again gives up what it may have": [
            *DUE, (105, UNKNOWN, RETIRING, []), (105.5, BUSY, UP, [RELEASE]), (107, FINE, RETIRING, [ASK])
        ],
        "and nothing that it was denied": [
            *DUE, (105, DENIED, RETIRING, []), (106, BUSY, UP, []), (107, FINE, RETIRING, [ASK])
        ],
        "a lease that comes too late is given back": [
            *DUE, (101, BUSY, UP, []), (102, GRANTED, UP, [RELEASE]), (110, FINE, RETIRING, [ASK])
        ],
        "and so is one that may have come": [*DUE, (101, BUSY, UP, []), (102, UNKNOWN, UP, [RELEASE])],
        "one that did not come is not": [*DUE, (101, BUSY, UP, []), (102, DENIED, UP, [])],
        "one request at a time": [
            *DUE, (101, BUSY, UP, []), (102, FINE, UP, []), (103, DENIED, UP, []), (104, FINE, RETIRING, [ASK])
        ],
        "busy too late": [*DUE, (105, DENIED, RETIRING, []), (200, BUSY, RETIRING, [ASK])],
    },
)  # fmt: skip
def test_busy_container_is_left_alone_until_its_maximum(rows: list[Row]) -> None:
    check_story(rows, PATIENT)


def test_retirement_that_begins_anew_knows_no_answer_of_the_last_one() -> None:
    container = check_story([*DUE, (105, DENIED, RETIRING, []), (106, BUSY, UP, [])], PATIENT)
    assert container.lease_answer == DENIED
    assert step(container, FINE, 107.0, PATIENT)[0].lease_answer is None


# -- culls come first -----------------------------------------------------------------------------------------


# -- nobody came to replace it --------------------------------------------------------------------------------

GONE: list[Row] = [*DUE, (105, GRANTED, DRAINING, []), (115, FINE, DOWN, [])]


def test_retired_container_that_nobody_replaces_is_up_again_and_tries_again_a_quarter_later() -> None:
    container = check_story([*GONE, (164.9, FINE, DOWN, []), (165, SICK, UP, [RELEASE])])
    assert (container.latch, container.verdict, container.lease_ends, container.due) == (None, None, None, None)
    assert container.incarnation == "one"
    check_story([(189.9, FINE, UP, []), (190, FINE, RETIRING, [ASK])], container=container)


def test_lease_that_was_granted_before_by_a_lost_answer_lasts_as_long_as_the_store_says() -> None:
    again = GRANTED._replace(replayed=True, left_s=25.0)
    container, _ = step(retiring(), leased(again, took_s=1.0), 102.0, AGING)
    assert (container.state, container.lease_ends) == (DRAINING, 126.0)
    assert container.latch is not None
    after = resume(begun(AGING), container.latch, 500.0, 14.0, AGING)
    assert (after.state, after.lease_ends) == (DOWN, 510.0)


def test_lease_that_was_granted_for_longer_than_is_set_now_ends_when_the_setting_says() -> None:
    container, _ = step(retiring(), leased(GRANTED._replace(replayed=True, left_s=600.0)), 102.0, AGING)
    assert container.lease_ends == 102.0 + AGING.retire_timeout_s


def test_lease_that_is_nearly_over_is_given_back_and_asked_for_anew() -> None:
    container, effects = step(retiring(), leased(GRANTED._replace(left_s=10.5), took_s=0.5), 100.5, AGING)
    assert (container.state, container.latch, effects) == (RETIRING, None, (RELEASE,))
    assert container.due == 100.5 + AGING.check_interval_s


@cases(
    "gone_s, state, due, ends",
    {
        "at once": (0, DRAINING, 510, 560),
        "in its drain": (4, DRAINING, 506, 556),
        "down": (10, DOWN, 550, 550),
        "down for a second": (59, DOWN, 501, 501),
        "its time is over": (60, DOWN, 500, 500),
        "long over": (10**9, DOWN, 500 - 10**9 + 60, 500 - 10**9 + 60),
        "clock went back": (-30, DRAINING, 510, 560),
    },
)
def test_restarted_sidecar_goes_on_with_what_is_left(gone_s: float, state: State, due: float, ends: float) -> None:
    container = resume(begun(AGING), LEASE, 500.0, gone_s, AGING)
    assert (container.state, container.due, container.lease_ends, container.lease) == (state, due, ends, "lease-1")
    container, _ = step(container, FINE, max(due, 500.0), AGING)
    assert container.state is (DOWN if state is DRAINING else UP)


def test_life_that_chance_gave_no_word_is_not_retired() -> None:
    check_story([(0, FINE, UP, []), (1_000, FINE, UP, [])], container=begun(AGING)._replace(identity=NO_IDENTITY))


# -- stopping, shadow, revival --------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [DRAINING, DOWN])
def test_revival_of_a_retired_container_resigns_and_leaves_it_in_peace_for_a_while(state: State) -> None:
    container, effects = step(retired()._replace(state=state), REVIVED, 120.0, AGING)
    assert effects == (ClearWindow(heart=False), RELEASE, SaveIncarnation())
    assert (container.state, container.latch, container.life) == (UP, None, "revived-1")
    assert container.identity == RandomIdentity("lease-2")
    check_story([(144.9, FINE, UP, []), (145, FINE, RETIRING, [lease("lease-2", "revived-1")])], container=container)


def test_name_that_comes_while_the_lease_is_asked_for_is_no_other_life() -> None:
    """Another life would have replaced this one for the fleet, which gives the slot of the lease to the next."""
    container, _ = step(begun(AGING, None), FINE, 0.0, AGING)
    container, effects = step(container, FINE, 100.0, AGING)
    assert effects == (lease(incarnation="-"),)
    named, effects = step(container, AppRestarted("boot-1"), 101.0, AGING)
    assert (named.app_start, named.life, effects) == ("boot-1", container.life, (SaveIncarnation(),))
    gone, _ = step(named, Answered(lease(incarnation="-"), GRANTED, 1_000.0), 102.0, AGING)
    assert (gone.state, gone.lease, gone.life) == (DRAINING, "lease-1", container.life)


def test_order_comes_before_a_retirement_whose_lease_may_have_been_granted() -> None:
    container = check_story([*DUE, (105, UNKNOWN, RETIRING, [])])
    ordered, effects = step(container, ORDERED, 105.5, AGING)
    assert (ordered.state, effects) == (SUSPECT, (RELEASE, SaveIncarnation(), claim(ordered)))


# -- when the retirement of a container is due, and which may wait ---------------------------------------------------


HOURS = Policy(lifetime_s=21_600.0)
PATIENT_HOURS = HOURS._replace(busy_load=0.5)
BUSY_LOAD, IDLE_LOAD = Load(0.8, 5.0), Load(0.5, 5.0)


def lifespan(born: float, part: float = 0.5, respite_until: float = -inf) -> Container:
    """A container that began at ``born``, ``part`` of the way through the jitter."""
    identity = RandomIdentity("holder", part)
    return Container(State.UP, born, "web/a", born=born, identity=identity, respite_until=respite_until)


MIDDLE = lifespan(1_000.0)


@cases(
    "policy, life, due",
    {
        "never without a lifetime": (Policy(), MIDDLE, None),
        "the earliest": (HOURS, lifespan(1_000.0, 0.0), 20_440.0),
        "the middle": (HOURS, lifespan(1_000.0, 0.5), 22_600.0),
        "the latest": (HOURS, lifespan(1_000.0, 1.0), 24_760.0),
        "not in its respite": (HOURS, lifespan(1_000.0, 0.5, 30_000.0), 30_000.0),
        "a respite that is over": (HOURS, lifespan(1_000.0, 0.5, 2_000.0), 22_600.0),
        "born long before the clock began": (HOURS, lifespan(-50_000.0), -28_400.0),
    },
)
def test_life_is_due_at_its_own_age(policy: Policy, life: Container, due: float | None) -> None:
    assert due_at(life, policy) == (due if due is None else pytest.approx(due))


@cases(
    "policy, now, load, expected",
    {
        "too young": (HOURS, 22_599.9, None, False),
        "old enough": (HOURS, 22_600.0, None, True),
        "being busy does not matter": (HOURS, 22_600.0, BUSY_LOAD, True),
        "a load that nobody told is none": (PATIENT_HOURS, 22_600.0, None, True),
        "just at the mark is idle": (PATIENT_HOURS, 22_600.0, IDLE_LOAD, True),
        "busy waits": (PATIENT_HOURS, 22_600.0, BUSY_LOAD, False),
        "word of a minute ago counts": (PATIENT_HOURS, 22_600.0, Load(0.8, 60.0), False),
        "older word does not": (PATIENT_HOURS, 22_600.0, Load(0.8, 60.1), True),
        "busy waits to the last": (PATIENT_HOURS, 44_199.9, BUSY_LOAD, False),
        "and no longer": (PATIENT_HOURS, 44_200.0, BUSY_LOAD, True),
        "idle but young": (PATIENT_HOURS, 10_000.0, IDLE_LOAD, False),
        "without a lifetime nobody goes": (Policy(), 1e9, None, False),
    },
)
def test_busy_waits_and_idle_goes(policy: Policy, now: float, load: Load | None, expected: object) -> None:
    assert is_due(MIDDLE, load, now, policy) is expected
