"""The hall over several lives of its app: whose reports count, whose token is whose, and who starts clean."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.controller import POLICY, WALL_S, Stage
from harness.virtual_time import in_virtual_time, settle
from sidecar.controller.journal import Memory
from sidecar.core.life.container import resume, start
from sidecar.core.life.events import Answered
from sidecar.core.types import AppExited, Granted, Heartbeat, Latch, Ping, Report, Results, Sample, State

GRANTED = Granted(1, 10)
NO_SETTLE = replace(POLICY, settle_s=0.0)
AT_ONCE = replace(NO_SETTLE, drain_s=0.0)


@in_virtual_time
async def test_restart_of_the_app_cancels_the_claim_of_the_old_life() -> None:
    async with Stage(NO_SETTLE) as stage:
        await stage.errors(5, app_start="boot-1")
        await stage.errors(1, app_start="boot-2")
        assert stage.budget.cancelled == ["web/a/boot-1"]
        assert stage.controller.evidence().errors == 1
        await stage.errors(4, app_start="boot-2")
        await stage.passes(10)
        assert stage.budget.in_the_air == ["web/a/boot-2"]
        assert stage.budget.most_at_once == 1


@in_virtual_time
async def test_restart_in_the_message_that_asked_leaves_one_claim() -> None:
    async with Stage(NO_SETTLE) as stage:
        await stage.errors(1, app_start="boot-1")
        stage.controller.inbox.put([Ping(5, app_start="boot-1")])
        stage.controller.inbox.put([Ping(5, app_start="boot-2")])
        await settle()
        await stage.passes(10)
        assert stage.budget.asked == ["web/a/boot-2"]


@in_virtual_time
async def test_grant_to_the_old_life_says_nothing_about_the_new_one() -> None:
    async with Stage(NO_SETTLE, window_s=600) as stage:
        await stage.errors(5, app_start="boot-1")
        await stage.errors(5, app_start="boot-2")
        await stage.passes(10)
        stage.controller.inbox.put(Answered("web/a/boot-1", GRANTED, WALL_S))
        await settle()
        assert stage.state() is State.SUSPECT
        assert stage.budget.in_the_air == ["web/a/boot-2"]


@in_virtual_time
async def test_stale_reports_of_an_ended_life_are_counted_apart() -> None:
    async with Stage() as stage:
        await stage.errors(1, app_start="boot-1")
        await stage.errors(2, app_start="boot-2")
        await stage.pings(Ping(9, app_start="boot-1"), Ping(9, app_start="boot-1"), Ping(1, app_start="boot-2"))
        assert stage.controller.stale_reports == 2
        assert stage.controller.evidence().errors == 3
        assert stage.controller.container.app_start == "boot-2"


@in_virtual_time
async def test_ping_without_a_name_counts_for_the_life_we_watch() -> None:
    async with Stage() as stage:
        await stage.errors(1, app_start="boot-1")
        await stage.errors(2)
        assert stage.controller.evidence().errors == 3
        assert stage.controller.stale_reports == 0


@in_virtual_time
async def test_culled_app_that_is_replaced_starts_clean() -> None:
    async with Stage(replace(NO_SETTLE, drain_s=0.0)) as stage:
        await stage.errors(5, app_start="boot-1")
        await stage.answered(GRANTED)
        assert stage.state() is State.DOWN
        await stage.pings(Ping(0, app_start="boot-2"))
        await stage.passes(10)
        assert stage.state() is State.UP
        assert stage.notes.last == Memory("web/a", "boot-2", "boot-2")


# -- the names that a metrics page gives ----------------------------------------------------------------------


def page(errors: int, app_start: str | None) -> Sample:
    return Sample({"redis": errors}, requests=10, app_start=app_start)


@in_virtual_time
async def test_sample_of_a_new_life_begins_it_and_one_of_an_ended_life_is_stale() -> None:
    async with Stage() as stage:
        await stage.reports(page(3, "100.5"))
        await stage.reports(page(1, "200.5"))
        assert stage.controller.evidence().errors == 1
        await stage.reports(page(4, "100.5"), page(0, "200.5"))
        assert stage.controller.stale_reports == 1
        assert stage.controller.evidence().errors == 1
        assert stage.controller.evidence().requests == 20


@in_virtual_time
async def test_sample_without_a_name_counts_for_the_life_we_watch() -> None:
    async with Stage() as stage:
        await stage.reports(page(1, "100.5"), page(2, None))
        assert stage.controller.evidence().errors == 3


@pytest.mark.parametrize("first", ["page", "app"])
@in_virtual_time
async def test_app_and_page_may_call_one_life_by_two_names(first: str) -> None:
    both: list[Report] = [page(1, "100.5"), Ping(1, app_start="boot-1")]
    async with Stage() as stage:
        for report in 3 * (both if first == "page" else both[::-1]):
            await stage.reports(report)
        assert stage.controller.evidence().errors == 6
        assert stage.controller.stale_reports == 0
        assert not any(record.restarted for record in stage.records)


@pytest.mark.parametrize("first", ["page", "app"])
@in_virtual_time
async def test_either_name_that_changes_begins_a_life_and_ends_both_old_names(first: str) -> None:
    old: list[Report] = [page(1, "100.5"), Ping(1, app_start="boot-1")]
    new: list[Report] = [page(1, "200.5"), Ping(1, app_start="boot-2")]
    async with Stage() as stage:
        await stage.reports(*old)
        await stage.reports(*(new if first == "page" else new[::-1]))
        assert stage.controller.evidence().errors == 2
        await stage.reports(*old)
        assert stage.controller.stale_reports == 2
        await stage.reports(*new)
        assert stage.controller.evidence().errors == 4
        assert [record.restarted for record in stage.records].count(True) == 1


@in_virtual_time
async def test_culled_life_named_by_the_app_ends_when_its_page_names_another() -> None:
    async with Stage(AT_ONCE) as stage:
        await stage.reports(Ping(5, app_start="boot-1"))
        await stage.answered(GRANTED)
        await stage.reports(page(0, "100.5"))
        assert stage.state() is State.DOWN
        await stage.reports(page(0, "200.5"))
        assert (stage.state(), stage.latch) == (State.UP, None)


@pytest.mark.parametrize(
    ("remembered", "same", "other"),
    [
        ("boot-1", Ping(0, app_start="boot-1"), Ping(0, app_start="boot-2")),
        ("boot-1", page(0, "100.5"), page(0, "200.5")),
        ("page:100.5", page(0, "100.5"), page(0, "200.5")),
        ("page:100.5", Ping(0, app_start="boot-1"), page(0, "200.5")),
    ],
    ids=["by the app", "by the app, and then by its page", "by its page", "by its page, and then by the app"],
)
@in_virtual_time
async def test_life_that_is_remembered_is_known_again_by_its_name(
    remembered: str, same: Ping | Sample, other: Ping | Sample
) -> None:
    life = start("web/a", 1000.0, AT_ONCE, app_start=remembered, asked_under=remembered)
    latch = Latch(f"web/a/{remembered}", WALL_S, "sick")
    async with Stage(AT_ONCE, container=resume(life, latch, 1000.0, 99.0, AT_ONCE)) as stage:
        await stage.reports(same)
        assert stage.latch == latch
        await stage.reports(other)
        assert stage.latch is None


# -- an app that has gone -------------------------------------------------------------------------------------


@in_virtual_time
async def test_culled_app_that_has_gone_is_followed_by_a_clean_start() -> None:
    async with Stage(AT_ONCE) as stage:
        await stage.errors(5)
        await stage.answered(GRANTED)
        assert stage.state() is State.DOWN
        await stage.reports(AppExited())
        assert (stage.state(), stage.latch, stage.controller.evidence().errors) == (State.UP, None, 0)
        assert [record.restarted for record in stage.records].count(True) == 1
        await stage.errors(5)
        first, second = stage.budget.asked
        assert first == "web/a/-"
        assert second.startswith("web/a/after-")
        assert stage.notes.last == Memory("web/a", None, second.removeprefix("web/a/"))


@in_virtual_time
async def test_each_life_that_ends_without_a_name_has_a_word_of_its_own() -> None:
    async with Stage(NO_SETTLE) as stage:
        for _ in range(5):
            await stage.errors(5)
            await stage.reports(AppExited())
        assert len(set(stage.budget.asked)) == 5
        assert stage.budget.cancelled == stage.budget.asked


@in_virtual_time
async def test_reports_of_the_life_that_has_gone_are_stale() -> None:
    async with Stage() as stage:
        await stage.reports(Ping(2, app_start="boot-1"), page(2, "100.5"), AppExited())
        assert stage.controller.evidence().errors == 0
        await stage.reports(Ping(5, app_start="boot-1"), page(5, "100.5"))
        assert (stage.controller.stale_reports, stage.controller.evidence().errors) == (2, 0)
        await stage.reports(Ping(1, app_start="boot-2"), Ping(1))
        assert (stage.controller.container.app_start, stage.controller.evidence().errors) == ("boot-2", 2)


@in_virtual_time
async def test_what_was_told_before_the_end_does_not_count_after_it() -> None:
    async with Stage(NO_SETTLE) as stage:
        await stage.reports(Ping(4), Results(0, 30), Heartbeat(), AppExited(), Ping(1))
        evidence = stage.controller.evidence()
        assert (evidence.errors, evidence.requests, evidence.heartbeat_age_s) == (1, 0, None)
        assert stage.budget.asked == []


@in_virtual_time
async def test_going_opens_the_grace() -> None:
    async with Stage(replace(NO_SETTLE, grace_s=30.0)) as stage:
        await stage.passes(40)
        await stage.reports(AppExited())
        await stage.errors(5)
        await stage.passes(29)
        assert (stage.state(), stage.budget.asked) == (State.STARTING, [])


@in_virtual_time
async def test_name_that_comes_while_a_nameless_claim_is_in_the_air_keeps_its_word() -> None:
    async with Stage(NO_SETTLE) as stage:
        await stage.reports(AppExited())
        await stage.errors(5)
        await stage.errors(1, app_start="boot-2")
        await stage.answered(GRANTED)
        (claimed,) = stage.budget.asked
        assert stage.latch is not None
        assert stage.latch.claim_id == claimed
        word = claimed.removeprefix("web/a/")
        assert stage.notes.last == Memory("web/a", "boot-2", word, stage.latch)
