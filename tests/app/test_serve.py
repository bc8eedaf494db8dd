"""The daemon in this process: what runs between its start and its end, and how it ends."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import socket
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pytest

from harness.composition import on_any_port
from harness.raw_http import Answer, RawConnection
from harness.waiting import eventually
from sidecar.app import build as build_module
from sidecar.app import daemon
from sidecar.app.build import Sidecar, metrics_of
from sidecar.app.early_health import EarlyHealth
from sidecar.config.settings import load
from sidecar.controller import state_file
from sidecar.core.types import AppListening, Fleet, State, Unknown

FAST: Final = {"alone": "true", "service": "shop", "instance": "a", "settle": "0s", "drain": "0s", "stop_drain": "0s"}
REPORT: Final = '{"count": 5, "kind": "redis"}'


class Serving:
    """A daemon that serves in this loop. ``ended`` has its exit code."""

    def __init__(
        self, sidecar: Sidecar, ended: asyncio.Task[int], stop: asyncio.Event, addresses: Mapping[str, str]
    ) -> None:
        self.sidecar = sidecar
        self.ended = ended
        self.stop = stop
        self._addresses = addresses

    @property
    def state(self) -> State:
        return self.sidecar.snapshot().container.state

    async def ask(self, listener: str, line: str, body: str = "") -> Answer:
        """Ask the listener whose address the log calls ``listener``."""
        host, _, port = self._addresses[listener].rpartition(":")
        head = f"{line} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n"
        async with RawConnection(*await asyncio.open_connection(host, int(port))) as connection:
            return await connection.ask((head + body).encode())

    async def cull(self) -> None:
        """Report errors until the container is down."""
        assert (await self.ask("errors_to", "POST /errors", REPORT)).status == 202
        await eventually(lambda: self.state is State.DOWN, timeout_s=60, what="the container is down")


@pytest.fixture(autouse=True)
def garbage_as_before() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*before)


@asynccontextmanager
async def serving(
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    early_health: EarlyHealth | None = None,
    **flags: str,
) -> AsyncIterator[Serving]:
    built: list[Sidecar] = []

    async def build(*args: Any, **options: Any) -> Sidecar:
        built.append(await build_module.build(*args, **options))
        return built[-1]

    def lines() -> list[Any]:
        return [record for record in caplog.records if record.message == "listening"]

    monkeypatch.setattr(daemon, "build", build)
    caplog.set_level(logging.INFO)
    caplog.clear()
    config = on_any_port({**FAST, **flags})
    stop = asyncio.Event()
    ended = asyncio.create_task(daemon.serve(config, metrics_of(config), stop, early_health=early_health))
    try:
        await eventually(lambda: lines() or ended.done(), timeout_s=60, what="it listens")
        if not lines():
            await ended
        yield Serving(built[0], ended, stop, lines()[0].__dict__["fields"])
    finally:
        ended.cancel()
        with suppress(asyncio.CancelledError, ExceptionGroup):
            await ended


@pytest.fixture
def start(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Any:
    return lambda **options: serving(caplog, monkeypatch, **options)


# -- while it serves ----------------------------------------------------------------------------------------------


async def test_cull_is_seen_by_every_observer(start: Any, caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    async with start(state_dir=str(tmp_path)) as one:
        await one.cull()
        metrics = (await one.ask("health_at", "GET /metrics")).body.decode()
        assert "\narbiter_culls_total 1.0\n" in metrics
        assert '\narbiter_errors_total{kind="redis",level="server_error"} 5.0\n' in metrics
        assert '\narbiter_state{state="down"} 1.0\n' in metrics
        assert "\narbiter_events_dropped_total 0.0\n" in metrics
        assert {"granted", "culled"} <= {entry.what for entry in one.sidecar.ledger.local(0)}
        assert "granted" in {decision.what for decision in one.sidecar.history.newest()}
        assert {"up", "down"} <= {record.message for record in caplog.records}
        assert (await one.ask("health_at", "GET /why")).json()["state"] == "down"
        path = state_file.path_of(str(tmp_path), "shop/a")
        await eventually(lambda: json.loads(path.read_text())["latch"], timeout_s=60, what="the latch is on disk")


async def test_sidecar_that_starts_again_finds_its_container_down(start: Any, tmp_path: Path) -> None:
    path = state_file.path_of(str(tmp_path), "shop/a")
    async with start(state_dir=str(tmp_path)) as one:
        await one.ask("errors_to", "POST /errors", '{"count": 0, "app_start": "boot-1"}')
        await one.cull()
        await eventually(lambda: json.loads(path.read_text())["latch"], timeout_s=60, what="the latch is on disk")
        born = one.sidecar.snapshot().unix_of(one.sidecar.snapshot().container.born)
    async with start(state_dir=str(tmp_path)) as one:
        seen = one.sidecar.snapshot()
        assert (seen.container.state, seen.container.app_start) == (State.DOWN, "boot-1")
        assert seen.unix_of(seen.container.born) == pytest.approx(born, abs=5)
        assert (await one.ask("health_at", "GET /health")).status == 503
    async with start(state_dir=str(tmp_path), mode="shadow") as one:
        assert one.state is not State.DOWN


async def test_loop_passes_on_what_asyncio_could_raise_nowhere(start: Any) -> None:
    async with start() as one:
        loop = asyncio.get_running_loop()
        loop.call_exception_handler({"message": "lost", "exception": ValueError("x")})
        loop.call_exception_handler({"message": "never retrieved"})
        metrics = (await one.ask("health_at", "GET /metrics")).body.decode()
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


async def test_request_that_waited_for_the_daemon_is_answered_by_it(start: Any) -> None:
    port = _free_port()
    source, sink = os.pipe()
    early = EarlyHealth(source)
    early.start()
    with os.fdopen(sink, "w") as pipe:
        json.dump(load({**FAST, "public_listen": f"127.0.0.1:{port}"}, {}).model_dump(), pipe)
    await asyncio.to_thread(early.config)
    reader, writer = await eventually(
        lambda: asyncio.open_connection("127.0.0.1", port), timeout_s=60, what="it listens"
    )
    writer.write(b"GET /why HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    await eventually(lambda: early._waiting, timeout_s=60, what="the request waits")
    async with start(early_health=early) as one, RawConnection(reader, writer) as connection:
        assert (await connection.answer()).json()["service"] == "shop"
        assert one._addresses["health_at"] == f"127.0.0.1:{port}"


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


# -- how it ends --------------------------------------------------------------------------------------------------


async def test_health_is_down_for_the_stop_drain_before_the_end(start: Any) -> None:
    async with start(stop_drain="1h") as one:
        one.stop.set()
        await eventually(lambda: one.state is State.STOPPING, timeout_s=60, what="it is stopping")
        assert (await one.ask("health_at", "GET /health")).status == 503
        assert not one.ended.done()


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


@pytest.mark.parametrize("is_known", [True, False], ids=["known by its socket", "unknown"])
async def test_action_exit_ends_with_its_code_and_an_unknown_app_begins_anew(
    start: Any, tmp_path: Path, *, is_known: bool
) -> None:
    path = state_file.path_of(str(tmp_path), "shop/a")
    async with start(action="exit", exit_code="3", state_dir=str(tmp_path), stop_drain="1h") as one:
        if is_known:
            one.sidecar.offer([AppListening("4711")])
        await one.ask("errors_to", "POST /errors", REPORT)
        assert await asyncio.wait_for(one.ended, 60) == 3
    assert bool(path.exists() and json.loads(path.read_text())["latch"]) is is_known


async def test_part_that_fails_ends_all_and_its_exception_is_raised(
    start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken() -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(daemon, "import_late", broken)
    async with start() as one:
        with pytest.raises(ExceptionGroup):
            await asyncio.wait_for(asyncio.shield(one.ended), 60)
