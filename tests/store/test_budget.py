"""Answers of a budget over one store, with conflicts and lost requests and replies."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from harness.claims import WINDOW_ONLY, S, beat, claim, down, lease, suspect
from harness.server_group import START_US, Lost, ServerGroup, outcome, outcomes
from harness.virtual_time import in_virtual_time
from sidecar.core.claims import Denied, Fleet, Granted, Presence, Unknown
from sidecar.core.fleet.members import Member, MemberList
from sidecar.core.types import Entry
from sidecar.store.budget import DECISION_LIMIT_S, MAX_ATTEMPTS, MAX_PAUSE_S, Counter, FleetBudget
from sidecar.store.protocol import Over

GATED = replace(WINDOW_ONLY, trial=True, refund_max=0)
SAFE = replace(WINDOW_ONLY, after_loss_wait=True)
START_S = START_US / S
SETTLED_S = 20.0
"""Time until a new server has had beats of the whole fleet."""


async def fleet_of(budget: FleetBudget, told: Any) -> Fleet:
    answer = await budget.beat(told)
    assert isinstance(answer, Fleet), answer
    return answer


async def member_list_of(budget: FleetBudget) -> MemberList:
    answer = await budget.member_list()
    assert isinstance(answer, MemberList), answer
    return answer


async def told_of(budget: FleetBudget) -> list[tuple[str, str, str]]:
    """The ledger: event, instance, reason."""
    entries = await budget.entries(0.0, "", 100)
    assert not isinstance(entries, Unknown)
    return [(entry.what, entry.instance, entry.reason) for entry in entries]


# -- the article's counter ----------------------------------------------------------------------------------------


class Wall:
    """The article's key of a window of a local clock."""

    def __init__(self) -> None:
        self.index = 0

    def __call__(self) -> Counter:
        return Counter(f"errorWatcher:{self.index}", 600, 100.0)


FIXED = replace(WINDOW_ONLY, strategy="fixed", capacity="3")


async def test_fixed_windows_are_counted_by_the_article_s_key_and_left_alone_by_replays() -> None:
    group, wall = ServerGroup(FIXED), Wall()
    sidecars = [group.sidecar(counter=wall) for _ in range(5)]
    answers = [await one.claim(claim(name)) for one, name in zip(sidecars, "abcde", strict=True)]
    assert answers[:3] == [Granted(1, 3), Granted(2, 3), Granted(3, 3)]
    assert answers[3] == Denied("window", 4, 3, 100.0)
    assert isinstance(replayed := await sidecars[0].claim(claim("a")), Granted)
    assert replayed.replayed
    wall.index += 1
    assert outcome(await sidecars[3].claim(claim("d"))) == "granted"
    assert group.server.calls["count"] == 6


async def test_claim_that_meets_others_is_counted_once() -> None:
    group, wall = ServerGroup(FIXED), Wall()
    sidecars = [group.sidecar(counter=wall) for _ in range(20)]
    group.server.takes_s = 0
    answers = await asyncio.gather(*(one.claim(claim(f"i{n}")) for n, one in enumerate(sidecars)))
    assert outcomes(answers) == {"granted": 3, "window": 17}
    assert group.server.calls["count"] == 20
    assert group.server.calls["commit"] > 3


async def test_counter_that_does_not_answer_grants_nothing() -> None:
    group = ServerGroup(FIXED)
    group.server.loses = {"count": "reply"}
    assert await group.sidecar(counter=Wall()).claim(claim("a")) == Unknown("timeout")
    assert (await group.server.content()).grants == {}


# -- what comes between -------------------------------------------------------------------------------------------


async def test_commit_that_meets_another_one_is_decided_anew() -> None:
    group = ServerGroup(capacity="1")
    late, quick = group.sidecar(), group.sidecar()
    group.server.between = lambda: quick.claim(claim("b"))
    assert outcome(await late.claim(claim("a"))) == "window"
    assert group.server.calls["commit"] == 2
    assert set((await group.server.content()).grants) == {"b"}


async def test_refusal_without_edits_commits_nothing() -> None:
    group = ServerGroup(capacity="1")
    budget = group.sidecar()
    await budget.claim(claim("a"))
    before = group.server.calls["commit"]
    assert outcome(await budget.claim(claim("b"))) == "window"
    assert group.server.calls["commit"] == before


async def test_claim_gives_up_after_a_bound_of_attempts_with_pauses_that_grow_and_are_spread() -> None:
    group = ServerGroup()
    late, quick = group.sidecar(), group.sidecar()
    names = iter(range(1000))

    async def again() -> None:
        await quick.hold("", "ann", str(next(names)), 0.0)
        group.server.between = again

    group.server.between = again
    await late.claim(claim("a"))  # the first one goes into the conflict of its own
    group.server.between = again
    assert await late.claim(claim("a")) == Unknown("contended")
    pauses = group.pauses[-MAX_ATTEMPTS:]
    assert len(pauses) == MAX_ATTEMPTS
    assert max(pauses[:4]) < max(pauses) <= MAX_PAUSE_S
    assert len(set(pauses)) == MAX_ATTEMPTS


async def test_claim_gives_up_when_its_time_is_over() -> None:
    group = ServerGroup()
    budget = group.sidecar()

    async def busy() -> None:
        group.advance(DECISION_LIMIT_S / 3)
        group.server.between = busy
        raise Over

    group.server.between = busy
    assert await budget.claim(claim("a")) == Unknown("contended")
    assert len(group.pauses) == 2


async def test_bound_that_the_store_keeps_is_an_answer_to_decide_anew() -> None:
    group = ServerGroup()
    budget = group.sidecar()

    async def full() -> None:
        raise Over

    group.server.between = full
    assert await budget.claim(claim("a")) == Granted(1, 10)
    assert len(group.pauses) == 1


@in_virtual_time
async def test_five_hundred_claims_at_once_are_all_answered_and_as_many_granted_as_there_are_tokens() -> None:
    group, loop = ServerGroup(), asyncio.get_running_loop()
    group.pause = asyncio.sleep
    group.server.takes_s = 0.001
    sidecars, began = [group.sidecar() for _ in range(500)], loop.time()
    answers = await asyncio.gather(*(one.claim(claim(f"i{n}")) for n, one in enumerate(sidecars)))
    assert outcomes(answers) == {"granted": 10, "window": 490}
    assert loop.time() - began < 2
    assert group.server.calls["commit"] >= 500


# -- what is lost -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("lost", "replayed"), [("request", False), ("reply", True)])
async def test_claim_without_a_reply_is_unknown_and_the_same_id_finds_its_grant(lost: Lost, *, replayed: bool) -> None:
    group = ServerGroup(GATED, capacity="1")
    budget, other = group.sidecar(), group.sidecar()
    group.server.loses = {"commit": lost}
    assert await budget.claim(claim("a")) == Unknown("timeout")
    group.server.loses = {}
    assert outcome(await other.claim(claim("b"))) == ("trial" if replayed else "granted")
    if replayed:
        assert await budget.claim(claim("a")) == Granted(1, 1, replayed=True)


CALLS: dict[str, Callable[[FleetBudget], Awaitable[object]]] = {
    "claim": lambda budget: budget.claim(claim("a")),
    "retire": lambda budget: budget.retire(lease("a")),
    "give_back": lambda budget: budget.give_back("a", "a"),
    "beat": lambda budget: budget.beat(beat("a")),
    "hold": lambda budget: budget.hold("", "ann", "deploy", 60.0),
    "release": lambda budget: budget.release(""),
    "member_list": lambda budget: budget.member_list(),
    "note": lambda budget: budget.note([Entry("culled")]),
    "entries": lambda budget: budget.entries(0.0, "", 10),
    "first": lambda budget: budget.first("word", 60.0),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize(("fails", "word"), [("oom", "oom"), (RuntimeError("broken"), "internal")], ids=str)
async def test_failure_of_the_store_is_unknown_by_its_word(
    call: Callable[[FleetBudget], Awaitable[object]], fails: str | Exception, word: str
) -> None:
    group = ServerGroup()
    group.server.fails = fails
    assert await call(group.sidecar()) == Unknown(word)


# -- beats, outcomes ----------------------------------------------------------------------------------------------


async def cull(group: ServerGroup, name: str, life: str = "1") -> None:
    """It is granted a token and goes down."""
    budget = group.sidecar()
    await budget.beat(suspect(name, life=life))
    assert outcome(await budget.claim(claim(name, life=life))) == "granted"
    claim_id = claim(name, life=life).claim_id
    await budget.beat(down(name, life=life, claim_id=claim_id))


async def test_replacement_by_another_name_takes_the_place_also_when_the_decision_of_its_first_beat_failed() -> None:
    group = ServerGroup(GATED)
    await cull(group, "a")
    await group.sidecar().beat(beat("a", Presence.GONE))
    newcomer = group.sidecar()
    group.server.loses = {"commit": "request"}
    assert isinstance(await newcomer.beat(beat("b", first=True)), Fleet)
    group.server.loses = {}
    fleet = await fleet_of(newcomer, beat("b"))
    assert fleet.down == 0
    assert await told_of(newcomer) == [("replaced", "a", "b")]


async def test_newcomer_whose_first_answer_was_lost_takes_the_place() -> None:
    group = ServerGroup(GATED)
    await cull(group, "a")
    await group.sidecar().beat(beat("a", Presence.GONE))
    newcomer = group.sidecar()
    group.server.loses = {"beat": "reply"}
    assert isinstance(await newcomer.beat(beat("b", first=True)), Unknown)
    group.server.loses = {}
    assert (await fleet_of(newcomer, beat("b", first=True))).down == 0


async def test_restarted_sidecar_takes_no_place_though_its_decision_failed_and_a_later_beat_had_no_answer() -> None:
    group = ServerGroup(GATED)
    await group.sidecar().beat(beat("b"))
    await cull(group, "a")
    await group.sidecar().beat(beat("a", Presence.GONE))
    restarted = group.sidecar()
    for lost, is_first in (("read", True), ("beat", False)):
        group.server.loses = {lost: "reply"}
        await restarted.beat(beat("b", first=is_first))
    group.server.loses = {}
    assert (await fleet_of(restarted, beat("b"))).down == 1


# -- two lives under one name -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "two"),
    [({"life": "1"}, {"life": "2"}), ({"identity": "x"}, {"identity": "y"})],
    ids=["two lives", "an app whose incarnation is the same text in every container"],
)
async def test_two_containers_under_one_name_may_neither_claim_nor_retire_until_one_is_gone(
    one: dict[str, str], two: dict[str, str]
) -> None:
    group = ServerGroup()
    budgets, other = [(group.sidecar(), key) for key in (one, two)], group.sidecar()
    for _ in range(3):
        fleets = [await fleet_of(budget, suspect("a", **key)) for budget, key in budgets]
    assert [fleet.duplicate for fleet in fleets] == [True, True]
    answers = [await budget.claim(claim("a", **key)) for budget, key in budgets]
    assert outcomes([*answers, await budgets[1][0].retire(lease("a"))]) == {"duplicate": 3}
    assert [(member.instance, member.duplicate) for member in (await member_list_of(other)).members] == [("a", True)]
    lists = [await member_list_of(budget) for budget in (budgets[0][0], budgets[1][0], other)]
    assert [listed.fleet.duplicate for listed in lists] == [True, True, False]
    group.advance(31)
    left = budgets[1][0]
    assert not (await fleet_of(left, suspect("a", **two))).duplicate
    assert outcome(await left.claim(claim("a", **two))) == "granted"


async def test_grant_is_not_repeated_to_another_container_of_the_same_name_and_incarnation() -> None:
    """Each had beaten once when both failed: then none of them knew of the other."""
    group = ServerGroup(capacity="4")
    one, two = group.sidecar(), group.sidecar()
    await one.beat(suspect("a", identity="x"))
    assert outcome(await one.claim(claim("a", identity="x"))) == "granted"
    await two.beat(suspect("a", identity="y"))
    assert outcome(await two.claim(claim("a", identity="y"))) == "duplicate"
    for _ in range(5):
        group.advance(10)
        await one.beat(down("a", identity="x"))
        await two.beat(suspect("a", identity="y"))
        assert outcome(await two.claim(claim("a", identity="y"))) == "duplicate"


async def test_sidecar_that_lost_its_state_has_its_grant_repeated_after_an_expiry() -> None:
    group = ServerGroup(capacity="4")
    lost = group.sidecar()
    await lost.beat(suspect("a", identity="x"))
    assert outcome(await lost.claim(claim("a", identity="x"))) == "granted"
    budget, answers = group.sidecar(), []
    for _ in range(5):
        await budget.beat(suspect("a", identity="y"))
        answers.append(await budget.claim(claim("a", identity="y")))
        group.advance(10)
    assert [outcome(answer) for answer in answers] == ["duplicate"] * 3 + ["granted"] * 2
    assert answers[-1] == Granted(1, 4, replayed=True, alive=0, suspect=1)


# -- memory -----------------------------------------------------------------------------------------------------


async def fleet_with_beats(group: ServerGroup, names: str = "abc") -> dict[str, FleetBudget]:
    """Sidecars of a fleet whose server has had their beats."""
    sidecars = group.sidecars(names)
    for _ in range(2):
        for name, budget in sidecars.items():
            await budget.beat(suspect(name))
        group.advance(SETTLED_S / 2)
    return sidecars


async def wait_out(group: ServerGroup, sidecars: dict[str, FleetBudget], seconds: float) -> None:
    """Time goes by, in which everybody beats."""
    for _ in range(round(seconds / 10)):
        group.advance(10)
        for name, budget in sidecars.items():
            await budget.beat(suspect(name))


@pytest.mark.parametrize("by_s", [3600.0, -3.0], ids=str)
@pytest.mark.parametrize("noticed_by", ["claim", "beat"])
async def test_stepped_clock_is_a_loss_even_if_it_could_not_be_written_at_first(noticed_by: str, by_s: float) -> None:
    group = ServerGroup(SAFE, capacity="1")
    sidecars = await fleet_with_beats(group, "ab")
    await sidecars["a"].claim(claim("a"))
    group.advance(1)
    group.server.ahead_us = round(by_s * S)
    group.server.loses = {"commit": "request"}
    call: Awaitable[Any]
    call = sidecars["b"].claim(claim("b")) if noticed_by == "claim" else sidecars["b"].beat(suspect("b"))
    answer = await call
    assert isinstance(answer, Fleet) or outcome(answer) == "data_loss", "a refusal counts although it is not written"
    group.server.loses = {}
    assert outcome(await sidecars["b"].claim(claim("b"))) == "data_loss"
    assert (await fleet_of(sidecars["b"], suspect("b"))).losses == 1
    await wait_out(group, sidecars, 610)
    assert outcome(await sidecars["b"].claim(claim("b"))) == "granted"


async def test_data_loss_that_could_not_be_written_at_first_is_still_noticed() -> None:
    group = ServerGroup(SAFE, capacity="1")
    sidecars = await fleet_with_beats(group, "a")
    group.server.forget()
    group.server.loses = {"commit": "request"}
    await sidecars["a"].beat(suspect("a"))
    group.server.loses = {}
    await wait_out(group, sidecars, SETTLED_S)
    assert outcome(await sidecars["a"].claim(claim("a"))) == "data_loss"


# -- what operators ask -----------------------------------------------------------------------------------------


async def test_member_list_shows_every_member_and_the_holds_and_settings_in_force() -> None:
    group = ServerGroup()
    await cull(group, "c")
    group.advance(5)
    sidecars = group.sidecars("ab")
    await sidecars["b"].beat(suspect("b"))
    await sidecars["a"].beat(beat("a"))
    hold = await sidecars["a"].hold("b", "ann", "look", 60.0)
    member_list = await member_list_of(sidecars["a"])
    assert member_list.members == (
        Member("a", Presence.WELL, "", 0.0),
        Member("b", Presence.SUSPECT, "redis", 0.0),
        Member("c", Presence.DOWN, "redis", 5.0),
    )
    assert (member_list.fleet.alive, member_list.fleet.suspect, member_list.fleet.down) == (2, 1, 1)
    assert (member_list.used, member_list.grants, member_list.holds) == (1, (START_S,), (hold,))
    assert member_list.settings == (group.terms.dump(),)
