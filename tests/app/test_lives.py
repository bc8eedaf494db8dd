"""The daemon in this process: what its listeners say about the lives of an app."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from harness.ports import free_port
from harness.waiting import eventually
from sidecar.config.rollout import ALONE
from sidecar.controller import journal
from sidecar.core.types import State

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


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
