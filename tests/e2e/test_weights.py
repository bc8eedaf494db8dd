"""Health as a weight: four apps with real sidecars behind a real HAProxy, under constant load.

By the shipped configuration a GET that fails is repeated elsewhere, and a POST is not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.cascade import await_status, await_weight, status, weights
from harness.shop import NAMES, Shop
from harness.traffic import failed, lost
from harness.waiting import wait_for

if TYPE_CHECKING:
    from harness.sidecar import Setting
    from harness.starting import Children

pytestmark = [pytest.mark.haproxy, pytest.mark.timeout(120)]

MEASURED = 600
"""Answers, in two seconds."""

OpenShop = Callable[..., Shop]


@pytest.fixture
def open_shop(run_dir: Path, children: Children) -> Iterator[OpenShop]:
    with ExitStack() as lives:

        def opened(*failing: float, **settings: Setting) -> Shop:
            shop = Shop(run_dir, children, settings).open()
            shop.fail(*failing)
            lives.enter_context(shop.traffic)
            return shop

        yield opened


def test_half_failing_app_gets_an_eighth_and_recovers_when_it_heals(open_shop: OpenShop) -> None:
    shop = open_shop(0, 0.5, 0, 0, error_ratio=0)
    await_weight(shop.proxy, "app2", 11, 14, timeout_s=30)
    share = shop.shares(MEASURED)
    assert share["app2"] / share["app1"] == pytest.approx(0.125, abs=0.03)
    assert {weights(shop.proxy)[name] for name in NAMES if name != "app2"} == {100}
    assert failed(shop.traffic.seen(), "GET") == 0

    shop.fail(0, 0, 0, 0)
    await_weight(shop.proxy, "app2", 50, 100, timeout_s=20)
    assert failed(shop.traffic.next_answers(MEASURED), "POST") == 0
    assert lost(shop.traffic.seen()) == {}


def _told_shares(shop: Shop) -> dict[str, float]:
    """What each may expect by the weights of this moment."""
    told = weights(shop.proxy)
    return {name: told[name] / sum(told.values()) for name in NAMES}


def test_all_suffering_share_in_proportion_with_or_without_their_sidecars(open_shop: OpenShop) -> None:
    shop = open_shop(0.1, 0.2, 0.3, 0.5, error_ratio=0)
    expected = {"app1": 73, "app2": 51, "app3": 34, "app4": 12}
    wait_for(
        lambda: all(abs(weights(shop.proxy)[name] - expected[name]) <= 8 for name in NAMES),
        timeout_s=30,
        what=f"weights near {expected}",
    )
    before = _told_shares(shop)
    measured, after = shop.shares(MEASURED), _told_shares(shop)
    share = {name: (before[name] + after[name]) / 2 for name in NAMES}  # they may still be on their way
    assert measured == pytest.approx(share, abs=0.03)

    killed = shop.sidecars["app2"]
    killed.kill()
    wait_for(
        lambda: shop.proxy.show_servers()["app", "app2"]["agent_status"] == "L4CON", timeout_s=20, what="nobody answers"
    )
    kept = weights(shop.proxy)["app2"]  # and no last word is under way any more
    assert abs(kept - expected["app2"]) <= 12
    assert shop.shares(MEASURED)["app2"] == pytest.approx(share["app2"], abs=0.03)
    assert (weights(shop.proxy)["app2"], status(shop.proxy, "app2")) == (kept, "UP")

    killed.start()
    assert re.fullmatch(r"up ready \d+%\n", killed.agent_line())
    assert lost(shop.traffic.seen()) == {}


def test_dead_app_gets_the_floor_and_is_then_culled_without_a_lost_request(open_shop: OpenShop) -> None:
    # The weight is down some seconds after the failures begin, and the age comes long after that.
    shop = open_shop(0, 1, 0, 0, error_ratio=0.9, min_age="20s", check_interval="500ms", settle="0s", drain="5s")
    sidecar = shop.sidecars["app2"]
    sidecar.post_error(count=0, app_start="life-1")  # a life that is young, however long the shop took to open
    await_weight(shop.proxy, "app2", 10, 10, timeout_s=20)
    assert sidecar.agent_line() == "up ready 10%\n"

    await_status(shop.proxy, "app2", "DRAIN", timeout_s=30)
    assert sidecar.agent_line().startswith("drain 0% #")
    wait_for(lambda: sidecar.health("/health/nomad")[0] == 503, timeout_s=20, what="Nomad is told")
    shop.apps["app2"].stop()
    answers = shop.traffic.next_answers(MEASURED)
    assert {outcome.app for outcome in answers} == {"app1", "app3", "app4"}
    assert (failed(answers, "POST"), lost(shop.traffic.seen())) == (0, {})

    sidecar.stop()
    sidecar.start()
    assert sidecar.agent_line().startswith("fail #")
