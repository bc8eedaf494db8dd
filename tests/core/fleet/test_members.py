"""The members of the fleet, for people: their descriptions, their list, and what the suspects have in common."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from harness.rule_fleet import START_US, TERMS
from sidecar.core.claims import Presence
from sidecar.core.fleet.common_trait import Traits, common_trait, of_members
from sidecar.core.fleet.members import About, Member, MemberList, digest_of, member_list_of, present
from sidecar.core.fleet.records import Cull, FleetState, HoldRow
from sidecar.core.fleet.view import Listing, View
from sidecar.core.types import US_PER_S, Hold, State

# -- the description of a container -----------------------------------------------------------------------------------

WELL = About(State.UP, 1_700_000_000, "2026-11-20T17:00:00Z", 80, 2, 5, "0.9.0", 1_699_990_000)
LINE = "up|1700000000|2026-11-20T17:00:00Z|80|2|5|0.9.0|1699990000"
MOST_BYTES = 4096


@pytest.mark.parametrize(
    ("about", "line"),
    [
        (WELL, LINE),
        (WELL._replace(settings="0" * 8), f"{LINE}|{'0' * 8}"),
        (WELL._replace(node="n7|", app_version="4\n12"), LINE.replace("0.9.0", "0.9.0\nn7%7C\n4%0A12")),
    ],
    ids=["bare", "settings", "node and version of the app, where 0.2 reads none"],
)
def test_line_is_written_and_read_again(about: About, line: str) -> None:
    assert about.dump() == line
    assert About.load(line) == about


def test_line_of_a_sidecar_that_tells_no_age_is_read_without() -> None:
    assert About.load(LINE.removesuffix("|1699990000")) == WELL._replace(born=0)


@example("%7C|", "%25%", "\n%0A", "%")
@given(st.text(max_size=120), st.text(max_size=50), st.text(max_size=64), st.text(max_size=64))
def test_any_text_comes_back(incarnation: str, version: str, node: str, app_version: str) -> None:
    about = WELL._replace(incarnation=incarnation, version=version, node=node, app_version=app_version)
    assert About.load(about.dump()) == about


@pytest.mark.parametrize("letter", ["x", "|", "%", "\u00e9", "\U0001f680", "\ud800"])
def test_text_without_end_is_cut_where_a_letter_ends(letter: str) -> None:
    text = letter * 100_000
    line = About(State.UP, 1, text, 1, 1, 1, text, node=text, app_version=text).dump()
    assert len(line.encode()) <= MOST_BYTES
    read = About.load(line)
    assert read is not None
    texts = read.incarnation + read.version + read.node + read.app_version
    assert set(texts) == {"?" if letter == "\ud800" else letter}


@pytest.mark.parametrize(
    "line",
    [
        *("", "|", "news", "\n" + LINE, LINE + "|" + "0" * 8 + "|1"),
        LINE.removesuffix("|0.9.0|1699990000"),
        LINE.replace("up", "well"),
        LINE.replace("|80|", "|8e1|"),
        LINE.replace("|2|", "||"),
        LINE.replace("1700000000", "170000000000"),
        LINE.replace("1699990000", "-1"),
    ],
)
def test_line_of_another_kind_says_nothing(line: str) -> None:
    assert About.load(line) is None


def test_settings_of_bytes_that_are_no_text_have_a_digest_of_their_own() -> None:
    """Others write to the store, too, and one bad text must not hide the list of members."""
    assert digest_of("\udcff") not in {digest_of(""), digest_of("{}")}
    assert len(digest_of("{}")) == 8


# -- the list ---------------------------------------------------------------------------------------------------------

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


# -- what the suspects have in common ---------------------------------------------------------------------------------


def versions(text: str) -> list[Traits]:
    """A container for each word, on a node of its own; ``-`` is a version that is not known."""
    return [Traits("" if word == "-" else word, f"{text} {number}") for number, word in enumerate(text.split())]


def nodes(text: str) -> list[Traits]:
    return [Traits("1", node) for node in text.split()]


@pytest.mark.parametrize(
    ("suspects", "healthy", "sentence"),
    [
        ("2 2 2 2 2 2 1", "1 1 1", "6 of 7 suspects run version 2; of the healthy none does: roll back"),
        ("2 2 2", "1", "all 3 suspects run version 2; of the healthy none does: roll back"),
        ("2 2 2 2 1", "1", "4 of 5 suspects run version 2; of the healthy none does: roll back"),
        ("2 2 2 1", "1 1", ""),
        ("2 2", "1 1 1 1 1 1", ""),
        ("2 2 2", "2 1 1 1 1", "all 3 suspects run version 2; of the healthy 1 of 5 does: roll back"),
        ("2 2 2", "2 2 1 1 1 1 1 1 1 1", "all 3 suspects run version 2; of the healthy 2 of 10 do: roll back"),
        ("2 2 2", "2 1 1 1", ""),
        ("2 2 2", "- 1 1 1", ""),
        ("2 2 2", "2 2 2", ""),
        ("2 2 2", "", ""),
        ("- - -", "1 1 1", ""),
        ("2 2 2 -", "1 1 1", ""),
        ("", "", ""),
    ],
    ids=lambda value: value.replace(" ", "") or "none",
)
def test_version_is_shared_by_the_suspects_alone(suspects: str, healthy: str, sentence: str) -> None:
    trait = common_trait(versions(suspects), versions(healthy))
    assert (trait.sentence if trait else "") == sentence


@pytest.mark.parametrize(
    ("suspects", "healthy", "sentence"),
    [
        ("n7 n7 n7 n7 n7", "n1 n2", "all 5 suspects are on node n7; of the healthy none is"),
        ("n7 n7 n7", "n7 n1 n2 n3 n4", "all 3 suspects are on node n7; of the healthy 1 of 5 is"),
        ("n7 n7 n7", "n7 n7 n1 n2 n3 n4 n5 n6 n8 n9", "all 3 suspects are on node n7; of the healthy 2 of 10 are"),
        ("n7 n7 n8", "n1 n2", ""),
    ],
)
def test_node_is_shared_by_the_suspects_alone(suspects: str, healthy: str, sentence: str) -> None:
    trait = common_trait(nodes(suspects), nodes(healthy))
    assert (trait.sentence if trait else "") == sentence


def test_of_two_traits_the_one_that_fewer_healthy_containers_have_is_named() -> None:
    suspects = [Traits("2", "n7")] * 3
    by_node = common_trait(suspects, [Traits("2", "n1"), *[Traits("1", "n1")] * 4])
    by_version = common_trait(suspects, [Traits("1", "n7"), *[Traits("1", "n1")] * 4])
    both = common_trait(suspects, [Traits("1", "n1")])
    assert [trait and trait.trait for trait in (by_node, by_version, both)] == ["node", "version", "version"]


def test_members_are_suspect_healthy_or_down() -> None:
    sick, new, other = (ABOUT._replace(app_version=version) for version in ("2", "2", "1"))
    members = [
        *(Member(f"s{number}", Presence.SUSPECT, "redis", 1.0, sick) for number in range(3)),
        Member("down", Presence.DOWN, "redis", 1.0, new),
        Member("well", Presence.WELL, "", 1.0, other),
    ]
    trait = of_members(members)
    assert trait is not None
    assert trait[2:] == (3, 3, 0, 1)
    assert of_members([*members, Member("unknown", Presence.WELL, "", 1.0)]) is None
