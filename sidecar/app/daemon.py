"""Runs what ``build`` has built: signals, the run lock, and one task group from start to stop."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Coroutine, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from prometheus_client import disable_created_metrics

from sidecar.app.build import DISK_S, Sidecar, build, has_optional, metrics_of
from sidecar.app.build_servers import listening
from sidecar.app.run_lock import RunLock
from sidecar.config import file_warnings
from sidecar.core.life.events import StopRequested
from sidecar.core.types import State
from sidecar.net.listening import CannotListenError
from sidecar.net.threads import DaemonThreads, in_thread
from sidecar.runlock import LockError
from sidecar.telemetry.log import logger
from sidecar.telemetry.log_output import logging_to

if TYPE_CHECKING:
    from sidecar.config.settings import Config
    from sidecar.telemetry import Observers
    from sidecar.telemetry.metrics import Metrics

EXIT_USAGE: Final = 2
EXIT_CULLED: Final = 88
"""The exit code after the action ``exit``, which no other end of the sidecar has."""

GC_THRESHOLDS: Final = (700, 4, 4)
"""Collections that come earlier than by default (700, 10, 10) each hold the loop for a shorter time: below 5 ms while
many connections are cut, not 12 ms."""


def main(config: Config) -> int:
    """Run one sidecar until a signal stops it, and return the exit code.

    It is 0, 88 after the action ``exit``, or 2 if the sidecar cannot listen at an address. With a run lock there may be
    nothing to do, because other sidecars run already.
    """
    # A timestamp beside every counter would double the page, and nothing reads it.
    disable_created_metrics()  # type: ignore[no-untyped-call]
    metrics = metrics_of(config)
    with logging_to(
        sys.stderr,
        common={"service": config.identity.service, "instance": config.identity.instance},
        on_drop=metrics.log_dropped,
    ):
        try:
            if config.process.run_lock:
                return _run_alone(config, metrics)
            return _in_loop(_run(config, metrics))
        except CannotListenError as error:
            sys.stderr.write(f"health-arbiter: {error}\n")
            return EXIT_USAGE


def _run_alone(config: Config, metrics: Metrics) -> int:
    """Run under the run lock, after a wait as standby if necessary."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))  # while it waits; as PID 1 it would be ignored
    lock = run_lock(config, metrics)
    try:
        if not lock.acquire():
            return 0
    except LockError as error:
        sys.stderr.write(f"health-arbiter: ARBITER_RUN_LOCK: {error}\n")
        return EXIT_USAGE
    return _in_loop(_run(config, metrics, lock))


def run_lock(config: Config, metrics: Metrics) -> RunLock:
    """Return the run lock of the settings. With a standby a gauge shows whether one is there."""
    own = config.process
    lock = RunLock(Path(own.run_lock), waits=own.standby, modules=_imported_late(config))
    if own.standby:
        metrics.gauge("arbiter_standby_ready", "1 if a standby waits to take over.", lambda: lock.has_standby)
    return lock


def _imported_late(config: Config) -> list[str]:
    """Return the modules that the sidecar would otherwise import at their first use."""
    optional = {
        "store.redis": config.redis.redis_url,
        "store.redis_client": config.redis.redis_url,
        "store.alone": not config.redis.redis_url,
        "app.build_optional": has_optional(config),
        "inputs.app_port": config.app.app_port,
        "inputs.datagram": config.statsd.has_sockets,
    }
    return [f"sidecar.{name}" for name, is_needed in optional.items() if is_needed]


def _in_loop(work: Coroutine[None, None, int]) -> int:
    with asyncio.Runner() as runner:
        return runner.run(work)


async def _run(config: Config, metrics: Metrics, lock: RunLock | None = None) -> int:
    stop = asyncio.Event()

    def request_stop() -> None:
        if stop.is_set():
            os._exit(1)  # the second signal ends the process at once, even if a part hangs
        stop.set()

    loop = asyncio.get_running_loop()
    loop.set_default_executor(DaemonThreads())
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, request_stop)
    return await serve(config, metrics, stop, lock)


async def serve(config: Config, metrics: Metrics, stop: asyncio.Event, lock: RunLock | None = None) -> int:
    """Serve until ``stop`` is set: then health is down for ``stop_drain`` seconds, and the sidecar ends.

    ``lock``: the run lock that this process holds. With a standby health does not go down: the sidecar stops listening
    and releases the lock, and the standby goes on in its place. The first exception of a part stops all parts, and is
    raised. The exit code is 0, or that of the action ``exit``.
    """
    sidecar = await build(config, metrics, leave=stop.set)
    _observe_loop(sidecar.observers)
    async with listening(sidecar) as listeners:
        works = [*_works(sidecar), *listeners.works()]
        if lock is not None:
            works.append(lock.keep(partial(sidecar.observers.failed, "run_lock")))
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work) for work in works]
            _freeze_garbage()
            await stop.wait()
            has_standby = lock is not None and await in_thread(lock.is_awaited)
            if not has_standby:
                await _drained(sidecar)
            await sidecar.journal.settled(DISK_S)  # what the next start reads; only one process may write it
            for task in tasks:
                task.cancel()
        listeners.stop()
        if lock is not None:
            lock.release()
    if not has_standby:
        await sidecar.membership.beat()  # the last beat reports the end of the container
    await sidecar.ledger.finish()
    await sidecar.budget.aclose()
    logger.info("stopped")
    if sidecar.actuator is not None and sidecar.actuator.has_left:
        if not sidecar.controller.ids.is_recognisable:
            await sidecar.journal.forget()  # what starts next is another incarnation
        return EXIT_CULLED
    return 0


def _works(sidecar: Sidecar) -> Iterator[Coroutine[None, None, None]]:
    yield sidecar.controller.run()
    yield sidecar.membership.run()
    yield sidecar.ledger.run()
    config = sidecar.config
    yield _warn_of_files(config)
    if sidecar.actuator is not None:
        yield sidecar.actuator.run(lambda: sidecar.snapshot().container)
    if sidecar.app_port is not None:
        yield sidecar.app_port.run()
    for part in sidecar.others:
        yield part.run()


async def _warn_of_files(config: Config) -> None:
    with suppress(RuntimeError):  # no thread can be started
        for sentence in await in_thread(lambda: [*file_warnings.warnings(config)]):
            logger.warning(sentence)


async def _drained(sidecar: Sidecar) -> None:
    """Show down until the balancers have noticed."""
    is_down = sidecar.controller.container.state is State.DOWN  # then no balancer has to notice
    sidecar.controller.inbox.put(StopRequested())
    await asyncio.sleep(0 if is_down else sidecar.config.server.stop_drain)


def _observe_loop(observers: Observers) -> None:
    """Pass on exceptions that asyncio could raise nowhere."""

    def unhandled(_loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        error = context.get("exception")
        failure = error if isinstance(error, Exception) else RuntimeError(str(context.get("message")))
        observers.failed("listener", failure)

    asyncio.get_running_loop().set_exception_handler(unhandled)


def _freeze_garbage() -> None:
    """Let full collections skip what lives as long as the process.

    What the imports have left over, 0.3 MiB, stays with it: to collect it takes 40 ms, before the first answer.
    """
    gc.set_threshold(*GC_THRESHOLDS)
    gc.enable()
    gc.freeze()
