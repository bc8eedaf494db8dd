"""What the stories under a real Nomad share: the jobs with their settings, a cull, and a deployment under way."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from deploy.nomad_site import COUNT, Case, Clock, NomadSite
from harness.traffic import Outcome, Traffic, lost

if TYPE_CHECKING:
    from deploy.nomad_agent import Allocation

RATE: Final = 50
RESTORED_S: Final = 60.0
NO_TRIAL: Final = {"ARBITER_TRIAL": "off"}
"""So that no story waits for the outcome of the one before."""

IN_PLACE: Final = {"ARBITER_ACTION": "nomad-restart", "ARBITER_NOMAD_TASK": "app"}
STOP: Final = Case("task API", NO_TRIAL)
RESTART: Final = Case("task API", {**NO_TRIAL, **IN_PLACE})
CHECK: Final = Case("check", NO_TRIAL)


def see_a_cull(site: NomadSite, clock: Clock, case: Case, *, within_s: float) -> None:
    """One app gets sick, and is restarted by the action of this case without a lost GET, so soon after the grant."""
    sick = site.deploy(case)[0]
    with Traffic(site.front, RATE) as traffic:
        traffic.next_answers(RATE)
        restored_s = cull(site, clock, case, sick)
        traffic.next_answers(RATE)
    clock.until(site.is_well, "all are judged, and up")
    assert restored_s < within_s
    gets = lost_gets(traffic)
    assert gets == {}, gets


def cull(site: NomadSite, clock: Clock, case: Case, sick: Allocation) -> float:
    """This app gets sick, and is restarted by the action of this case.

    The seconds from the grant until HAProxy had as many servers as before.
    """
    pid, is_in_place = site.app_pid(sick), "ARBITER_NOMAD_TASK" in case.settings
    clock.restart()
    site.make_sick(sick)
    granted = clock.until(lambda: site.is_draining(sick), "granted")
    clock.until(lambda: sick.id not in site.servers(), "out of HAProxy")
    clock.until(lambda: has_ended(pid), "the app has ended")
    clock.until(lambda: count_without(site, None if is_in_place else sick) == COUNT, "as many run as before")
    restored = clock.until(lambda: len(site.servers()) == COUNT, "HAProxy has as many servers as before")
    after = site.now(sick)
    assert after.restarts == {"app": int(is_in_place), "arbiter": 0}
    assert after.client_status == {"check": "failed", "task API": "running" if is_in_place else "complete"}[case.name]
    return restored - granted


def has_ended(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def lost_gets(traffic: Traffic) -> dict[Outcome, int]:
    """The GETs that no app answered, by their outcome."""
    return {each: count for each, count in lost(traffic.so_far()).items() if each.method == "GET"}


def count_without(site: NomadSite, ended: Allocation | None) -> int:
    """The number of allocations that run; Nomad takes a moment to see that this one has ended."""
    return sum(ended is None or one.id != ended.id for one in site.nomad.running())
