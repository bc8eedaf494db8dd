"""Which incarnation of the app a report is about, and what the first report of another one begins."""

from __future__ import annotations

from harness.cases import cases
from harness.controller import POLICY, WALL_S, ControllerRig
from harness.virtual_time import in_virtual_time, settle
from sidecar.controller.journal import SavedIncarnation
from sidecar.core.app_reports import AppListening, ErrorReport, Report, Sample
from sidecar.core.claims import Granted
from sidecar.core.life.container import resume, start
from sidecar.core.life.events import Restarted
from sidecar.core.types import Latch, State

GRANTED = Granted(1, 10)
NO_SETTLE = POLICY._replace(settle_s=0.0)
AT_ONCE = NO_SETTLE._replace(drain_s=0.0)


@in_virtual_time
async def test_restart_of_the_app_cancels_the_claim_of_the_old_life() -> None:
    async with ControllerRig(NO_SETTLE) as rig:
        await rig.errors(5, app_start="boot-1")
        await rig.errors(1, app_start="boot-2")
        assert rig.budget.cancelled == ["web/a/boot-1"]
        assert rig.controller.snapshot.evidence.errors == 1
        await rig.errors(4, app_start="boot-2")
        await rig.advance(10)
        assert rig.budget.outstanding == ["web/a/boot-2"]
        assert rig.budget.most_at_once == 1


# -- which reports count ----------------------------------------------------------------------------------------


def app(errors: int, app_start: str) -> ErrorReport:
    return ErrorReport(errors, app_start=app_start)


def page(errors: int, app_start: str) -> Sample:
    return Sample({"redis": errors}, requests=10, app_start=app_start)


BOTH, BOTH_ANEW = [page(1, "100.5"), app(1, "boot-1")], [page(1, "200.5"), app(1, "boot-2")]


@cases(
    "reports, errors, stale, restarts",
    {
        "the app names another incarnation": (
            [app(1, "boot-1"), app(2, "boot-2"), app(9, "boot-1"), app(1, "boot-2")],
            3,
            1,
            1,
        ),
        "its page does": ([page(3, "100.5"), page(1, "200.5"), page(4, "100.5"), page(0, "200.5")], 1, 1, 1),
        "both name one incarnation": (3 * BOTH, 6, 0, 0),
        "the app first": (3 * BOTH[::-1], 6, 0, 0),
        "both name another one": ([*BOTH, *BOTH_ANEW, *BOTH, *BOTH_ANEW], 4, 2, 1),
        "another one, the app first": ([*BOTH, *BOTH_ANEW[::-1], *BOTH, *BOTH_ANEW], 4, 2, 1),
    },
)
@in_virtual_time
async def test_reports_of_the_current_incarnation_count(
    reports: list[Report], errors: int, stale: int, restarts: int
) -> None:
    async with ControllerRig() as rig:
        for report in reports:
            await rig.reports(report)
        assert (rig.controller.snapshot.evidence.errors, rig.controller.stale_reports) == (errors, stale)
        assert sum(isinstance(event, Restarted) for event in rig.events) == restarts


@cases(
    "remembered, same, other",
    {
        "by the app": ("boot-1", ErrorReport(0, app_start="boot-1"), ErrorReport(0, app_start="boot-2")),
        "by the app, and then by its page": ("boot-1", page(0, "100.5"), page(0, "200.5")),
        "by its page": ("page:100.5", page(0, "100.5"), page(0, "200.5")),
        "by its page, and then by the app": ("page:100.5", ErrorReport(0, app_start="boot-1"), page(0, "200.5")),
    },
)
@in_virtual_time
async def test_life_that_is_remembered_is_known_again_by_its_name(
    remembered: str, same: ErrorReport | Sample, other: ErrorReport | Sample
) -> None:
    life = start("web/a", 1000.0, AT_ONCE, app_start=remembered, asked_under=remembered)
    latch = Latch(f"web/a/{remembered}", WALL_S, "sick")
    async with ControllerRig(AT_ONCE, container=resume(life, latch, 1000.0, 99.0, AT_ONCE)) as rig:
        await rig.reports(same)
        assert rig.latch == latch
        await rig.reports(other)
        assert rig.latch is None


@in_virtual_time
async def test_socket_of_the_incarnation_is_remembered_from_when_it_is_seen() -> None:
    async with ControllerRig() as rig:
        await rig.reports(ErrorReport(1, app_start="boot-1"))
        await rig.reports(AppListening("4711"))
        assert rig.notes.last == SavedIncarnation("web/a", "boot-1", "boot-1", socket="4711")
        await rig.reports(AppListening("4712"))
        assert rig.notes.last == SavedIncarnation("web/a", "port:4712", "port:4712", socket="4712")
        saved = len(rig.notes.saved)
        await rig.reports(AppListening("4712"), ErrorReport(1, app_start="boot-2"))
        assert len(rig.notes.saved) == saved
        await rig.reports(ErrorReport(1, app_start="boot-3"))
        assert rig.notes.last.socket == ""


@in_virtual_time
async def test_culled_app_without_an_id_is_followed_by_a_clean_start() -> None:
    async with ControllerRig(AT_ONCE) as rig:
        await rig.errors(5)
        await rig.answered(GRANTED)
        assert rig.state() is State.DOWN
        await rig.errors(1, app_start="boot-2")
        assert (rig.state(), rig.latch, rig.controller.snapshot.evidence.errors) == (State.UP, None, 1)
        assert sum(isinstance(event, Restarted) for event in rig.events) == 1
        await rig.errors(4, app_start="boot-2")
        assert rig.budget.asked == ["web/a/-", "web/a/boot-2"]
        assert rig.notes.last == SavedIncarnation("web/a", "boot-2", "boot-2")


@in_virtual_time
async def test_new_incarnations_are_at_most_ten_a_second() -> None:
    async with ControllerRig() as rig:
        rig.controller.inbox.offer([ErrorReport(app_start=f"boot-{number}") for number in range(100)])
        await settle()
        assert rig.controller.container.incarnation == "boot-9"
        assert rig.controller.stale_reports == 90
        await rig.advance(1)
        await rig.errors(1, app_start="boot-last")
        assert rig.controller.container.incarnation == "boot-last"
