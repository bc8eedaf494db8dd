"""Several servers are one budget, whoever of them is away, and whatever their clocks say."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.claims import WINDOW_ONLY, S, beat, claim, down, lease, suspect
from harness.fleet_stores import START_US, Town, outcome, outcomes
from harness.virtual_time import in_virtual_time
from harness.waiting import eventually
from sidecar.core.fleet.terms import Terms
from sidecar.core.types import Answer, CauseTrial, Denied, Entry, Fleet, Granted, Hold, Presence, Roll, Unknown
from sidecar.store.budget import Budget, Counter, FleetBudget

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


async def grants(town: Town) -> list[int]:
    """How many each server granted."""
    return [len((await server.content()).grants) for server in town.servers]


def away(town: Town, *places: int) -> None:
    """These do not answer, the others do."""
    for place, server in enumerate(town.servers):
        server.fails = "connection" if place in places else ""


# -- shares -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("servers", "budget", "shares"), [(1, "10", [10]), (2, "10", [5, 5]), (3, "10", [4, 3, 3]), (3, "2", [1, 1, 0])]
)
async def test_shares_of_all_servers_are_the_whole_budget(servers: int, budget: str, shares: list[int]) -> None:
    town = Town(servers, capacity=budget)
    sidecars = town.sidecars(NAMES)
    await beats(sidecars)
    answers = await claims(sidecars)
    assert outcomes(answers) == {"granted": int(budget), "window": len(NAMES) - int(budget)}
    assert await grants(town) == shares
    assert isinstance(last := answers[-1], Denied)
    assert (last.used, last.capacity) == (int(budget), int(budget))
    fleet = await fleet_of(sidecars["i19"], suspect("i19"))
    assert (fleet.used, fleet.capacity) == (int(budget), int(budget))


@pytest.mark.parametrize(("place", "left"), [(0, 6), (1, 7), (2, 7)])
async def test_server_that_is_away_takes_its_share_along_and_nothing_else(place: int, left: int) -> None:
    town = Town(3)
    sidecars = town.sidecars(NAMES)
    await beats(sidecars)
    away(town, place)
    assert outcomes(await claims(sidecars))["granted"] == left
    away(town)
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
    town = Town(servers)
    budget = town.sidecar()
    away(town, *gone)
    assert outcome(await budget.claim(claim("a"))) == told
    assert outcome(await budget.retire(lease("b"))) == told
    assert await budget.resign("a", "a") == (True if told == "granted" else Unknown(told))


async def test_claim_that_a_majority_did_not_take_counts_for_nobody_and_its_token_is_found_again() -> None:
    town = Town(3, GATED)
    one, other = town.sidecar(), town.sidecar()
    for server in town.servers[1:]:
        server.loses = {"commit": "request"}
    assert isinstance(await one.claim(claim("a")), Unknown)
    for server in town.servers[1:]:
        server.loses = {}
    for budget in (one, other):
        await budget.beat(suspect("a" if budget is one else "b", first=True))
    answer = await one.claim(claim("a"))
    assert isinstance(answer, Granted)
    assert not answer.replayed
    assert sum(await grants(town)) == 1
    assert outcome(await other.claim(claim("b"))) == "trial"


async def test_fixed_windows_share_the_budget_between_the_article_s_counters() -> None:
    town = Town(3, strategy="fixed")
    sidecars = [town.sidecar(counter=lambda: Counter("errorWatcher:0", 600, 100.0)) for _ in NAMES]
    answers = [await one.claim(claim(name)) for one, name in zip(sidecars, NAMES, strict=True)]
    assert outcomes(answers) == {"granted": 10, "window": 10}
    assert await grants(town) == [4, 3, 3]


# -- gates of the whole fleet -------------------------------------------------------------------------------------


@pytest.mark.parametrize("gone", [None, 0, 1, 2], ids=str)
async def test_spacing_holds_over_all_servers_together(gone: int | None) -> None:
    town = Town(3, spacing_us=30 * S)
    sidecars = town.sidecars(NAMES)
    for number, name in enumerate(NAMES[:3]):
        assert outcome(await sidecars[name].claim(claim(name))) == "granted"
        if gone is not None:
            away(town, gone)
        late = NAMES[10 + number]
        answer = await sidecars[late].claim(claim(late))
        assert isinstance(answer, Denied)
        assert (answer.reason, answer.retry_after_s) == ("spacing", 30.0)
        away(town)
        town.passes(30)


async def test_trial_and_outcomes_are_of_all_servers_together() -> None:
    town = Town(3, GATED, refund_max=0)
    sidecars = town.sidecars(NAMES)
    await beats(sidecars)
    assert outcomes(await claims(sidecars)) == {"granted": 1, "trial": 19}
    await sidecars["i00"].beat(down("i00"))
    away(town, 0)
    await sidecars["i00"].beat(beat("i00", life="2"))
    town.passes(60)
    away(town, 1)
    fleet = await fleet_of(sidecars["i00"], beat("i00", life="2"))
    assert (fleet.trials, fleet.helped) == ((CauseTrial("redis", 2, 0),), 1)
    away(town)
    await beats(dict(list(sidecars.items())[1:]))
    assert outcomes(await claims(sidecars, NAMES[1:])) == {"granted": 2, "trial": 17}


async def test_floor_holds_over_all_servers_together() -> None:
    town = Town(3, min_healthy="900p", capacity="20")
    sidecars = town.sidecars(NAMES)
    await beats(sidecars)
    assert outcomes(await claims(sidecars)) == {"granted": 2, "floor": 18}


async def test_slots_are_of_all_servers_together() -> None:
    town = Town(3)
    sidecars = town.sidecars(NAMES[:4])
    await beats(sidecars, suspects=False)
    assert outcome(await sidecars["i00"].retire(lease("i00"))) == "granted"
    for gone in range(3):
        away(town, gone)
        assert outcome(await sidecars["i01"].retire(lease("i01"))) == "slots"
        assert outcome(await sidecars["i00"].retire(lease("i00"))) == "granted"
    away(town, 2)
    assert await sidecars["i00"].resign("i00", "i00's") is True
    away(town)
    await sidecars["i00"].beat(beat("i00"))
    assert outcome(await sidecars["i01"].retire(lease("i01"))) == "granted"


async def test_servers_whose_clocks_differ_are_one_budget_all_the_same() -> None:
    town = Town(3, SAFE, trial=True)
    for place, server in enumerate(town.servers):
        server.ahead_us = (place - 1) * 3600 * S
    sidecars = town.sidecars(NAMES)
    for _ in range(3):
        await beats(sidecars)
        town.passes(10)
    assert outcomes(await claims(sidecars)) == {"granted": 1, "trial": 19}
    fleet = await fleet_of(sidecars["i00"], down("i00"))
    assert (fleet.losses, fleet.down) == (0, 1)
    await sidecars["i00"].beat(beat("i00", life="2"))
    town.passes(10)
    assert (await fleet_of(sidecars["i00"], suspect("i00", life="2"))).trials == (CauseTrial("redis", 1, 0, 600.0, 1),)
    town.passes(10)
    assert {trial.paused_s for name in NAMES for trial in (await fleet_of(sidecars[name], beat(name))).trials} == {590}


# -- away and back ------------------------------------------------------------------------------------------------


async def test_server_that_was_away_is_brought_up_to_date_at_the_next_beat() -> None:
    town = Town(3, GATED)
    sidecars = town.sidecars(NAMES[:4])
    await beats(sidecars)
    away(town, 2)
    await sidecars["i00"].claim(claim("i00"))
    await sidecars["i00"].hold("i03", "ann", "look", 60.0)
    await sidecars["i00"].retire(lease("i01"))
    away(town)
    await sidecars["i02"].beat(suspect("i02"))
    one, _, other = [await server.content() for server in town.servers]
    assert (one.state, one.culls, one.leases, one.holds) == (other.state, other.culls, other.leases, other.holds)
    before = sum(server.calls["commit"] for server in town.servers)
    await sidecars["i02"].beat(suspect("i02"))
    assert sum(server.calls["commit"] for server in town.servers) == before


async def test_orders_at_a_server_that_is_cut_off_take_nothing_back_that_the_others_decided() -> None:
    town = Town(3, GATED)
    sidecars = town.sidecars(NAMES[:4])
    await beats(sidecars)
    away(town, 2)
    assert outcome(await sidecars["i00"].claim(claim("i00"))) == "granted"
    away(town, 0, 1)
    for reason in ("one", "two", "three"):
        assert isinstance(await sidecars["i01"].hold("", "ann", reason, 60.0), Hold)
    assert await sidecars["i01"].release("") is True
    away(town)
    await beats(sidecars)
    assert outcomes(await claims(sidecars, NAMES[1:4])) == {"trial": 3}


async def test_beat_goes_to_all_servers_at_once_however_long_one_takes() -> None:
    town = Town(3)
    town.servers[0].is_hung = True
    beating = asyncio.ensure_future(town.sidecar().beat(beat("a")))
    await eventually(lambda: all(one.calls["beat"] for one in town.servers), timeout_s=20, what="all are told")
    assert not beating.done()
    beating.cancel()
    with pytest.raises(asyncio.CancelledError):
        await beating


async def test_beat_tells_who_is_away_and_is_answered_as_long_as_one_is_there() -> None:
    town = Town(3)
    budget = town.sidecar()
    await budget.beat(beat("a"))
    away(town, 0, 2)
    fleet = await fleet_of(budget, beat("a"))
    assert (fleet.alive, fleet.away) == (1, ("a: connection", "c: connection"))
    away(town, 0, 1, 2)
    assert await budget.beat(beat("a")) == Unknown("connection")


async def test_fleet_is_what_the_best_informed_server_knows_of_it() -> None:
    town = Town(3)
    sidecars = town.sidecars(NAMES)
    away(town, 1)
    await beats(sidecars)
    away(town)
    fleet = await fleet_of(sidecars["i00"], suspect("i00"))
    assert (fleet.alive, fleet.suspect, fleet.cause) == (20, 20, "redis")


async def test_restart_that_a_server_did_not_hear_of_is_no_duplicate() -> None:
    town = Town(3)
    budget = town.sidecar()
    await budget.beat(suspect("a", life="1"))
    away(town, 2)
    for _ in range(2):
        await budget.beat(suspect("a", life="2"))
    away(town)
    assert not (await fleet_of(budget, suspect("a", life="2"))).duplicate
    assert outcome(await budget.claim(claim("a", life="2"))) == "granted"


@pytest.mark.parametrize("gone", [None, 0, 1, 2], ids=str)
async def test_two_lives_under_one_name_are_noticed_wherever_they_meet(gone: int | None) -> None:
    town = Town(3)
    one, two = town.sidecar(), town.sidecar()
    if gone is not None:
        away(town, gone)
    for _ in range(2):
        await one.beat(suspect("a", life="1"))
        await two.beat(suspect("a", life="2"))
    assert outcomes([await one.claim(claim("a")), await two.claim(claim("a", life="2"))]) == {"duplicate": 2}


# -- holds --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", range(3))
async def test_hold_that_one_server_alone_heard_of_holds_and_reaches_the_others_with_the_next_beat(
    place: int,
) -> None:
    town = Town(3)
    sidecars = town.sidecars(NAMES[:3])
    await beats(sidecars)
    away(town, *({0, 1, 2} - {place}))
    held = await sidecars["i00"].hold("", "ann", "deploy", 3600.0)
    assert held == Hold("ann", "deploy", START_US / S + 3600)
    away(town)
    assert outcome(await sidecars["i01"].claim(claim("i01"))) == "hold"
    assert (await fleet_of(sidecars["i01"], beat("i01"))).hold == held
    away(town, place)
    assert outcome(await sidecars["i02"].claim(claim("i02"))) == "hold"


@pytest.mark.parametrize("place", range(3))
async def test_release_that_one_server_did_not_hear_of_counts_all_the_same(place: int) -> None:
    town = Town(3)
    sidecars = town.sidecars(NAMES[:3])
    await sidecars["i00"].hold("", "ann", "deploy", 3600.0)
    town.passes(5)
    away(town, place)
    assert await sidecars["i00"].release("") is True
    away(town)
    assert outcome(await sidecars["i01"].claim(claim("i01"))) == "granted"
    assert await sidecars["i00"].release("") is False
    await sidecars["i01"].beat(beat("i01"))
    away(town, *({0, 1, 2} - {place}))
    assert (await fleet_of(sidecars["i02"], beat("i02"))).hold is None


@pytest.mark.parametrize("order", ["hold", "release"])
async def test_order_that_no_server_hears_is_unknown(order: str) -> None:
    town = Town(3)
    away(town, 0, 1, 2)
    budget = town.sidecar()
    asked = budget.hold("", "ann", "deploy", 60.0) if order == "hold" else budget.release("")
    assert await asked == Unknown("connection")


# -- memory -------------------------------------------------------------------------------------------------------


async def heard(town: Town) -> dict[str, FleetBudget]:
    """Sidecars of a fleet that its servers have heard."""
    sidecars = town.sidecars(NAMES)
    for _ in range(3):
        await beats(sidecars)
        town.passes(10)
    return sidecars


@pytest.mark.parametrize(("place", "left"), [(0, 6), (1, 7), (2, 7)])
async def test_server_that_lost_its_memory_grants_nothing_and_the_others_go_on(place: int, left: int) -> None:
    town = Town(3, SAFE)
    sidecars = await heard(town)
    town.servers[place].forget()
    await beats(sidecars)
    assert outcomes(await claims(sidecars)) == {"granted": left, "window": 20 - left}
    assert {(await fleet_of(budget, suspect(name))).losses for name, budget in sidecars.items()} == {1}


async def test_majority_that_lost_its_memory_grants_nothing_for_a_window() -> None:
    town = Town(3, SAFE)
    sidecars = await heard(town)
    for server in town.servers[1:]:
        server.forget()
    assert outcomes(await claims(sidecars, NAMES[:3])) == {"data_loss": 3}
    for _ in range(61):
        await beats(sidecars)
        town.passes(10)
    assert outcome(await sidecars["i00"].claim(claim("i00"))) == "granted"
    assert (await fleet_of(sidecars["i00"], suspect("i00"))).losses == 2


async def test_loss_that_one_server_could_not_write_down_is_noticed_again() -> None:
    town = Town(3, SAFE)
    sidecars = {"i00": (await heard(town))["i00"]}
    town.servers[2].ahead_us = 700 * S
    town.servers[2].loses = {"commit": "request"}
    await beats(sidecars)
    town.servers[2].loses = {}
    await beats(sidecars)
    away(town, 0)
    assert outcome(await sidecars["i00"].claim(claim("i00"))) == "data_loss"


async def test_losses_of_a_server_that_is_away_still_count() -> None:
    town = Town(3, SAFE)
    sidecars = await heard(town)
    town.servers[0].forget()
    told = [(await fleet_of(sidecars["i00"], suspect("i00"))).losses]
    away(town, 0)
    told.append((await fleet_of(sidecars["i00"], suspect("i00"))).losses)
    away(town)
    told.append((await fleet_of(sidecars["i00"], suspect("i00"))).losses)
    assert told == [1, 1, 1]


# -- at once ------------------------------------------------------------------------------------------------------


@in_virtual_time
@pytest.mark.parametrize(("terms", "granted"), [(GATED, 1), (WINDOW_ONLY, 10)], ids=["trial", "window"])
async def test_claims_at_once_are_all_answered_and_those_that_met_half_way_stop_nobody(
    terms: Terms, granted: int
) -> None:
    town = Town(3, terms)
    town.pause = asyncio.sleep
    sidecars = town.sidecars([f"i{number}" for number in range(100)])
    await beats(sidecars)
    for server in town.servers:
        server.takes_s = 0.001
    answers = await asyncio.gather(*(budget.claim(claim(name)) for name, budget in sidecars.items()))
    told = outcomes(answers)
    assert set(told) <= {"granted", "window", "trial", "contended"}
    assert told["contended"] <= 5
    for server in town.servers:
        server.takes_s = None
    assert outcomes(await claims(sidecars))["granted"] == granted
    assert all(used <= share for used, share in zip(await grants(town), (4, 3, 3), strict=True))


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
    town = Town(3, capacity="4", window_us=60 * S)
    sidecars = town.sidecars(NAMES[:8])
    lives, culls = dict.fromkeys(sidecars, 0), []
    for number, passes_s, faults in rounds:
        town.passes(passes_s)
        name = NAMES[number]
        await sidecars[name].beat(suspect(name, life=str(lives[name])))
        for server, fault in zip(town.servers, faults, strict=True):
            server.fails = "connection" if fault == "away" else ""
            server.loses = {"commit": fault} if fault in ("request", "reply") else {}  # type: ignore[dict-item]
        if isinstance(await sidecars[name].claim(claim(name, life=str(lives[name]))), Granted):
            culls.append(town.now_us)
            lives[name] += 1
        for server in town.servers:
            server.fails, server.loses = "", {}
    return culls


# -- for a person -------------------------------------------------------------------------------------------------


async def test_roll_is_told_by_those_who_are_there() -> None:
    town = Town(3)
    sidecars = town.sidecars(NAMES[:3])
    await beats(sidecars)
    await claims(sidecars, NAMES[:2])
    held = await sidecars["i00"].hold("i02", "ann", "look", 60.0)
    for gone in ((), (0,), (1, 2)):
        away(town, *gone)
        roll = await sidecars["i00"].roll()
        assert isinstance(roll, Roll)
        assert [(member.instance, member.presence) for member in roll.members] == [
            ("i00", Presence.DOWN),
            ("i01", Presence.DOWN),
            ("i02", Presence.SUSPECT),
        ]
        used = [used for place, used in enumerate(await grants(town)) if place not in gone]
        assert (roll.holds, roll.used) == ((held,), sum(used))
    away(town, 0, 1, 2)
    assert await sidecars["i00"].roll() == Unknown("connection")


async def test_all_servers_are_closed() -> None:
    town = Town(3)
    await town.sidecar().aclose()
    assert [server.closed for server in town.servers] == [1, 1, 1]


# -- the ledger ---------------------------------------------------------------------------------------------------

MANY = [Entry("suspect", START_US / S + number, "a", str(number)) for number in range(4)]


async def page_of(budget: Budget, after: str = "", most: int = 100) -> tuple[list[Entry], str]:
    """The entries as they were noted, and where the page ends."""
    page = await budget.entries(0.0, after, most)
    assert not isinstance(page, Unknown)
    return [entry._replace(id="") for entry in page], page[-1].id if page else after


async def test_entries_go_to_the_first_server_that_answers_and_are_read_from_all() -> None:
    town = Town(2)
    budget = town.sidecar()
    await budget.note([MANY[0]])
    town.passes(1)
    away(town, 0)
    await budget.note([MANY[1]])
    assert (await page_of(budget))[0] == [MANY[1]]
    town.passes(1)
    away(town)
    await budget.note([MANY[2]])
    assert (await page_of(budget))[0] == MANY[:3]


async def test_entry_that_two_servers_have_is_read_once_whatever_the_page() -> None:
    town = Town(2)
    budget = town.sidecar()
    for server in town.servers:
        await server.note(MANY[:3])
    for most in (1, 2, 3, 9):
        seen, after = [], ""
        for _ in range(6):
            page, after = await page_of(budget, after, most)
            seen += page
        assert seen == MANY[:3], most


async def test_reader_misses_nothing_of_a_server_whose_clock_is_behind() -> None:
    town = Town(2)
    budget = town.sidecar()
    town.servers[0].ahead_us = 3600 * S
    await town.servers[0].note([MANY[0]])
    _, after = await page_of(budget)
    await town.servers[1].note([MANY[1]])
    assert (await page_of(budget, after))[0] == [MANY[1]]


async def test_what_no_server_answers_is_unknown() -> None:
    town = Town(3)
    budget = town.sidecar()
    away(town, 0, 1, 2)
    town.servers[0].fails = "timeout"
    answers = [await budget.note([MANY[0]]), await budget.entries(0.0, "", 10), await budget.first("word", 60)]
    assert answers == [Unknown("timeout")] * 3


async def test_decision_is_told_to_the_ledger_once() -> None:
    town = Town(3, GATED)
    budget = town.sidecar()
    await budget.beat(suspect("a"))
    await budget.claim(claim("a"))
    await budget.beat(down("a"))
    await budget.beat(beat("a", life="2"))
    assert [entry.what for entry in (await page_of(budget))[0]] == ["replaced"]
