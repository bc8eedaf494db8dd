"""Several servers are one budget, whichever of them are away and whatever their clocks say."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.claims import WINDOW_ONLY, S, beat, claim, down, lease, suspect
from harness.server_group import START_US, ServerGroup, outcome, outcomes
from harness.virtual_time import in_virtual_time
from harness.waiting import eventually
from sidecar.core.fleet.about import MemberList
from sidecar.core.fleet.terms import Terms
from sidecar.core.types import Answer, CauseTrial, Denied, Entry, Fleet, Granted, Hold, Presence, Unknown
from sidecar.store.budget import Budget, FleetBudget
from sidecar.store.decisions import Counter

GATED = replace(WINDOW_ONLY, trial=True)
SAFE = replace(WINDOW_ONLY, after_loss_wait=True)
NAMES = [f"i{number:02}" for number in range(20)]


async def claims(sidecars: dict[str, FleetBudget], names: Iterable[str] | None = None) -> list[Answer]:
    return [await sidecars[name].claim(claim(name)) for name in names or sidecars]


async def beats(sidecars: dict[str, FleetBudget], *, suspects: bool = True) -> None:
    for name, budget in sidecars.items():
        await budget.beat(suspect(name) if suspects else beat(name))


async def fleet_of(budget: Budget, told: object) -> Fleet:
    answer = await budget.beat(told)  # type: ignore[arg-type]  # a beat
    assert isinstance(answer, Fleet), answer
    return answer


async def grants(group: ServerGroup) -> list[int]:
    """How many each server granted."""
    return [len((await server.content()).grants) for server in group.servers]


def away(group: ServerGroup, *places: int) -> None:
    """These do not answer, the others do."""
    for place, server in enumerate(group.servers):
        server.fails = "connection" if place in places else ""


# -- shares -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("servers", "budget", "shares"), [(1, "10", [10]), (2, "10", [5, 5]), (3, "10", [4, 3, 3]), (3, "2", [1, 1, 0])]
)
async def test_shares_of_all_servers_are_the_whole_budget(servers: int, budget: str, shares: list[int]) -> None:
    group = ServerGroup(servers, capacity=budget)
    sidecars = group.sidecars(NAMES)
    await beats(sidecars)
    answers = await claims(sidecars)
    assert outcomes(answers) == {"granted": int(budget), "window": len(NAMES) - int(budget)}
    assert await grants(group) == shares
    assert isinstance(last := answers[-1], Denied)
    assert (last.used, last.capacity) == (int(budget), int(budget))
    fleet = await fleet_of(sidecars["i19"], suspect("i19"))
    assert (fleet.used, fleet.capacity) == (int(budget), int(budget))


@pytest.mark.parametrize(("place", "left"), [(0, 6), (1, 7), (2, 7)])
async def test_server_that_is_away_takes_its_share_along_and_nothing_else(place: int, left: int) -> None:
    group = ServerGroup(3)
    sidecars = group.sidecars(NAMES)
    await beats(sidecars)
    away(group, place)
    assert outcomes(await claims(sidecars))["granted"] == left
    away(group)
    answers = await claims(sidecars)
    assert outcomes(answers)["granted"] == 10
    assert sum(isinstance(answer, Granted) and answer.replayed for answer in answers) == left


@pytest.mark.parametrize(
    ("servers", "gone", "told"),
    [
        (2, (1,), "granted"),
        (2, (0,), "quorum"),
        (2, (0, 1), "connection"),
        (3, (0,), "granted"),
        (3, (0, 1), "quorum"),
        (3, (0, 1, 2), "connection"),
    ],
    ids=str,
)
async def test_claim_needs_a_majority_and_of_two_servers_the_first(
    servers: int, gone: tuple[int, ...], told: str
) -> None:
    group = ServerGroup(servers)
    budget = group.sidecar()
    away(group, *gone)
    assert outcome(await budget.claim(claim("a"))) == told
    assert outcome(await budget.retire(lease("b"))) == told
    assert await budget.give_back("a", "a") == (True if told == "granted" else Unknown(told))


async def test_claim_without_a_majority_holds_no_trial_and_its_token_is_found_again() -> None:
    group = ServerGroup(3, GATED)
    one, other = group.sidecar(), group.sidecar()
    for server in group.servers[1:]:
        server.loses = {"commit": "request"}
    assert isinstance(await one.claim(claim("a")), Unknown)
    for server in group.servers[1:]:
        server.loses = {}
    for budget in (one, other):
        await budget.beat(suspect("a" if budget is one else "b", first=True))
    answer = await one.claim(claim("a"))
    assert isinstance(answer, Granted)
    assert not answer.replayed
    assert sum(await grants(group)) == 1
    assert outcome(await other.claim(claim("b"))) == "trial"


async def test_fixed_windows_share_the_budget_between_the_article_s_counters() -> None:
    group = ServerGroup(3, strategy="fixed")
    sidecars = [group.sidecar(counter=lambda: Counter("errorWatcher:0", 600, 100.0)) for _ in NAMES]
    answers = [await one.claim(claim(name)) for one, name in zip(sidecars, NAMES, strict=True)]
    assert outcomes(answers) == {"granted": 10, "window": 10}
    assert await grants(group) == [4, 3, 3]


# -- gates of the whole fleet -------------------------------------------------------------------------------------


@pytest.mark.parametrize("gone", [None, 0, 1, 2], ids=str)
async def test_spacing_holds_over_all_servers_together(gone: int | None) -> None:
    group = ServerGroup(3, spacing_us=30 * S)
    sidecars = group.sidecars(NAMES)
    for number, name in enumerate(NAMES[:3]):
        assert outcome(await sidecars[name].claim(claim(name))) == "granted"
        if gone is not None:
            away(group, gone)
        late = NAMES[10 + number]
        answer = await sidecars[late].claim(claim(late))
        assert isinstance(answer, Denied)
        assert (answer.reason, answer.retry_after_s) == ("spacing", 30.0)
        away(group)
        group.advance(30)


async def test_trial_and_outcomes_are_of_all_servers_together() -> None:
    group = ServerGroup(3, GATED, refund_max=0)
    sidecars = group.sidecars(NAMES)
    await beats(sidecars)
    assert outcomes(await claims(sidecars)) == {"granted": 1, "trial": 19}
    await sidecars["i00"].beat(down("i00"))
    away(group, 0)
    await sidecars["i00"].beat(beat("i00", life="2"))
    group.advance(60)
    away(group, 1)
    fleet = await fleet_of(sidecars["i00"], beat("i00", life="2"))
    assert (fleet.trials, fleet.helped) == ((CauseTrial("redis", 2, 0, since=START_US / S),), 1)
    away(group)
    await beats(dict(list(sidecars.items())[1:]))
    assert outcomes(await claims(sidecars, NAMES[1:])) == {"granted": 2, "trial": 17}


async def test_floor_holds_over_all_servers_together() -> None:
    group = ServerGroup(3, min_healthy="900p", capacity="20")
    sidecars = group.sidecars(NAMES)
    await beats(sidecars)
    assert outcomes(await claims(sidecars)) == {"granted": 2, "floor": 18}


async def test_slots_are_of_all_servers_together() -> None:
    group = ServerGroup(3)
    sidecars = group.sidecars(NAMES[:4])
    await beats(sidecars, suspects=False)
    assert outcome(await sidecars["i00"].retire(lease("i00"))) == "granted"
    for gone in range(3):
        away(group, gone)
        assert outcome(await sidecars["i01"].retire(lease("i01"))) == "slots"
        assert outcome(await sidecars["i00"].retire(lease("i00"))) == "granted"
    away(group, 2)
    assert await sidecars["i00"].give_back("i00", "i00's") is True
    away(group)
    await sidecars["i00"].beat(beat("i00"))
    assert outcome(await sidecars["i01"].retire(lease("i01"))) == "granted"


async def test_servers_whose_clocks_differ_are_one_budget() -> None:
    group = ServerGroup(3, SAFE, trial=True)
    for place, server in enumerate(group.servers):
        server.ahead_us = (place - 1) * 3600 * S
    sidecars = group.sidecars(NAMES)
    for _ in range(3):
        await beats(sidecars)
        group.advance(10)
    assert outcomes(await claims(sidecars)) == {"granted": 1, "trial": 19}
    fleet = await fleet_of(sidecars["i00"], down("i00"))
    assert (fleet.losses, fleet.down) == (0, 1)
    await sidecars["i00"].beat(beat("i00", life="2"))
    group.advance(10)
    (trial,) = (await fleet_of(sidecars["i00"], suspect("i00", life="2"))).trials
    assert trial == CauseTrial("redis", 1, 0, 600.0, 1, trial.since)
    group.advance(10)
    assert {trial.paused_s for name in NAMES for trial in (await fleet_of(sidecars[name], beat(name))).trials} == {590}


# -- away and back ------------------------------------------------------------------------------------------------


async def test_server_that_was_away_is_brought_up_to_date_at_the_next_beat() -> None:
    group = ServerGroup(3, GATED)
    sidecars = group.sidecars(NAMES[:4])
    await beats(sidecars)
    away(group, 2)
    await sidecars["i00"].claim(claim("i00"))
    await sidecars["i00"].hold("i03", "ann", "look", 60.0)
    await sidecars["i00"].retire(lease("i01"))
    away(group)
    await sidecars["i02"].beat(suspect("i02"))
    one, _, other = [await server.content() for server in group.servers]
    assert (one.state, one.culls, one.leases, one.holds) == (other.state, other.culls, other.leases, other.holds)
    before = sum(server.calls["commit"] for server in group.servers)
    await sidecars["i02"].beat(suspect("i02"))
    assert sum(server.calls["commit"] for server in group.servers) == before


async def test_orders_at_a_server_that_is_cut_off_take_nothing_back_that_the_others_decided() -> None:
    group = ServerGroup(3, GATED)
    sidecars = group.sidecars(NAMES[:4])
    await beats(sidecars)
    away(group, 2)
    assert outcome(await sidecars["i00"].claim(claim("i00"))) == "granted"
    away(group, 0, 1)
    for reason in ("one", "two", "three"):
        assert isinstance(await sidecars["i01"].hold("", "ann", reason, 60.0), Hold)
    assert await sidecars["i01"].release("") is True
    away(group)
    await beats(sidecars)
    assert outcomes(await claims(sidecars, NAMES[1:4])) == {"trial": 3}


async def test_beat_goes_to_all_servers_at_once_however_long_one_takes() -> None:
    group = ServerGroup(3)
    group.servers[0].is_hung = True
    beating = asyncio.ensure_future(group.sidecar().beat(beat("a")))
    await eventually(lambda: all(one.calls["beat"] for one in group.servers), timeout_s=60, what="all are told")
    assert not beating.done()
    beating.cancel()
    with pytest.raises(asyncio.CancelledError):
        await beating


async def test_beat_names_servers_that_are_away_and_is_answered_while_one_is_there() -> None:
    group = ServerGroup(3)
    budget = group.sidecar()
    await budget.beat(beat("a"))
    away(group, 0, 2)
    fleet = await fleet_of(budget, beat("a"))
    assert (fleet.alive, fleet.away) == (1, ("a: connection", "c: connection"))
    away(group, 0, 1, 2)
    assert await budget.beat(beat("a")) == Unknown("connection")


async def test_fleet_is_what_the_best_informed_server_knows_of_it() -> None:
    group = ServerGroup(3)
    sidecars = group.sidecars(NAMES)
    away(group, 1)
    await beats(sidecars)
    away(group)
    fleet = await fleet_of(sidecars["i00"], suspect("i00"))
    assert (fleet.alive, fleet.suspect, fleet.cause) == (20, 20, "redis")


async def test_restart_that_one_server_missed_is_no_duplicate() -> None:
    group = ServerGroup(3)
    budget = group.sidecar()
    await budget.beat(suspect("a", life="1"))
    away(group, 2)
    for _ in range(2):
        await budget.beat(suspect("a", life="2"))
    away(group)
    assert not (await fleet_of(budget, suspect("a", life="2"))).duplicate
    assert outcome(await budget.claim(claim("a", life="2"))) == "granted"


@pytest.mark.parametrize("gone", [None, 0, 1, 2], ids=str)
async def test_two_lives_under_one_name_are_noticed_wherever_they_meet(gone: int | None) -> None:
    group = ServerGroup(3)
    one, two = group.sidecar(), group.sidecar()
    if gone is not None:
        away(group, gone)
    for _ in range(2):
        await one.beat(suspect("a", life="1"))
        await two.beat(suspect("a", life="2"))
    assert outcomes([await one.claim(claim("a")), await two.claim(claim("a", life="2"))]) == {"duplicate": 2}


# -- holds --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", range(3))
async def test_hold_that_reached_one_server_holds_and_reaches_the_others_with_the_next_beat(
    place: int,
) -> None:
    group = ServerGroup(3)
    sidecars = group.sidecars(NAMES[:3])
    await beats(sidecars)
    away(group, *({0, 1, 2} - {place}))
    held = await sidecars["i00"].hold("", "ann", "deploy", 3600.0)
    assert held == Hold("ann", "deploy", START_US / S + 3600)
    away(group)
    assert outcome(await sidecars["i01"].claim(claim("i01"))) == "hold"
    assert (await fleet_of(sidecars["i01"], beat("i01"))).hold == held
    away(group, place)
    assert outcome(await sidecars["i02"].claim(claim("i02"))) == "hold"


@pytest.mark.parametrize("place", range(3))
async def test_release_that_one_server_missed_counts(place: int) -> None:
    group = ServerGroup(3)
    sidecars = group.sidecars(NAMES[:3])
    await sidecars["i00"].hold("", "ann", "deploy", 3600.0)
    group.advance(5)
    away(group, place)
    assert await sidecars["i00"].release("") is True
    away(group)
    assert outcome(await sidecars["i01"].claim(claim("i01"))) == "granted"
    assert await sidecars["i00"].release("") is False
    await sidecars["i01"].beat(beat("i01"))
    away(group, *({0, 1, 2} - {place}))
    assert (await fleet_of(sidecars["i02"], beat("i02"))).hold is None


@pytest.mark.parametrize("order", ["hold", "release"])
async def test_order_that_reaches_no_server_is_unknown(order: str) -> None:
    group = ServerGroup(3)
    away(group, 0, 1, 2)
    budget = group.sidecar()
    asked = budget.hold("", "ann", "deploy", 60.0) if order == "hold" else budget.release("")
    assert await asked == Unknown("connection")


# -- memory -------------------------------------------------------------------------------------------------------


async def fleet_with_beats(group: ServerGroup) -> dict[str, FleetBudget]:
    """Sidecars of a fleet whose servers have had their beats."""
    sidecars = group.sidecars(NAMES)
    for _ in range(3):
        await beats(sidecars)
        group.advance(10)
    return sidecars


@pytest.mark.parametrize(("place", "left"), [(0, 6), (1, 7), (2, 7)])
async def test_server_that_lost_its_data_grants_nothing_and_the_others_go_on(place: int, left: int) -> None:
    group = ServerGroup(3, SAFE)
    sidecars = await fleet_with_beats(group)
    group.servers[place].forget()
    await beats(sidecars)
    assert outcomes(await claims(sidecars)) == {"granted": left, "window": 20 - left}
    assert {(await fleet_of(budget, suspect(name))).losses for name, budget in sidecars.items()} == {1}


async def test_majority_that_lost_its_data_grants_nothing_for_a_window() -> None:
    group = ServerGroup(3, SAFE)
    sidecars = await fleet_with_beats(group)
    for server in group.servers[1:]:
        server.forget()
    assert outcomes(await claims(sidecars, NAMES[:3])) == {"data_loss": 3}
    for _ in range(61):
        await beats(sidecars)
        group.advance(10)
    assert outcome(await sidecars["i00"].claim(claim("i00"))) == "granted"
    assert (await fleet_of(sidecars["i00"], suspect("i00"))).losses == 2


async def test_loss_that_one_server_could_not_write_is_noticed_again() -> None:
    group = ServerGroup(3, SAFE)
    sidecars = {"i00": (await fleet_with_beats(group))["i00"]}
    group.servers[2].ahead_us = 700 * S
    group.servers[2].loses = {"commit": "request"}
    await beats(sidecars)
    group.servers[2].loses = {}
    await beats(sidecars)
    away(group, 0)
    assert outcome(await sidecars["i00"].claim(claim("i00"))) == "data_loss"


async def test_losses_of_a_server_that_is_away_still_count() -> None:
    group = ServerGroup(3, SAFE)
    sidecars = await fleet_with_beats(group)
    group.servers[0].forget()
    told = [(await fleet_of(sidecars["i00"], suspect("i00"))).losses]
    away(group, 0)
    told.append((await fleet_of(sidecars["i00"], suspect("i00"))).losses)
    away(group)
    told.append((await fleet_of(sidecars["i00"], suspect("i00"))).losses)
    assert told == [1, 1, 1]


# -- at once ------------------------------------------------------------------------------------------------------


@in_virtual_time
@pytest.mark.parametrize(("terms", "granted"), [(GATED, 1), (WINDOW_ONLY, 10)], ids=["trial", "window"])
async def test_claims_at_once_are_all_answered_and_conflicts_block_no_later_claim(terms: Terms, granted: int) -> None:
    group = ServerGroup(3, terms)
    group.pause = asyncio.sleep
    sidecars = group.sidecars([f"i{number}" for number in range(100)])
    await beats(sidecars)
    for server in group.servers:
        server.takes_s = 0.001
    answers = await asyncio.gather(*(budget.claim(claim(name)) for name, budget in sidecars.items()))
    told = outcomes(answers)
    assert set(told) <= {"granted", "window", "trial", "contended"}
    assert told["contended"] <= 5
    for server in group.servers:
        server.takes_s = None
    assert outcomes(await claims(sidecars))["granted"] == granted
    assert all(used <= share for used, share in zip(await grants(group), (4, 3, 3), strict=True))


FAULTS = (None, None, "away", "request", "reply")
ROUNDS = st.lists(
    st.tuples(
        st.integers(0, 7), st.sampled_from([0.0, 0.1, 5.0, 29.9, 60.0]), st.tuples(*[st.sampled_from(FAULTS)] * 3)
    ),
    max_size=40,
)


@given(ROUNDS)
@settings(deadline=None)
def test_culls_in_any_window_are_no_more_than_the_budget_whatever_is_away_or_lost(
    rounds: list[tuple[int, float, tuple[str | None, ...]]],
) -> None:
    with asyncio.Runner() as runner:
        culls = runner.run(_culls(rounds))
    for at in culls:
        assert sum(at <= other <= at + 60 * S for other in culls) <= 4


async def _culls(rounds: list[tuple[int, float, tuple[str | None, ...]]]) -> list[int]:
    """When containers went down; each is replaced at once, and a claim without an answer is made again."""
    group = ServerGroup(3, capacity="4", window_us=60 * S)
    sidecars = group.sidecars(NAMES[:8])
    lives, culls = dict.fromkeys(sidecars, 0), []
    for number, passes_s, faults in rounds:
        group.advance(passes_s)
        name = NAMES[number]
        await sidecars[name].beat(suspect(name, life=str(lives[name])))
        for server, fault in zip(group.servers, faults, strict=True):
            server.fails = "connection" if fault == "away" else ""
            server.loses = {"commit": fault} if fault in ("request", "reply") else {}  # type: ignore[dict-item]
        if isinstance(await sidecars[name].claim(claim(name, life=str(lives[name]))), Granted):
            culls.append(group.now_us)
            lives[name] += 1
        for server in group.servers:
            server.fails, server.loses = "", {}
    return culls


# -- for a person -------------------------------------------------------------------------------------------------


async def test_member_list_comes_from_the_servers_that_answer() -> None:
    group = ServerGroup(3)
    sidecars = group.sidecars(NAMES[:3])
    await beats(sidecars)
    await claims(sidecars, NAMES[:2])
    held = await sidecars["i00"].hold("i02", "ann", "look", 60.0)
    for gone in ((), (0,), (1, 2)):
        away(group, *gone)
        member_list = await sidecars["i00"].member_list()
        assert isinstance(member_list, MemberList)
        assert [(member.instance, member.presence) for member in member_list.members] == [
            ("i00", Presence.DOWN),
            ("i01", Presence.DOWN),
            ("i02", Presence.SUSPECT),
        ]
        used = [used for place, used in enumerate(await grants(group)) if place not in gone]
        assert (member_list.holds, member_list.used) == ((held,), sum(used))
    away(group, 0, 1, 2)
    assert await sidecars["i00"].member_list() == Unknown("connection")


async def test_all_servers_are_closed() -> None:
    group = ServerGroup(3)
    await group.sidecar().aclose()
    assert [server.closed for server in group.servers] == [1, 1, 1]


# -- the ledger ---------------------------------------------------------------------------------------------------

MANY = [Entry("suspect", START_US / S + number, "a", str(number)) for number in range(4)]


async def page_of(budget: Budget, after: str = "", most: int = 100) -> tuple[list[Entry], str]:
    """The entries as they were noted, and where the page ends."""
    page = await budget.entries(0.0, after, most)
    assert not isinstance(page, Unknown)
    return [entry._replace(id="") for entry in page], page[-1].id if page else after


async def test_entries_go_to_the_first_server_that_answers_and_are_read_from_all() -> None:
    group = ServerGroup(2)
    budget = group.sidecar()
    await budget.note([MANY[0]])
    group.advance(1)
    away(group, 0)
    await budget.note([MANY[1]])
    assert (await page_of(budget))[0] == [MANY[1]]
    group.advance(1)
    away(group)
    await budget.note([MANY[2]])
    assert (await page_of(budget))[0] == MANY[:3]


async def test_entry_that_two_servers_have_is_read_once_whatever_the_page() -> None:
    group = ServerGroup(2)
    budget = group.sidecar()
    for server in group.servers:
        await server.note(MANY[:3])
    for most in (1, 2, 3, 9):
        seen, after = [], ""
        for _ in range(6):
            page, after = await page_of(budget, after, most)
            seen += page
        assert seen == MANY[:3], most


async def test_reader_misses_nothing_of_a_server_whose_clock_is_behind() -> None:
    group = ServerGroup(2)
    budget = group.sidecar()
    group.servers[0].ahead_us = 3600 * S
    await group.servers[0].note([MANY[0]])
    _, after = await page_of(budget)
    await group.servers[1].note([MANY[1]])
    assert (await page_of(budget, after))[0] == [MANY[1]]


async def test_what_no_server_answers_is_unknown() -> None:
    group = ServerGroup(3)
    budget = group.sidecar()
    away(group, 0, 1, 2)
    group.servers[0].fails = "timeout"
    answers = [await budget.note([MANY[0]]), await budget.entries(0.0, "", 10), await budget.first("word", 60)]
    assert answers == [Unknown("timeout")] * 3


async def test_decision_is_in_the_ledger_once() -> None:
    group = ServerGroup(3, GATED)
    budget = group.sidecar()
    await budget.beat(suspect("a"))
    await budget.claim(claim("a"))
    await budget.beat(down("a"))
    await budget.beat(beat("a", life="2"))
    assert [entry.what for entry in (await page_of(budget))[0]] == ["replaced"]
