"""Whatever is asked for, in any order and by any clock: the stores answer alike, and the bound stands."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.claims import S, beat, suspect
from harness.memory_store import MemoryStore
from harness.stores import CULL, EXPIRY_US, HOLD, commit, look, send_beat
from harness.strategies import built
from sidecar.core.claims import Beat, Presence
from sidecar.core.fleet.records import HoldRow
from sidecar.core.fleet.view import Edits
from sidecar.core.types import Entry
from sidecar.store.alone import AloneStore
from sidecar.store.protocol import MAX_CAUSES, OTHER, Conflict, Over
from store.conftest import Clock, assert_stores_agree
from store.test_contract import of_a_fleet

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.redis_server import RedisServer
    from sidecar.store.protocol import Store

Step = tuple[float, Beat, str]
"""Seconds that pass, the beat, and the settings of its sidecar."""

STEPS_S: Final = [0, 0, 0, 0, 1, 10, 31, 700, -0.5, -20]

TELLING = st.builds(
    Beat,
    st.sampled_from(["a", "b", "c", "ä"]),
    st.sampled_from(["1", "2"]),
    st.sampled_from(Presence) | st.just(Presence.SUSPECT),
    st.sampled_from(["redis", "db", "", "x|y", "z\n1"]),
    errors=st.integers(0, 3),
    ratio=st.none() | st.integers(0, 3),
    refused=st.booleans(),
    about=st.sampled_from(["", "news"]),
    identity=st.sampled_from(["", "x", "y\n1"]),
)
HISTORY = st.lists(st.tuples(st.sampled_from(STEPS_S), TELLING, st.sampled_from(["old", "new"])), max_size=25)


async def answers_to_beats(store: Store, history: list[Step], clock: Clock) -> list[object]:
    """What the store answers to each beat, and what it holds and shows then, which is checked against its own rows."""
    found: list[object] = []
    for step_s, told, terms in history:
        clock.advance(step_s)
        heard = await send_beat(store, told, terms)
        view, listing = await look(store, told.instance), await store.members(most=1000, since_us=0)
        found += [heard, view, listing]
        _check([row for _, _, row, _ in listing.members], view.causes, view.control)
    return found


def _check(members: list[str], causes: Mapping[str, int], control: Mapping[str, int]) -> None:
    rows = [row.rsplit("\n", 2) for row in members]
    assert causes == Counter(cause for _, cause, _ in rows if cause)
    counts = Counter(control)
    # A cause for which there was no room any more is counted with others.
    refused = Counter(cause if f"refused|{cause}" in counts else OTHER for _, cause, flag in rows if flag == "1")
    for cause in {field.partition("|")[2] for field in counts}:
        assert counts[f"refused|{cause}"] == counts[f"recovered|{cause}"] + counts[f"ended|{cause}"] + refused[cause]


def test_counts_are_what_the_rows_say_on_both_stores(faketime_redis: RedisServer) -> None:
    @settings(max_examples=100)
    @given(HISTORY)
    def compare(history: list[Step]) -> None:
        assert_stores_agree(answers_to_beats, history, faketime_redis)

    compare()


def test_causes_beyond_the_first_are_counted_together_on_both_stores(faketime_redis: RedisServer) -> None:
    many: list[Step] = [(0, suspect(f"m{n}", f"cause {n}", refused=n % 2 == 0), "t") for n in range(MAX_CAUSES + 9)]
    again = [(0.0, told._replace(refused=True), "t") for _, told, _ in many]
    well = [(0.0, beat(told.instance), "t") for _, told, _ in many]
    history = [
        *many,
        *again,
        *well,
        (1.0, suspect("late", "new"), "t"),
        (1.0, suspect("late", "new", refused=True), "t"),
    ]
    assert_stores_agree(answers_to_beats, history, faketime_redis)


REFUSED, WELL = suspect("a", refused=True), beat("a")
ENDINGS: Final = [
    (WELL, {"recovered|redis": 1}),
    (beat("a", Presence.STARTING), {"ended|redis": 1}),
    (beat("a", life="2"), {"ended|redis": 1}),
    (beat("a", Presence.DOWN), {"ended|redis": 1}),
    (beat("a", Presence.GONE), {"ended|redis": 1}),
    (suspect("a", "db"), {"ended|redis": 1}),
    (suspect("a", "db", refused=True), {"ended|redis": 1, "refused|db": 1}),
    (suspect("a", life="2"), {"ended|redis": 1}),
    (suspect("a"), {}),
    (REFUSED, {}),
]


@of_a_fleet
@pytest.mark.parametrize(("ending", "counted"), ENDINGS)
async def test_refused_suspect_is_counted_once_and_by_how_it_ended(
    store: Store, ending: Beat, counted: dict[str, int]
) -> None:
    for told in (suspect("a"), REFUSED, suspect("a"), ending):
        await send_beat(store, told)
    assert (await look(store)).control == {"refused|redis": 1, **counted}


@given(HISTORY)
def test_store_of_a_container_alone_answers_its_own_beats_as_that_of_a_fleet_does(history: list[Step]) -> None:
    """What only a fleet has is left out, and the clock goes forward: nobody else strikes this member off."""
    of_a_fleet = {"revision": 0, "departed_us": 0, "newest_us": 0, "settings": (), "settings_texts": (), "control": {}}

    async def counts(store: Store, clock: Clock) -> list[object]:
        answers: list[object] = []
        for step_s, sent, _ in history:
            clock.advance(min(max(0.0, step_s), EXPIRY_US / S))
            grant = str(len(answers)) if step_s == 1 else ""
            refund = [str(len(answers) - 2)] if step_s == 10 else []
            await commit(store, grant=grant, refund=refund, culls={"a": CULL} if sent.refused else {})
            cause, identity = (text.replace("\n", " ") for text in (sent.cause, sent.identity))
            heard = await send_beat(store, sent._replace(instance="a", cause=cause, identity=identity))
            answers += [(heard.alive, heard.former.rpartition("\n")[0], heard.causes, heard.used, heard.median_errors)]
            answers.append((await look(store, "a"))._replace(**of_a_fleet))  # type: ignore[arg-type]  # of each field's type
        return answers

    def run(store: type[AloneStore]) -> list[object]:
        clock = Clock()
        return asyncio.run(counts(store(lambda: clock.now_us), clock))

    assert run(AloneStore) == run(MemoryStore)


async def test_container_alone_whose_clock_stepped_back_does_not_block_its_budget() -> None:
    clock = Clock()
    store = AloneStore(lambda: clock.now_us)
    await commit(store, grant="a")
    clock.advance(-3600)
    await commit(store, grant="b", refund=["a"])
    view = await look(store)
    assert view.grants == {"a": clock.now_us, "b": clock.now_us}
    assert view.refunded == {"a"}


# -- commits --------------------------------------------------------------------------------------------------------

CommitStep = tuple[float, int, Edits]
"""Seconds that pass, by how much the revision is off, and what is to be written."""

WINDOW_US: Final = 60 * S
CAPACITY: Final = 2
MOST: Final = 4

CLAIMS: Final = st.sampled_from(["", "a", "b", "c", "d", "e"])
HOLDS: Final = st.dictionaries(st.sampled_from(["", "a"]), st.sampled_from([None, HOLD, HoldRow("\ud800")]), max_size=2)
CULLS: Final = st.dictionaries(st.sampled_from(["", "a"]), st.sampled_from([None, CULL]), max_size=2)
EDITS: Final = built(
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
PAUSES_S: Final = [0.0, 0.0, 0.0, 1.0, 30.0, 60.0, 61.0, 121.0]
COMMITS: Final = st.lists(
    st.tuples(st.sampled_from([*PAUSES_S, -1.0, -45.0, -3600.0]), st.sampled_from([0, 0, 0, 1]), EDITS), max_size=25
)


async def answers_to_commits(store: Store, steps: list[CommitStep], clock: Clock) -> list[object]:
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
    @given(COMMITS)
    def compare(steps: list[CommitStep]) -> None:
        assert_stores_agree(answers_to_commits, steps, faketime_redis)

    compare()
