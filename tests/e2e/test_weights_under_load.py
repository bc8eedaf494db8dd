"""Weights: four apps with real sidecars behind a real HAProxy, under constant load.

The shipped configuration retries a failed GET on another server, and no POST.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from harness.cascade import NAMES, CascadeSite, await_status, await_weight, weights
from harness.traffic import failed, lost
from harness.waiting import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from harness.children import Children
    from harness.sidecar import Setting

pytestmark = [pytest.mark.haproxy, pytest.mark.site]

MEASURED = 3_000
"""Answers, in ten seconds: an app that stops for a moment gets less meanwhile."""

TOLERANCE = 0.04

OpenSite = Callable[..., CascadeSite]


@pytest.fixture
def open_site(run_dir: Path, children: Children) -> Iterator[OpenSite]:
    with ExitStack() as stack:

        def opened(*failing: float, **settings: Setting) -> CascadeSite:
            site = CascadeSite(run_dir, children, settings).open()
            site.fail(*failing)
            stack.enter_context(site.traffic)
            return site

        yield opened


def _share_of_app1(site: CascadeSite) -> float:
    """The requests of app2 for each one of app1."""
    share = site.shares(MEASURED)
    return share["app2"] / share["app1"]


def test_half_failing_app_gets_an_eighth_and_recovers_when_it_heals(open_site: OpenSite) -> None:
    site = open_site(0, 0.5, 0, 0, error_ratio=0)
    await_weight(site.proxy, "app2", 11, 14, timeout_s=60)
    assert _share_of_app1(site) == pytest.approx(0.125, abs=TOLERANCE)
    assert {weights(site.proxy)[name] for name in NAMES if name != "app2"} == {100}
    assert failed(site.traffic.seen(), "GET") == 0

    site.fail(0, 0, 0, 0)
    await_weight(site.proxy, "app2", 50, 100, timeout_s=60)
    assert failed(site.traffic.next_answers(MEASURED), "POST") == 0
    assert lost(site.traffic.seen()) == {}


def test_dead_app_gets_the_floor_and_is_then_culled_without_a_lost_request(open_site: OpenSite) -> None:
    # The weight falls within seconds, long before the suspect has settled.
    site = open_site(0, 1, 0, 0, error_ratio=0.9, check_interval="500ms", settle="20s", drain="5s")
    sidecar = site.sidecars["app2"]
    sidecar.post_error(count=0, app_start="life-1")  # a life that is young, however long the shop took to open
    await_weight(site.proxy, "app2", 10, 10, timeout_s=60)
    assert sidecar.agent_line() == "up ready 10%\n"

    await_status(site.proxy, "app2", "DRAIN", timeout_s=60)
    assert sidecar.agent_line().startswith("drain 0% #")
    wait_for(lambda: sidecar.health("/health/nomad")[0] == 503, timeout_s=60, what="Nomad sees 503")
    site.apps["app2"].stop()
    answers = site.traffic.next_answers(MEASURED)
    assert {outcome.app for outcome in answers} == {"app1", "app3", "app4"}
    assert (failed(answers, "POST"), lost(site.traffic.seen())) == (0, {})

    sidecar.stop()
    sidecar.start()
    assert sidecar.agent_line().startswith("fail #")
