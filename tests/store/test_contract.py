"""What every store does: one suite over that of a container alone, of a fleet in memory, on fakeredis and on Redis."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from harness.claims import S, beat, suspect
from harness.stores import CAPACITY, CULL, EXPIRY_US, HOLD, SETTINGS, WINDOW_US, commit, look, send_beat
from sidecar.core.claims import Presence
from sidecar.core.fleet.fleet_settings import FleetSettings
from sidecar.core.fleet.records import Cull, Epoch, FleetState, HoldRow, Slot
from sidecar.core.fleet.view import Edits, View
from sidecar.core.types import Entry
from sidecar.store.alone import MAX_EVENTS, AloneStore
from sidecar.store.protocol import MAX_STRUCK, NOTED_S, SHARED_S, Conflict, Over, Store

if TYPE_CHECKING:
    from store.conftest import Clock

NOTHING = 0
EPOCH, STATE = Epoch(born_us=1), FleetState(missing=2)

of_a_fleet = pytest.mark.parametrize(
    "clocked", ["memory", "fakeredis", pytest.param("redis", marks=pytest.mark.redis)], indirect=True
)
"""What the store of a container alone does not have: other members, who may write at the same time."""

# -- read and commit --------------------------------------------------------------------------------------------


async def test_store_of_a_new_service_holds_nothing(store: Store, clock: Clock) -> None:
    view = await look(store)
    assert view == View(clock.now_us, run_id=view.run_id)


# not on fakeredis: its scripts have no INFO, so it names no process
@pytest.mark.parametrize("clocked", ["memory", pytest.param("redis", marks=pytest.mark.redis)], indirect=True)
async def test_reads_and_beats_name_the_process_of_the_server(store: Store) -> None:
    names = {(await look(store)).run_id, (await send_beat(store, beat("x"))).run_id, (await look(store)).run_id}
    assert len(names) == 1
    assert names != {""}
    assert not store.lost.is_set()


@of_a_fleet
async def test_what_was_committed_is_read_and_a_row_can_be_removed(store: Store, clock: Clock) -> None:
    names = ["", "state", "ä\x00", "\ud800", "\n|{}"]
    holds = {name: HoldRow(f"{name} ä\x00\ud800\n|{{}}", "x", 1, 2) for name in names}
    culls, leases = ({name: kind("a", name) for name in names} for kind in (Cull, Slot))
    assert await commit(store, epoch=EPOCH, state=STATE, culls=culls, leases=leases, holds=holds) == clock.now_us
    view = await look(store)
    assert (view.revision, view.epoch, view.state) == (clock.now_us, EPOCH, STATE)
    assert (view.culls, view.leases, view.holds) == (culls, leases, holds)
    gone = dict.fromkeys(names)
    await commit(store, culls=gone, leases=gone, holds=gone)
    view = await look(store)
    assert (view.revision, view.epoch, view.state) == (clock.now_us + 1, EPOCH, STATE)
    assert (view.culls, view.leases, view.holds) == ({}, {}, {})


@of_a_fleet
async def test_of_two_commits_on_one_revision_the_second_is_a_conflict_that_writes_nothing(
    store: Store, clock: Clock
) -> None:
    first, second = (Edits(holds={name: HOLD}, grant=name, window_us=WINDOW_US) for name in "ab")
    await store.commit(0, first)
    with pytest.raises(Conflict):
        await store.commit(0, second)
    view = await look(store)
    assert (view.revision, view.holds, list(view.grants)) == (clock.now_us, {"a": HOLD}, ["a"])


@of_a_fleet
async def test_revision_grows_also_when_the_clock_has_stepped_back(store: Store, clock: Clock) -> None:
    """Its time tells the commits of two processes with one copy apart: a count would come to the same number again."""
    await commit(store)
    first = (await look(store)).revision
    clock.advance(-3)
    await commit(store)
    assert (await look(store)).revision == first + 1


# -- grants -----------------------------------------------------------------------------------------------------


async def granted(store: Store, *ids: str, **changes: Any) -> list[str]:
    """Commit a grant of each, whatever the view says; those that were refused."""
    refused = []
    for one in ids:
        try:
            await commit(store, grant=one, **changes)
        except Over:
            refused.append(one)
    return refused


@of_a_fleet
async def test_commit_grants_no_more_than_the_capacity_of_any_window(store: Store, clock: Clock) -> None:
    ids = [str(number) for number in range(CAPACITY)]
    assert await granted(store, *ids) == []
    assert await granted(store, "one more", state=STATE) == ["one more"]
    clock.advance(600)
    assert await granted(store, "one more") == ["one more"]  # the window is closed
    clock.advance(0.000001)
    assert await granted(store, "one more") == []
    view = await look(store)
    assert (len(view.grants), view.state) == (CAPACITY + 1, FleetState())


@of_a_fleet
async def test_claim_that_was_granted_is_granted_anew_and_costs_nothing(store: Store, clock: Clock) -> None:
    assert await granted(store, "a", "b", capacity=2) == []
    clock.advance(400)
    assert await granted(store, "a", capacity=2) == []
    clock.advance(400)
    assert await granted(store, "c", "d", capacity=2) == ["d"]  # "b" has left the window, "a" has not
    assert (await look(store)).grants["a"] == clock.now_us - 400 * S


@of_a_fleet
async def test_renewal_is_refused_where_others_have_all_tokens(store: Store) -> None:
    assert await granted(store, "a", "b", "c") == []
    assert await granted(store, "a", capacity=2) == ["a"]
    assert await granted(store, "a", capacity=3) == []


@of_a_fleet
async def test_token_that_was_given_back_counts_only_for_the_most(store: Store, clock: Clock) -> None:
    assert await granted(store, "a", "b", capacity=2) == []
    clock.advance(1)
    await commit(store, refund=["a", "unknown"])
    view = await look(store)
    assert (set(view.grants), set(view.refunded)) == ({"a", "b"}, {"a"})
    assert (await send_beat(store, beat("x"))).used == 1
    assert await granted(store, "c", capacity=2, most=2) == ["c"]
    assert await granted(store, "c", "d", capacity=2, most=6) == ["d"]


@of_a_fleet
async def test_renewed_grant_keeps_what_was_given_back_and_a_later_one_does_not(store: Store, clock: Clock) -> None:
    assert await granted(store, "a", capacity=1) == []
    await commit(store, refund=["a"])
    clock.advance(500)
    assert await granted(store, "a", capacity=1) == []
    assert (await look(store)).refunded == {"a"}
    clock.advance(500)
    assert (await send_beat(store, beat("x"))).used == NOTHING
    clock.advance(200)
    assert await granted(store, "a", capacity=1) == []
    assert ((await look(store)).refunded, (await send_beat(store, beat("x"))).used) == (frozenset(), 1)


async def test_grants_of_two_windows_are_read_and_older_ones_forgotten(store: Store, clock: Clock) -> None:
    for claim_id in "abc":
        assert await granted(store, claim_id) == []
        await commit(store, refund=[claim_id])
        clock.advance(601)
    view = await look(store)
    assert (list(view.grants), list(view.refunded)) == (["c"], ["c"])
    assert list((await store.read("a", window_us=10 * WINDOW_US, expiry_us=EXPIRY_US)).grants) == ["b", "c"]


@of_a_fleet
async def test_clock_that_stepped_back_does_not_block_the_budget(store: Store, clock: Clock) -> None:
    clock.advance(3 * 86_400)
    assert await granted(store, "a", "b", capacity=2) == []
    await commit(store, refund=["b"])
    clock.advance(-3 * 86_400)
    assert await granted(store, "c", capacity=1) == ["c"]
    assert max((await look(store)).grants.values()) > clock.now_us
    await commit(store, epoch=EPOCH)
    assert (await look(store)).grants == {"a": clock.now_us, "b": clock.now_us}
    clock.advance(601)
    assert await granted(store, "c", capacity=1) == []


# -- beats ------------------------------------------------------------------------------------------------------


@of_a_fleet
async def test_beat_is_answered_with_the_summary_and_is_read_back(store: Store, clock: Clock) -> None:
    await commit(store, grant="g", epoch=EPOCH, state=STATE, holds={"a": HOLD})
    await send_beat(store, beat("b", errors=3, ratio=70))
    clock.advance(1)
    await send_beat(store, suspect("c", errors=9))
    heard = await send_beat(store, beat("a", Presence.STARTING, errors=0, ratio=10))
    assert (heard.now_us, heard.epoch, heard.state, heard.holds) == (clock.now_us, EPOCH, STATE, {"a": HOLD})
    assert (heard.alive, heard.silent, heard.struck, heard.former, heard.settings) == (3, 0, (), "", 1)
    assert (heard.causes, heard.median_errors, heard.median_ratio, heard.used) == ({"redis": 1}, 3, 70, 1)
    assert (await send_beat(store, beat("a"))).former == "1\n\n0"
    view = await look(store, "b")
    assert (view.alive, view.newest_us, view.causes) == (3, clock.now_us, {"redis": 1})
    assert (view.settings, view.settings_texts) == ((FleetSettings(),), (SETTINGS,))
    assert (view.member.incarnation, view.seen_us, view.departed_us) == ("1", clock.now_us - S, 0)


@of_a_fleet
async def test_beat_counts_the_culled_containers_whose_sidecars_say_that_they_drain(store: Store) -> None:
    await commit(store, culls=dict.fromkeys("abc", CULL))
    for name, state in (("a", "draining"), ("b", "down"), ("d", "draining")):
        await send_beat(store, beat(name, Presence.DOWN, about=f"{state}|1|life|0|0|5|0.3|0"))
    assert (await send_beat(store, beat("e"))).draining == 1, "d was not culled, and nothing is known of c"


async def test_container_that_drains_is_told_so_until_it_is_down(store: Store) -> None:
    await commit(store, culls={"a": CULL})
    told = [
        (await send_beat(store, beat("a", Presence.DOWN, about=about))).draining
        for about in ("draining|1|life|0|0|5|0.3|0", "", "down|1|life|0|0|5|0.3|0")
    ]
    assert told == [1, 1, 0]


@of_a_fleet
async def test_beat_waits_for_no_revision_and_changes_none(store: Store) -> None:
    await send_beat(store, beat("a"))
    assert (await look(store)).revision == 0
    await store.commit(0, Edits())
    revision = (await look(store)).revision
    await send_beat(store, beat("a"))
    assert (await look(store)).revision == revision > 0


@of_a_fleet
@pytest.mark.parametrize(
    ("ratios", "median"), [([], -1), ([None, None], -1), ([5], 5), ([1, 2], 2), ([3, None, 1, 2], 2)]
)
async def test_median_is_of_the_members_that_reported_a_value(
    store: Store, ratios: list[int | None], median: int
) -> None:
    for place, ratio in enumerate(ratios):
        await send_beat(store, beat(str(place), errors=7, ratio=4))
        await send_beat(store, beat(str(place), errors=place, ratio=ratio))
    heard = await send_beat(store, beat("z", Presence.DOWN))
    assert (heard.median_errors, heard.median_ratio) == (len(ratios) // 2 if ratios else -1, median)


@of_a_fleet
@pytest.mark.parametrize("presence", [Presence.DOWN, Presence.GONE])
async def test_member_that_leaves_is_counted_nowhere(store: Store, clock: Clock, presence: Presence) -> None:
    await send_beat(store, suspect("a", ratio=9, about="news"))
    heard = await send_beat(store, beat("a", presence))
    assert (heard.alive, heard.causes, heard.former) == (0, {}, "1\nredis\n0")
    assert (heard.median_errors, heard.median_ratio) == (-1, -1)
    view = await look(store)
    assert (view.alive, view.member.incarnation, view.seen_us) == (0, "", 0)
    assert view.departed_us == (clock.now_us if presence is Presence.GONE else 0)
    assert (await store.members(most=10, since_us=0)).members == []
    await send_beat(store, beat("a"))
    assert list((await store.members(most=10, since_us=0)).members) == [("a", clock.now_us, "1\n\n0", "")]


@of_a_fleet
async def test_report_of_a_culled_container_is_kept_until_it_leaves_or_its_cull_is_over(store: Store) -> None:
    async def told() -> dict[str, str]:
        return dict((await store.members(most=0, since_us=0)).culled)

    names = "abcd"
    await commit(store, culls=dict.fromkeys(names, CULL))
    for name in names:
        await send_beat(store, beat(name, about="well"))
        await send_beat(store, beat(name, Presence.DOWN))
    assert await told() == dict.fromkeys(names, "well")
    await send_beat(store, beat("a", Presence.DOWN, about="down"))
    await send_beat(store, beat("b", Presence.GONE))
    await send_beat(store, beat("d"))
    assert await told() == {"a": "down", "c": "well", "d": "well"}
    await commit(store, culls=dict.fromkeys("cd"))
    await commit(store, culls=dict.fromkeys("cd", CULL))
    assert await told() == {"a": "down", "d": "well"}


@of_a_fleet
async def test_silent_members_are_struck_off_a_hundred_at_a_time(store: Store, clock: Clock) -> None:
    names = [f"m{number:03}" for number in range(250)]
    for name in names:
        await send_beat(store, suspect(name, ratio=1))
    clock.advance(30)
    assert (await send_beat(store, beat("z"))).silent == 0
    clock.advance(0.000001)
    seen: list[str] = []
    for left in (250, 150, 50, 0):
        heard = await send_beat(store, beat("z"))
        assert (heard.silent, heard.alive, heard.causes) == (
            left,
            left + 1,
            {"redis": left - 100} if left > 100 else {},
        )
        assert len(heard.struck) == min(left, MAX_STRUCK)
        seen += heard.struck
    assert seen == names
    assert (await look(store, "m000")).departed_us == clock.now_us


@of_a_fleet
async def test_member_of_a_clock_that_stepped_back_is_struck_off(store: Store, clock: Clock) -> None:
    await send_beat(store, suspect("a"), settings="old")
    clock.advance(-3600)
    heard = await send_beat(store, beat("b"))
    assert (heard.alive, heard.silent, heard.struck, heard.causes, heard.settings) == (2, 1, ("a",), {}, 1)
    await send_beat(store, beat("a"))
    clock.advance(-0.5)
    assert (await send_beat(store, beat("b"))).silent == 0


@of_a_fleet
async def test_settings_in_force_are_those_of_the_last_beats(store: Store, clock: Clock) -> None:
    assert [(await send_beat(store, beat(name), settings=name)).settings for name in "aab"] == [1, 1, 2]
    clock.advance(31)
    assert (await send_beat(store, beat("b"), settings="b")).settings == 1
    assert set((await look(store)).settings_texts) == {"a", "b"}
    clock.advance(600)
    assert (await send_beat(store, beat("b"), settings="b")).settings == 1
    assert (await look(store)).settings_texts == ("b",)


@of_a_fleet
async def test_beating_has_the_culled_instances_with_a_recent_beat(store: Store, clock: Clock) -> None:
    await commit(store, culls=dict.fromkeys("abc", CULL))
    await send_beat(store, beat("a"))
    clock.advance(31)
    await send_beat(store, suspect("b", life="2"))
    await send_beat(store, beat("d"))
    view = await look(store)
    assert (view.alive, view.beating) == (2, {"b": "2"})


@of_a_fleet
async def test_more_culls_than_a_script_hands_over_at_once_are_all_looked_for(store: Store) -> None:
    names = [f"m{number}" for number in range(2500)]
    await store.commit(0, Edits(culls=dict.fromkeys(names, CULL)))
    for name in (names[0], names[999], names[1000], names[-1]):
        await send_beat(store, beat(name))
    assert set((await look(store)).beating) == {names[0], names[999], names[1000], names[-1]}


@of_a_fleet
async def test_line_break_in_what_an_app_says_splits_no_row(store: Store) -> None:
    heard = await send_beat(store, suspect("a", "x\ny\n1", life="l\nm"))
    assert heard.causes == {"x y 1": 1}
    rows = [
        (await send_beat(store, suspect("a", "x\ny\n1", life="l\nm", identity=identity))).former
        for identity in ("i\nd", "")
    ]
    assert rows == ["l m\nx y 1\n0", "l m\ni d\nx y 1\n0"]


@of_a_fleet
async def test_members_are_listed_by_name_and_the_departed_newest_first(store: Store, clock: Clock) -> None:
    start_us = clock.now_us
    for name in "badc":
        clock.advance(1)
        await send_beat(store, beat(name, about=f"about {name}"))
    for name in "db":
        clock.advance(1)
        await send_beat(store, beat(name, Presence.GONE))
    await send_beat(store, beat("b"))
    listing = await store.members(most=2, since_us=start_us)
    assert list(listing.members) == [
        ("a", start_us + 2 * S, "1\n\n0", "about a"),
        ("b", clock.now_us, "1\n\n0", ""),
    ]
    assert listing.departed == [("d", start_us + 5 * S)]
    assert (await store.members(most=10, since_us=start_us + 5 * S)).departed == []


# -- the article, and who is first ------------------------------------------------------------------------------


async def test_count_goes_on_while_it_is_asked_for_within_the_window(store: Store, clock: Clock) -> None:
    counts = []
    for step in (0, 599, 599, 601):
        clock.advance(step)
        counts.append(await store.count("errorWatcher:3", 600))
    assert counts == [1, 2, 3, 1]
    assert await store.count("errorWatcher:4", 600) == 1


async def test_only_the_first_call_is_first_within_the_time(store: Store, clock: Clock) -> None:
    said = [await store.first("paused", 60), await store.first("other", 60)]
    for step in (59, 2):
        clock.advance(step)
        said.append(await store.first("paused", 60))
    assert said == [True, True, False, True]


@of_a_fleet
async def test_entries_of_a_commit_are_written_with_it_or_not_at_all(store: Store) -> None:
    entry = Entry("helped", 1_700_000_000.0, "a", once="helped a")
    await commit(store, entries=[entry])
    with pytest.raises(Conflict):
        await store.commit(0, Edits(entries=(Entry("unclear", 1_700_000_000.0),)))
    await commit(store, grant="a", capacity=1)
    with pytest.raises(Over):
        await commit(store, grant="b", capacity=1, entries=[Entry("unclear", 1_700_000_000.0)])
    assert [one.what for one in await store.entries(0, "", 10)] == ["helped"]


# -- the ledger ----------------------------------------------------------------------------------------------------

AT: Final = 1_699_999_990.5
CULLED: Final = Entry("culled", AT, "a", "redis", "errors", "ann", 3.25, "5 errors")
BARE: Final = Entry("helped", AT + 1)
MANY: Final = [Entry("suspect", AT + number, "a", str(number)) for number in range(5)]


async def read(store: Store, since: float = 0.0, after: str = "", most: int = 1000) -> list[Entry]:
    """The entries as they were handed in, without their ids."""
    return [entry._replace(id="") for entry in await store.entries(since, after, most)]


async def test_entries_come_back_as_they_were_noted_and_in_their_order(store: Store) -> None:
    assert await read(store) == []
    assert await store.note([CULLED, BARE]) == 2
    assert await store.note(MANY) == 5
    assert await read(store) == [CULLED, BARE, *MANY]


async def test_pages_follow_one_another_without_gap_and_end_empty(store: Store) -> None:
    await store.note(MANY)
    pages, after = [], ""
    for _ in range(4):
        page = await store.entries(0.0, after, 2)
        pages.append([entry._replace(id="") for entry in page])
        after = page[-1].id if page else after
    assert pages == [MANY[:2], MANY[2:4], MANY[4:], []]
    late = Entry("recovered", AT, "b")
    await store.note([late])
    assert await read(store, after=after) == [late]


async def test_text_of_any_kind_comes_back(store: Store) -> None:
    hostile = Entry("denied", AT, "<b>\n\x1b[2J", "\ud800\x00", "a|b", "größer 🚀", 0.0, "x" * 500)
    await store.note([hostile])
    assert await read(store) == [hostile]


async def test_only_what_arrived_since_is_read(store: Store, clock: Clock) -> None:
    await store.note([CULLED])
    clock.advance(10)
    await store.note([BARE])
    assert await read(store, since=clock.now_us / S - 5) == [BARE]
    assert await read(store, since=clock.now_us / S - 10) == [CULLED, BARE]
    assert await read(store, since=clock.now_us / S + 1) == []
    assert await read(store, since=-5.0) == [CULLED, BARE]


async def test_entry_without_a_time_happened_when_it_arrived(store: Store, clock: Clock) -> None:
    await store.note([Entry("helped")])
    assert await read(store) == [Entry("helped", clock.now_us / S)]


async def test_shared_word_is_one_entry_for_its_time(store: Store, clock: Clock) -> None:
    entry = Entry("paused", AT, reason="on", once="paused redis")
    counts = [await store.note([entry])]
    for step in (SHARED_S - 1, 2):
        clock.advance(step)
        again = entry._replace(at=AT + step)  # each sidecar sees it at a time of its own
        counts.append(await store.note([again, again]))
    assert counts == [1, 0, 1]
    assert len(await read(store)) == 2


@of_a_fleet
async def test_entry_that_is_sent_again_is_written_once(store: Store, clock: Clock) -> None:
    entry = Entry("paused", AT, reason="on")
    counts = [await store.note([entry])]
    for step in (NOTED_S - 1, 2):
        clock.advance(step)
        counts.append(await store.note([entry, entry]))
    assert counts == [1, 0, 1]


async def test_memory_keeps_the_newest() -> None:
    store = AloneStore(lambda: 1_700_000_000 * S)
    entries = [Entry("suspect", AT + number) for number in range(MAX_EVENTS + 10)]
    assert await store.note(entries) == len(entries)
    assert await read(store, most=len(entries)) == entries[10:]
