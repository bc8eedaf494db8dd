"""A metrics page fetched and scanned by the sidecar's scraper, beside aiohttp and prometheus-client's text parser.

The rows of the scraper alone repeat scrapes without a pause, which flatters: all they need is in the processor's cache.
So there is a row of a whole daemon that scrapes five times a second, with the turns of its loop and its controller.

``python -m bench.scrape serve PORT`` serves pages. ``python -m bench.scrape ours|errors|library cpu|stall|peak URL
SCRAPES`` scrapes in its own process, for its CPU time and memory; ``ours`` selects errors and requests, ``errors`` only
errors.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import random
import sys
import time
import zlib
from contextlib import suppress
from functools import cache, partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench import machine
from bench.table import Row, at_most, at_most_of_baseline, number, spread

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from bench.rig import Rig

    Scrape = Callable[[], Awaitable[object]]

SIZES: Final = (1_000, 10_000, 100_000)
LEAST_WITH_TARGET: Final = 10_000
BOUNDS: Final = ("0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1", "2.5", "5", "10", "+Inf")
CODES: Final = (200, 404, 500, 503)
ERRORS: Final = 'http_requests_total{status=~"5..",handler!="/probe"}'
REQUESTS: Final = "http_requests_total"
CPU_TARGET: Final = 1 / 50
STALL_TARGET_MS: Final = 2
PEAK_TARGET_MIB: Final = 4
DAEMON_SERIES: Final = 10_000
DAEMON_TARGET_MS: Final = 3.5
DAEMON_EVERY_S: Final = 0.2
LIBRARY_AT_MOST: Final = 3
"""Scrapes a round of the library: each takes seconds."""


def measure(rig: Rig) -> list[Row]:
    """CPU a scrape, fetch included, plain and gzip; at the largest page also stall and peak memory."""
    from harness.child import Child, python_env  # noqa: PLC0415 - the workers measure their memory without it
    from harness.ports import free_port  # noqa: PLC0415 - as above

    class Pages(Child):
        def __init__(self) -> None:
            super().__init__("pages", rig.directory)
            self.port = free_port()

        def _command(self) -> list[str]:
            return [sys.executable, "-m", "bench.scrape", "serve", str(self.port)]

        def _env(self) -> dict[str, str]:
            return python_env()

        def _is_ready(self) -> bool:
            asyncio.run(asyncio.open_connection("127.0.0.1", self.port))
            return True

    pages = Pages().start()  # on the clients' core, where we are
    try:
        origin = f"http://127.0.0.1:{pages.port}"
        return [*_rows(rig, origin), _daemon(rig, origin)]
    finally:
        pages.stop()


def _rows(rig: Rig, origin: str) -> Iterator[Row]:
    for size in SIZES[: 2 if rig.quick else 3]:
        for coding in ("plain", "gzip"):
            yield from _cpu(rig, f"{size:,} series {coding}", f"{origin}/{coding}/{size}", size)
    size = SIZES[1 if rig.quick else 2]
    for coding in ("plain", "gzip"):
        url, figure = f"{origin}/{coding}/{size}", f"{size:,} series {coding}"
        stall = [rig.worker("scrape", who, "stall", url, count) for who, count in (("ours", "10"), ("library", "1"))]
        rig.notes.append(f"loop stall, {figure}: {number(stall[0][1])} ms at the first scrape, which learns the series")
        yield Row(f"loop stall, {figure}", "ms", stall[0][0], stall[1][0], at_most(STALL_TARGET_MS, "ms"))
        library = rig.worker("scrape", "library", "peak", url, "1")[0]
        for who, wanted in (("errors", "errors"), ("ours", "errors and requests")):
            peak = rig.worker("scrape", who, "peak", url, "5")[0]
            yield Row(f"peak memory, {figure}, {wanted}", "MiB", peak, library, at_most(PEAK_TARGET_MIB, "MiB"))


def _cpu(rig: Rig, figure: str, url: str, size: int) -> Iterator[Row]:
    from bench.rig import alternate, medians  # noqa: PLC0415 - the worker measures its memory without them

    scrapes = max(1, min(200, 400_000 // size))
    ours = partial(_work, rig, "ours", url, scrapes)
    library = partial(_work, rig, "library", url, min(scrapes, LIBRARY_AT_MOST))
    rounds = list(alternate(rig.rounds, ours, library))
    mine, theirs = medians([(left[0], right[0]) for left, right in rounds])
    rig.notes.append(f"scrape, {figure}: {spread([left[0] for left, _ in rounds])} ms CPU")
    target = at_most_of_baseline(CPU_TARGET) if size >= LEAST_WITH_TARGET else None
    yield Row(f"scrape, {figure}", "ms CPU", mine, theirs, target)


def _daemon(rig: Rig, origin: str) -> Row:
    """CPU of a daemon per scrape, everything included."""
    from bench.rig import NEVER, alternate, medians  # noqa: PLC0415 - as above

    url = f"{origin}/plain/{DAEMON_SERIES}"
    selectors = {"scrape_errors": ERRORS, "scrape_requests": REQUESTS}
    times = {"scrape_interval": f"{DAEMON_EVERY_S}s"}
    sidecar = rig.start(rig.sidecar("scrape", scrape_url=url, error_limit=NEVER, outlier="off", **selectors, **times))

    def scrapes() -> float:
        return sidecar.metrics()['arbiter_scrapes_total{outcome="ok"}']

    def ours() -> float:
        before = scrapes()
        cpu_ns = machine.cpu_ns(sidecar.pid)
        time.sleep(2 if rig.quick else 6)
        used_ns = machine.cpu_ns(sidecar.pid) - cpu_ns
        return used_ns / (scrapes() - before) / 1e6

    ours()  # the first page teaches it the series
    rounds = list(alternate(rig.rounds, ours, lambda: _work(rig, "library", url, LIBRARY_AT_MOST)[0]))
    sidecar.stop()
    mine, theirs = medians(rounds)
    figure = f"page of {DAEMON_SERIES:,} series, whole daemon"
    rig.notes.append(
        f"{figure}, a scrape each {DAEMON_EVERY_S:g} s: {spread([ours_ms for ours_ms, _ in rounds])} ms CPU"
    )
    return Row(figure, "ms CPU", mine, theirs, at_most(DAEMON_TARGET_MS, "ms CPU"))


def _work(rig: Rig, who: str, url: str, scrapes: int) -> tuple[float, ...]:
    return tuple(rig.worker("scrape", who, "cpu", url, str(scrapes)))


# -- the page -------------------------------------------------------------------------------------------------


@cache
def still(series: int) -> bytes:
    """The constant part of all pages: two histograms and 8 gauges per handler."""
    lines = ["process_start_time_seconds 1732096800.12"]
    for name in ("duration_seconds", "size_bytes"):
        lines += _head(name, "histogram")
        for number_, labels in _handlers(series):
            lines += [f'http_{name}_bucket{{{labels},le="{bound}"}} {number_ * 3}' for bound in BOUNDS]
            lines += [f"http_{name}_sum{{{labels}}} {number_ * 0.37}", f"http_{name}_count{{{labels}}} {number_ * 3}"]
    lines += _head("pool", "gauge")
    for number_, labels in _handlers(series):
        lines += [f'http_pool{{{labels},slot="{slot}"}} {number_ % 17}' for slot in range(8)]
    return "\n".join([*lines, ""]).encode()


def counters(series: int, wave: int) -> bytes:
    """The changing part: 4 counters per handler; the one of status 200 changes on every page, the others rarely."""
    lines = _head("requests_total", "counter")
    for number_, labels in _handlers(series):
        for code in CODES:
            value = number_ + (wave if code == CODES[0] else (wave + number_) // 10)
            lines.append(f'http_requests_total{{{labels},status="{code}"}} {value}')
    return "\n".join([*lines, ""]).encode()


def _handlers(series: int) -> Iterator[tuple[int, str]]:
    for number_ in range(series // 40):
        yield number_, f'handler="/api/v1/resource/{number_}",instance="app-1",method="GET"'


def _head(name: str, kind: str) -> list[str]:
    return [f"# HELP http_{name} What it is.", f"# TYPE http_{name} {kind}"]


@cache
def _zipped(series: int) -> tuple[bytes, int]:
    """The constant part as the beginning of a raw deflate stream, and its checksum."""
    packer = zlib.compressobj(6, wbits=-15)
    return packer.compress(still(series)) + packer.flush(zlib.Z_FULL_FLUSH), zlib.crc32(still(series))


def _gzip(series: int, rest: bytes) -> bytes:
    """The whole page as one gzip member, without compressing the constant part again."""
    packed, checksum = _zipped(series)
    packer = zlib.compressobj(6, wbits=-15)
    size = len(still(series)) + len(rest)
    foot = zlib.crc32(rest, checksum).to_bytes(4, "little") + size.to_bytes(4, "little")
    return b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + packed + packer.compress(rest) + packer.flush() + foot


def _answer(path: str, wave: int) -> bytes:
    _, coding, series = path.split("/")
    rest = counters(int(series), wave)
    head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n"
    body = _gzip(int(series), rest) if coding == "gzip" else still(int(series)) + rest
    head += "Content-Encoding: gzip\r\n" * (coding == "gzip")
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


async def serve(port: int) -> None:
    """Serve ``/plain/<series>`` and ``/gzip/<series>``."""
    waves = count()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                request = await reader.readuntil(b"\r\n\r\n")
                writer.write(_answer(request.split()[1].decode(), next(waves)))
                await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", port) as server:
        await server.serve_forever()


# -- the workers ----------------------------------------------------------------------------------------------


async def work(who: str, what: str, url: str, scrapes: int) -> list[float]:
    """Scrape once without measuring, then ``scrapes`` times."""
    if who == "library":
        scrape, close = await _library(url)
    else:
        scrape, close = _ours(url, REQUESTS if who == "ours" else "")
    try:
        return await {"cpu": _cpu_ms, "stall": _stall_ms, "peak": _peak_mib}[what](scrape, scrapes)
    finally:
        await close()


def _ours(url: str, requests: str) -> tuple[Scrape, Scrape]:
    from sidecar.config.scrape_url import parse_target  # noqa: PLC0415 - as above
    from sidecar.config.selectors import parse_selectors  # noqa: PLC0415 - as above
    from sidecar.core.types import Sample  # noqa: PLC0415 - only what is measured is imported
    from sidecar.inputs.scrape import Scraper  # noqa: PLC0415 - as above
    from sidecar.inputs.series_selection import SeriesSelection  # noqa: PLC0415 - as above

    selection = SeriesSelection(parse_selectors(ERRORS), parse_selectors(requests))
    scraper = Scraper(
        parse_target(url),
        selection,
        interval_s=10,
        timeout_s=60,
        offer=lambda _: True,
        on_failure=_fail,
        rng=random.Random(1),
    )

    async def scrape() -> None:
        sample = await scraper.scrape()
        if not isinstance(sample, Sample) or scraper._selection.overflow > 0:
            raise RuntimeError(f"no good sample: {sample}, overflow {scraper._selection.overflow}")

    return scrape, scraper.close


def _fail(error: Exception) -> None:
    raise error


async def _library(url: str) -> tuple[Scrape, Scrape]:
    import aiohttp  # noqa: PLC0415 - as above
    from prometheus_client.parser import text_string_to_metric_families  # noqa: PLC0415 - as above

    session = aiohttp.ClientSession()

    async def scrape() -> float:
        async with session.get(url) as response:
            text = await response.text()
        metrics = list(text_string_to_metric_families(text))
        return sum(sample.value for metric in metrics if metric.name == "http_requests" for sample in metric.samples)

    return scrape, session.close


async def _cpu_ms(scrape: Scrape, scrapes: int) -> list[float]:
    await scrape()
    gc.freeze()
    begun = time.process_time_ns()
    for _ in range(scrapes):
        await scrape()
    return [(time.process_time_ns() - begun) / scrapes / 1e6]


async def _stall_ms(scrape: Scrape, scrapes: int) -> list[float]:
    """The longest CPU time for which the loop was blocked: by later scrapes, and by the first."""
    longest = [0]
    gc.freeze()

    async def watch() -> None:
        while True:
            before = time.thread_time_ns()
            await asyncio.sleep(0)
            longest[0] = max(longest[0], time.thread_time_ns() - before)

    watching = asyncio.create_task(watch())
    await scrape()
    first, longest[0] = longest[0], 0
    for _ in range(scrapes):
        await scrape()
    watching.cancel()
    return [longest[0] / 1e6, first / 1e6]


async def _peak_mib(scrape: Scrape, scrapes: int) -> list[float]:
    """The peak memory of the process, less its memory with the libraries loaded."""
    import aiohttp  # noqa: PLC0415 - as above

    async with aiohttp.ClientSession() as session:  # the client's own buffers are not the page's
        with suppress(aiohttp.ClientError):
            await session.get("http://127.0.0.1:1/")
    gc.collect()
    _forget_peak()
    before = machine.rss_mib(os.getpid())
    for _ in range(scrapes + 1):
        await scrape()
    return [_peak() - before]


def _forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def _peak() -> float:
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")) / 1024


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        asyncio.run(serve(int(sys.argv[2])))
    else:
        from sidecar.app import lean_import

        if sys.argv[1] != "library":
            lean_import.import_aiohttp()
        result = asyncio.run(work(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
        sys.stdout.write(json.dumps(result))
