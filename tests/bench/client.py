"""One call of the client, over each way of delivery, beside a bare ``socket.send``. No server is involved.

``python -m bench.client WAY COUNT`` measures in its own process.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.table import Row, at_most, spread
from sidecar.client import ArbiterHandler, configure, report, results
from sidecar.client.emitter import PACE_S
from sidecar.client.reporting import EMITTER

if TYPE_CHECKING:
    from bench.rig import Rig

CALLS: Final = 20_000
A_BATCH: Final = 8
"""Fewer than the kernel queues for a unix socket."""

TARGET_US: Final = 20
LINE: Final = b"errors:1|c|#level:server_error,kind:redis"
WAYS: Final = {
    "unix": "report, over the unix socket",
    "udp": "report, over UDP",
    "full": "report, the unix socket's queue is full",
    "away": "report, nobody listens",
    "results": "results, added up",
}
LOGGED: Final = "client helper: an exception raised and logged to ArbiterHandler, beside one that is logged to nobody"


def measure(rig: Rig) -> list[Row]:
    """Microseconds a call; the baseline sends the same line and ignores errors."""
    from bench.rig import medians  # noqa: PLC0415 - the worker does without

    calls = CALLS // 10 if rig.quick else CALLS
    ways = ("bare", *WAYS, "logged", "unlogged")
    rounds = [tuple(rig.worker("client", way, str(calls)) for way in ways) for _ in range(rig.rounds)]
    for way, figures in zip(ways, zip(*rounds, strict=True), strict=True):
        rig.notes.append(f"client helper, {way}: {spread(figures)} us a call")
    us = dict(zip(ways, medians(rounds), strict=True))
    rows = [Row(f"client helper: {WAYS[way]}", "us", us[way], us["bare"], at_most(TARGET_US, "us")) for way in WAYS]
    return [*rows, Row(LOGGED, "us", us["logged"], us["unlogged"])]


class Reader:
    """The receiver; ``read`` adds up the waiting packets."""

    def __init__(self, way: str, directory: Path) -> None:
        self.path = str(directory / "statsd.sock")
        self._socket = socket.socket(socket.AF_INET if way == "udp" else socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0) if way == "udp" else self.path)
        self._socket.settimeout(0)
        self.total = 0

    @property
    def port(self) -> int:
        return int(self._socket.getsockname()[1])

    def read(self) -> None:
        with suppress(BlockingIOError):
            for _ in range(CALLS):
                for line in self._socket.recv(65_536).split(b"\n"):
                    self.total += int(line.split(b":", 2)[1].partition(b"|")[0])


def work(way: str, calls: int, directory: Path) -> float:
    """Microseconds a call; RuntimeError when a call was lost."""
    reader = Reader(way, directory)
    _point(way, reader)
    call = _call(way, reader)
    read = (lambda: None) if way in ("full", "away") else reader.read
    took_us = _timed(call, calls, read)
    _check(way, calls, reader)
    return took_us


def _point(way: str, reader: Reader) -> None:
    if way == "away":
        configure(socket=f"{reader.path}.none")
    elif way == "udp":
        configure(listen=f"127.0.0.1:{reader.port}")
    else:
        configure(socket=reader.path)


def _call(way: str, reader: Reader) -> Callable[[], object]:
    if way == "bare":
        bare = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        bare.settimeout(0)
        bare.connect(reader.path)
        return partial(bare.send, LINE)
    if way == "results":
        return partial(results, 1)
    if way in ("logged", "unlogged"):
        LOGGER.addHandler(ArbiterHandler() if way == "logged" else logging.NullHandler())
        return _log
    return partial(report, kind="redis")


LOGGER: Final = logging.getLogger("bench")
LOGGER.propagate = False


def _log() -> None:
    try:
        # A traceback of one frame; the measurement includes it.
        raise ConnectionError("cannot reach redis://:secret@10.0.0.1:6379, connection refused")  # noqa: TRY301
    except ConnectionError:
        LOGGER.exception("no cart for %s", "bob@example.org")


def _timed(call: Callable[[], object], calls: int, read: Callable[[], None]) -> float:
    took_ns = 0
    for _ in range(calls // A_BATCH):
        begun = time.perf_counter_ns()
        for _ in range(A_BATCH):
            call()
        took_ns += time.perf_counter_ns() - begun
        read()
    return took_ns / (calls // A_BATCH * A_BATCH) / 1e3


def _check(way: str, calls: int, reader: Reader) -> None:
    made = calls // A_BATCH * A_BATCH
    if way == "unlogged":
        return
    if way == "away":
        stats = EMITTER.stats()
        if stats.kept + stats.dropped != made:
            raise RuntimeError(f"{made} calls, {stats}")
        return
    give_up_at = time.monotonic() + 50 * PACE_S
    while reader.total < made and time.monotonic() < give_up_at:
        EMITTER.flush()
        reader.read()
    if reader.total != made:
        raise RuntimeError(f"{made} calls, {reader.total} arrived")


def main() -> None:
    directory = Path(tempfile.mkdtemp(prefix="bench-", dir="/tmp"))
    try:
        sys.stdout.write(json.dumps(work(sys.argv[1], int(sys.argv[2]), directory)))
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    os.environ.pop("ARBITER_STATSD_SOCKET", None)
    main()
