"""Any sequence of calls by sidecars with any terms is answered alike in memory and in a real Redis, word for word."""

from __future__ import annotations

from typing import Any, Final

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.claims import S
from harness.stories import Forget, Freeze, Release, Resign, Step, tell
from harness.twins import START_US, World
from sidecar.core.terms import HALF, Share, Terms
from sidecar.core.words import Beat, Claim, Lease, Presence

NAMES: Final = ("a", "b", "c", "d", "\0|2\u00e9\ud800", "")
LIVES: Final = st.sampled_from("1112")
HOLDERS: Final = st.sampled_from(("h", "h", "i", "1"))
ABOUT: Final = st.sampled_from(("", "", "up|7|1|100|0|5|0.9", "down|8|%7C|0|5|5|", "\0\u00e9"))
KINDS: Final = st.sampled_from(("redis", "redis", "redis", "di|sk"))
LEAPS_S: Final = (
    0,
    0.000001,
    1,
    5,
    10,
    20,
    30,
    30.000001,
    60,
    60.000001,
    600,
    600.000001,
    1200.000001,
    3600.000001,
    -700,
)


@st.composite
def terms(draw: st.DrawFn) -> Terms:
    """Terms under which much happens soon."""

    def one_of(*values: Any) -> Any:
        return draw(st.sampled_from(values))

    def is_so() -> bool:
        return draw(st.integers(0, 2)) == 0

    servers = one_of(1, 1, 2)
    return Terms(
        strategy=one_of("log", "log", "previous"),
        capacity=one_of(Share(1), Share(2), Share(4), HALF),
        window_us=one_of(600 * S, 60 * S),
        min_healthy=one_of(Share(0), Share(0), Share(1), HALF, Share(333, is_part=True)),
        never_last=is_so(),
        spacing_us=one_of(0, 0, 5 * S),
        brake=one_of(0, 500, 1000),
        probation_us=one_of(S, 5 * S, 60 * S),
        useless_after=one_of(0, 1, 2),
        earn_max=one_of(-1, 0, 2),
        lost_is_empty=is_so(),
        beat_us=one_of(10 * S, 20 * S),
        index=draw(st.integers(0, servers - 1)),
        servers=servers,
    )


def claims(name: str) -> st.SearchStrategy[Claim]:
    return st.builds(lambda token, life, kind: Claim(name + token, name, life, kind), LIVES, LIVES, KINDS)


def beats(name: str) -> st.SearchStrategy[Beat]:
    presence = st.sampled_from((*Presence, Presence.WELL, Presence.WELL, Presence.WANTS))
    tokens = st.one_of(st.just(""), LIVES.map(lambda token: name + token))
    leases = st.one_of(st.just(""), st.just(""), HOLDERS)
    return st.builds(Beat, st.just(name), LIVES, presence, KINDS, tokens, st.booleans(), leases, ABOUT)


def leases(name: str) -> st.SearchStrategy[Lease]:
    slots = st.sampled_from(("1", "1", "2", "3", "100p", "500p"))
    return st.builds(Lease, HOLDERS, st.just(name), LIVES, slots, st.sampled_from((0.000001, 30, 60, 600, 3600)))


def calls(name: str) -> st.SearchStrategy[Any]:
    scope = st.sampled_from(("", name))
    asked = st.one_of(
        claims(name),
        claims(name),
        leases(name),
        leases(name),
        st.builds(Resign, st.just(name), HOLDERS),
        *[beats(name)] * 4,
    )
    rare = st.one_of(st.builds(Freeze, st.sampled_from((0.000001, 30, 700)), scope), st.builds(Release, scope))
    return st.integers(0, 29).flatmap(lambda dice: rare if dice < 3 else st.builds(Forget) if dice == 3 else asked)


LEAPS: Final = st.one_of(
    st.just(0), st.just(0), st.sampled_from(LEAPS_S), st.integers(0, 20 * S).map(lambda us: us / S)
)
STEPS: Final = st.tuples(LEAPS, st.sampled_from(NAMES).flatmap(calls), st.integers(0, 2))


@given(fleet=st.lists(terms(), min_size=1, max_size=3), steps=st.lists(STEPS, min_size=10, max_size=50))
@settings(
    max_examples=60,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
async def test_any_sequence_is_answered_alike(fleet: list[Terms], steps: list[Any], world: World) -> None:
    world.go(START_US)
    world.forget()
    twins, redis = [world.twin(one) for one in fleet], [world.redis(one) for one in fleet]
    at_s = 0.0
    for leap_s, call, number in steps:
        at_s, by = at_s + leap_s, number % len(fleet)
        answers = await tell(world, [twins[by], redis[by]], Step(at_s, call))
        assert answers[1:] == answers[:1]
    assert await redis[0].entries(0, "", 1000) == await twins[0].entries(0, "", 1000)
    for twin, budget in zip(twins, redis, strict=True):
        assert await budget.roll() == await twin.roll()
        await budget.aclose()
