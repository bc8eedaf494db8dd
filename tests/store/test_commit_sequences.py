"""Whatever commits ask for, in any order and by any clock: both stores answer alike, and the bound stands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hypothesis import given, settings
from hypothesis import strategies as st

from harness.stores import CULL, EXPIRY_US, HOLD, S, look
from sidecar.core.fleet.records import HoldRow
from sidecar.core.fleet.view import Edits
from sidecar.core.types import Entry
from sidecar.store.protocol import Conflict, Over
from store.conftest import Clock, assert_stores_agree

if TYPE_CHECKING:
    from harness.redis_server import RedisServer
    from sidecar.store.protocol import Store

Step = tuple[float, int, Edits]
"""Seconds that pass, by how much the revision is off, and what is to be written."""

WINDOW_US: Final = 60 * S
CAPACITY: Final = 2
MOST: Final = 4

CLAIMS: Final = st.sampled_from(["", "a", "b", "c", "d", "e"])
HOLDS: Final = st.dictionaries(st.sampled_from(["", "a"]), st.sampled_from([None, HOLD, HoldRow("\ud800")]), max_size=2)
CULLS: Final = st.dictionaries(st.sampled_from(["", "a"]), st.sampled_from([None, CULL]), max_size=2)
EDITS: Final = st.builds(
    Edits,
    culls=CULLS,
    holds=HOLDS,
    grant=CLAIMS,
    window_us=st.just(WINDOW_US),
    capacity=st.just(CAPACITY),
    most=st.just(MOST),
    refund=st.lists(CLAIMS, max_size=2),
    entries=st.lists(st.sampled_from([Entry("helped", 1.0), Entry("unclear", 1.0, once="x")]), max_size=2),
)
STEPS_S: Final = [0.0, 0.0, 0.0, 1.0, 30.0, 60.0, 61.0, 121.0]
STEPS: Final = st.lists(
    st.tuples(st.sampled_from([*STEPS_S, -1.0, -45.0, -3600.0]), st.sampled_from([0, 0, 0, 1]), EDITS), max_size=25
)


async def answers(store: Store, steps: list[Step], clock: Clock) -> list[object]:
    """What the store answers to each commit, and what it holds then; no window has more grants than the most.

    A window passes by the clock of the process, which never stands still or goes back: that of the store may.
    """
    found: list[object] = []
    granted, passed_us = dict[str, int](), 0
    for step_s, off, edits in steps:
        clock.advance(step_s)
        passed_us += round(max(step_s, 0.0) * S)
        revision = (await look(store)).revision
        try:
            found.append(await store.commit(revision + off, edits))
        except (Conflict, Over) as answer:
            found.append(type(answer))
        else:
            granted |= {edits.grant: passed_us} if edits.grant else {}
        assert sum(at >= passed_us - WINDOW_US for at in granted.values()) <= MOST
        view = await store.read("a", window_us=WINDOW_US, expiry_us=EXPIRY_US)
        assert view.refunded <= view.grants.keys()
        found += [view, [one.what for one in await store.entries(0, "", 100)]]
    return found


def test_both_stores_answer_alike_and_keep_the_bound(faketime_redis: RedisServer) -> None:
    @settings(max_examples=100)
    @given(STEPS)
    def compare(steps: list[Step]) -> None:
        assert_stores_agree(answers, steps, faketime_redis)

    compare()
