"""The daemon in this process: what its listeners say about the lives of an app."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from harness.ports import free_port
from harness.waiting import eventually
from sidecar.config.rollout import ALONE
from sidecar.controller import journal
from sidecar.core.types import State

SOON = {"check_interval": "100ms"}


async def test_fresh_sidecar_is_up_and_says_where_it_listens(start: Any, run_dir: Path) -> None:
    async with start(socket=str(run_dir / "app.sock")) as one:
        assert await one.polls() == [200] * 3
        for path in ("/livez", "/metrics", "/readyz"):
            await eventually(partial(_is_ok, one, path), timeout_s=60, what=f"{path} is well")
        assert one.addresses["errors_to"].endswith(f", {run_dir / 'app.sock'}")
        assert one.addresses["store"] == "in this process"
        assert one.addresses["state_dir"] == "none: a cull does not survive the sidecar"
        assert one.addresses["page_at"] == one.addresses["datagrams_to"] == ""


async def _is_ok(one: Any, path: str) -> bool:
    return bool((await one.ask("health_at", f"GET {path}")).status == 200)


async def test_during_grace_errors_do_not_cull(start: Any) -> None:
    async with start(**SOON, grace="1h") as one:
        await one.report(count=50)
        checks = 'arbiter_checks_total{verdict="excessive"} 2.0\n'
        await eventually(lambda: checks in one.metrics(), timeout_s=60, what="it was judged twice")
        assert one.state is State.STARTING
        assert await one.polls() == [200] * 3
        assert "arbiter_culls_total 0.0\n" in one.metrics()


async def test_app_announces_its_lives_and_a_new_one_comes_back_up(start: Any) -> None:
    async with start() as one:
        await one.report(count=0, app_start="life-1")
        await one.report(app_start="life-1")
        await one.becomes(State.DOWN)
        assert await one.polls() == [503] * 3
        await one.report(count=0, app_start="life-2")
        await one.becomes(State.UP)
        assert await one.polls() == [200] * 3
        assert (one.sidecar.snapshot().evidence.errors, one.sidecar.snapshot().container.latch) == (0, None)
        await one.report(app_start="life-1")  # late, of the life before
        fresh = "arbiter_stale_reports_total 0.0\n"
        await eventually(lambda: fresh not in one.metrics(), timeout_s=60, what="they are counted apart")
        assert one.state is State.UP


async def test_sidecar_alone_runs_in_shadow_never_goes_down_and_says_what_it_would_do(
    start: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with start(alone="false") as one:
        await one.report()
        would = "arbiter_would_culls_total 1.0\n"
        await eventually(lambda: would in one.metrics(), timeout_s=60, what="it would be culled")
        assert one.sidecar.snapshot().container.would_down
        assert await one.polls() == [200] * 3
        assert "arbiter_culls_total 0.0\n" in one.metrics()
        lines = {record.message for record in caplog.records if record.levelno == logging.WARNING}
        assert {"would be culled (shadow mode)", ALONE["shadow"]} <= lines
        why = (await one.ask("health_at", "GET /why")).json()
        assert (why["mode"], why["alone"]) == ("shadow", ALONE["shadow"])
        assert f"\nalone: {ALONE['shadow']}\n" in (await one.ask("errors_to", "GET /why?format=text")).body.decode()


async def test_preset_reports_down_with_400(start: Any) -> None:
    async with start(preset="classdojo", check_interval="100ms") as one:
        await one.cull()
        assert await one.polls() == [400] * 3


async def test_redis_that_cannot_be_reached_is_no_reason_not_to_serve(start: Any) -> None:
    async with start(redis_url=f"redis://127.0.0.1:{free_port()}", redis_timeout="10s", check_interval="20s") as one:
        await one.report()
        await one.becomes(State.SUSPECT)
        away = "arbiter_budget_reachable 0.0\n"
        await eventually(lambda: away in one.metrics(), timeout_s=60, what="the first beat has failed")
        assert await one.polls() == [200] * 3
        assert one.sidecar.snapshot().container.latch is None


async def test_state_that_cannot_be_read_costs_persistence_and_not_health(start: Any, tmp_path: Path) -> None:
    journal.path_of(str(tmp_path), "shop/a").write_bytes(b"\x00garbage")
    async with start(state_dir=str(tmp_path)) as one:
        assert one.addresses["state_dir"] == str(tmp_path)
        assert await one.polls() == [200] * 3
        assert 'arbiter_failures_total{where="journal"} 1.0\n' in one.metrics()
