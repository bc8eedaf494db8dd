"""The daemon in this process: what runs between its start and its end, and how it ends."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from harness.ports import free_port
from harness.raw_http import RawConnection
from harness.waiting import eventually
from sidecar.app import daemon
from sidecar.app.run_lock import RunLock
from sidecar.config.settings import WITHOUT_REDIS
from sidecar.controller import journal
from sidecar.controller.ledger import Ledger
from sidecar.core.app_reports import AppListening
from sidecar.core.claims import Fleet, Unknown
from sidecar.core.types import State
from sidecar.runlock import ConcurrencyLimit
from sidecar.server import local_server

if TYPE_CHECKING:
    from pathlib import Path

# -- while it serves ----------------------------------------------------------------------------------------------


async def test_cull_is_seen_by_every_observer(start: Any, caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    async with start(state_dir=str(tmp_path)) as one:
        await one.cull()
        metrics = one.metrics()
        assert "\narbiter_culls_total 1.0\n" in metrics
        assert '\narbiter_errors_total{kind="redis",level="server_error"} 5.0\n' in metrics
        assert '\narbiter_state{state="down"} 1.0\n' in metrics
        assert "\narbiter_events_dropped_total 0.0\n" in metrics
        assert {"granted", "culled"} <= {entry.what for entry in one.sidecar.ledger.local(0)}
        assert {"up", "down"} <= {record.message for record in caplog.records}
        assert (await one.ask("health_at", "GET /why")).json()["state"] == "down"
        path = journal.path_of(str(tmp_path), "shop/a")
        await eventually(lambda: json.loads(path.read_text())["latch"], timeout_s=60, what="the latch is on disk")


async def test_sidecar_that_starts_again_finds_its_container_down(
    start: Any, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    path = journal.path_of(str(tmp_path), "shop/a")
    async with start(state_dir=str(tmp_path)) as one:
        await one.report(count=0, app_start="boot-1")
        await one.cull()
        await eventually(lambda: json.loads(path.read_text())["latch"], timeout_s=60, what="the latch is on disk")
        born = one.sidecar.snapshot().unix_of(one.sidecar.snapshot().container.born)
        before = one.sidecar.snapshot().container
    memory = json.loads(path.read_text())
    path.write_text(json.dumps(memory | {"born": memory["born"] - 3600}))
    async with start(state_dir=str(tmp_path)) as one:
        seen = one.sidecar.snapshot()
        assert (seen.container.state, seen.container.app_start) == (State.DOWN, "boot-1")
        assert "still down: the state file says that this container was culled" in caplog.messages
        assert (seen.container.identity, seen.container.incarnation) == (before.identity, before.incarnation)
        assert seen.unix_of(seen.container.born) == pytest.approx(born - 3600, abs=5)
        assert 0 <= seen.now - seen.container.since < 300  # not since the machine was started
        assert (await one.ask("health_at", "GET /health")).status == 503
    async with start(state_dir=str(tmp_path), mode="shadow") as one:
        assert one.state is not State.DOWN


async def test_loop_passes_on_what_asyncio_could_raise_nowhere(start: Any) -> None:
    async with start() as one:
        loop = asyncio.get_running_loop()
        loop.call_exception_handler({"message": "lost", "exception": ValueError("x")})
        loop.call_exception_handler({"message": "never retrieved"})
        metrics = one.metrics()
        assert 'arbiter_failures_total{where="listener"} 2.0\n' in metrics
        assert gc.get_threshold() == daemon.GC_THRESHOLDS
        assert gc.isenabled()
        assert gc.get_freeze_count() > 0


async def test_secret_that_all_users_can_read_is_a_line_in_the_log(
    start: Any, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("a word of sixteen letters or more\n")
    token.chmod(0o644)
    async with start(token_file=str(token)):
        said = f"ARBITER_TOKEN_FILE: all users can read {token}"
        await eventually(lambda: said in caplog.text, timeout_s=60, what="it is logged")


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
        assert {"would be culled (shadow mode)", WITHOUT_REDIS["shadow"]} <= lines
        why = (await one.ask("health_at", "GET /why")).json()
        assert (why["mode"], why["alone"]) == ("shadow", WITHOUT_REDIS["shadow"])
        assert (
            f"\nalone: {WITHOUT_REDIS['shadow']}\n"
            in (await one.ask("errors_to", "GET /why?format=text")).body.decode()
        )


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


# -- how it ends --------------------------------------------------------------------------------------------------


async def test_health_is_down_for_the_stop_drain_before_the_end(start: Any) -> None:
    async with start(stop_drain="1h") as one:
        one.stop.set()
        await one.becomes(State.STOPPING)
        assert await one.polls() == [503, 503, 200]
        assert (await one.report()).json() == {"state": "stopping"}
        assert not one.ended.done()


async def test_connections_that_are_kept_do_not_hold_up_the_end(start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_server, "CLOSE_S", 3600.0)  # for responses under way, instead of a second
    async with start() as one, AsyncExitStack() as kept:
        for name in ("health_at", "errors_to"):
            host, _, port = one.addresses[name].rpartition(":")
            connection = RawConnection(*await asyncio.open_connection(host, int(port)))
            await kept.enter_async_context(connection)
            assert (await connection.ask(b"GET /none HTTP/1.1\r\nHost: a\r\n\r\n")).status in (403, 404)
        one.stop.set()
        assert await asyncio.wait_for(one.ended, 60) == 0


@pytest.mark.parametrize("is_culled", [False, True], ids=["without a drain", "of a container that is down"])
async def test_end_is_told_to_the_fleet_and_then_everything_is_closed(
    start: Any, caplog: pytest.LogCaptureFixture, *, is_culled: bool
) -> None:
    async with start(stop_drain="1h" if is_culled else "0s") as one:
        beats: list[Fleet | Unknown] = []
        if is_culled:
            await one.cull()
        await eventually(lambda: one.sidecar.membership.fleet_age_s is not None, timeout_s=60, what="the first beat")
        one.sidecar.observers.beats.append(beats.append)
        one.stop.set()
        assert await asyncio.wait_for(one.ended, 60) == 0
        assert beats != []
        assert one.sidecar.ledger.waiting == 0
        assert caplog.records[-1].message == "stopped"
        with pytest.raises(ConnectionRefusedError):
            await one.ask("health_at", "GET /health")


async def test_sidecar_whose_standby_waits_ends_at_once_and_reports_no_end(
    start: Any, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    lock, standby = RunLock(tmp_path, waits=True), ConcurrencyLimit(tmp_path, "standby")
    assert lock.acquire()
    assert standby.acquire()
    async with start(lock=lock, stop_drain="1h", state_dir=str(tmp_path)) as one:
        await eventually(lambda: one.sidecar.membership.fleet_age_s is not None, timeout_s=60, what="the first beat")
        beats: list[Fleet | Unknown] = []
        one.sidecar.observers.beats.append(beats.append)
        one.stop.set()
        assert await asyncio.wait_for(one.ended, 60) == 0
        assert beats == []
        assert "stopping" not in caplog.messages
        assert ConcurrencyLimit(tmp_path, "main").acquire() == 1, "the standby can take it"
    standby.release()


@pytest.mark.parametrize("is_known", [True, False], ids=["known by its socket", "unknown"])
async def test_action_exit_ends_with_its_code_and_an_unknown_app_begins_anew(
    start: Any, tmp_path: Path, *, is_known: bool
) -> None:
    path = journal.path_of(str(tmp_path), "shop/a")
    async with start(action="exit", state_dir=str(tmp_path), stop_drain="1h") as one:
        if is_known:
            one.sidecar.offer([AppListening("4711")])
        await one.report()
        assert await asyncio.wait_for(one.ended, 60) == 88
    assert bool(path.exists() and json.loads(path.read_text())["latch"]) is is_known


async def test_part_that_fails_ends_all_and_its_exception_is_raised(
    start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken() -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(Ledger, "run", lambda _: broken())
    async with start() as one:
        with pytest.raises(ExceptionGroup):
            await asyncio.wait_for(asyncio.shield(one.ended), 60)
