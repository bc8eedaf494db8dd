"""The list of members: what is shown of each container, and what the list leaves out."""

from __future__ import annotations

import pytest

from harness.rule_fleet import START_US, TERMS
from sidecar.core.claims import Presence
from sidecar.core.fleet.members import About, Member, MemberList, member_list_of, present
from sidecar.core.fleet.records import Cull, FleetState, HoldRow
from sidecar.core.fleet.view import Listing, View
from sidecar.core.types import US_PER_S, Hold, State

S = US_PER_S
NOW = START_US
ABOUT = About(State.UP, 1_700_000_000, "one", 100, 2, 5, "1.0")
LAST = ABOUT._replace(state=State.DOWN, weight=0)
WINDOW_US = TERMS.window_us


def listed(listing: Listing, view: View, *, most: int = 10) -> MemberList:
    return member_list_of(view, listing, present(view, listing.members), TERMS, most=most)


@pytest.mark.parametrize(
    ("listing", "cull", "member"),
    [
        (Listing([("a", NOW - 3 * S, "0\n\n0", "")]), None, Member("a", Presence.WELL, "", 3.0)),
        (Listing([("a", NOW + S, "0\n\n0", ABOUT.dump())]), None, Member("a", Presence.WELL, "", 0.0, ABOUT)),
        (Listing([("a", NOW, "0\nredis\n1", "?")]), None, Member("a", Presence.SUSPECT, "redis", 0.0)),
        (Listing([("a", NOW, "no\nrow", "")]), None, Member("a", Presence.WELL, "", 0.0)),
        (Listing(), Cull(cause="redis", at_us=NOW - 5 * S), Member("a", Presence.DOWN, "redis", 5.0)),
        (Listing(), Cull(cause="redis", at_us=NOW + S), Member("a", Presence.DOWN, "redis", 0.0)),
        (Listing(culled={"a": LAST.dump()}), Cull(at_us=NOW), Member("a", Presence.DOWN, "", 0.0, LAST)),
        (
            Listing([("a", NOW, "0\n\n0", ABOUT.dump())], culled={"a": LAST.dump()}),
            Cull(at_us=NOW),
            Member("a", Presence.DOWN, "", 0.0, LAST),
        ),
        (
            Listing([("a", NOW, "0\n\n0", ABOUT.dump())]),
            Cull(at_us=NOW),
            Member("a", Presence.DOWN, "", 0.0, ABOUT),
        ),
        (
            Listing([("a", NOW, "0\n\n0", "")], culled={"a": LAST.dump()}),
            Cull(at_us=NOW, phase="watched"),
            Member("a", Presence.WELL, "", 0.0),
        ),
    ],
    ids=[
        "well", "described, by a clock that is ahead", "suspect", "no row", "culled", "culled by a clock that is ahead",
        "culled, with its last description", "culled, the description at its cull first", "culled, described by itself",
        "replaced",
    ],
)  # fmt: skip
@pytest.mark.parametrize("is_duplicate", [False, True])
def test_member_is_shown_with_its_state_and_its_last_description(
    listing: Listing, cull: Cull | None, member: Member, *, is_duplicate: bool
) -> None:
    view = View(NOW, FleetState(duplicates={"a": NOW} if is_duplicate else {}), culls={"a": cull} if cull else {})
    assert listed(listing, view).members == (member._replace(duplicate=is_duplicate),)


def test_list_has_the_first_members_by_name_and_those_that_left_without_a_return() -> None:
    rows = [(name, NOW, "0\n\n0", "") for name in ("c", "a", "b")]
    found = listed(Listing(rows, departed=[("c", NOW - S), ("d", NOW - 2 * S)]), View(NOW), most=2)
    assert [member.instance for member in found.members] == ["a", "b"]
    assert found.departed == (("d", 2.0),)


def test_list_has_the_tokens_in_use_of_the_window_and_the_holds_in_force() -> None:
    grants = {"new": NOW - S, "oldest": NOW - WINDOW_US, "too old": NOW - WINDOW_US - 1, "refunded": NOW - S}
    holds = {"": HoldRow("ada", "look", NOW - S, 2 * S), "a": HoldRow("bob", "over", NOW - 2 * S, 2 * S)}
    view = View(NOW, grants=grants, refunded=frozenset({"refunded"}), settings_texts=("{}",), holds=holds)
    found = listed(Listing(), view)
    assert (found.used, found.grants) == (2, ((NOW - WINDOW_US) / S, (NOW - S) / S))
    assert (found.fleet.used, found.fleet.settings, found.settings) == (2, 1, ("{}",))
    assert found.fleet.hold == found.holds[0]
    assert found.holds == (Hold("ada", "look", NOW / S + 1),)
