"""Pages of real exporters, fetched while they run: the scanner finds every family as prometheus-client does."""

from __future__ import annotations

import urllib.request
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text

from harness.binaries import require
from harness.child import Child
from harness.children import Children, StartHaproxy, StartRedis
from harness.haproxy import Haproxy
from harness.ports import free_port
from harness.waiting import wait_for
from sidecar.inputs.exposition import Scanner, family
from sidecar.inputs.series import Series, parse_series

TEXT = "text/plain;version=0.0.4"
OPENMETRICS = "application/openmetrics-text;version=1.0.0"
STEPS = (1000, 16_384)


class Exporter(Child):
    """One of Debian's exporters on a loopback port; ``{port}`` in its arguments is the port."""

    def __init__(self, directory: Path, program: str, *arguments: str) -> None:
        super().__init__(program, directory)
        self._program = require(program)
        self._arguments = arguments
        self.port = free_port()

    def _command(self) -> list[str]:
        return [self._program, *(argument.format(port=self.port) for argument in self._arguments)]

    def _is_ready(self) -> bool:
        return bool(_fetch(self.port, TEXT).text)


class Fetched(NamedTuple):
    """A page as it came."""

    text: str
    openmetrics: bool


def _fetch(port: int, accept: str) -> Fetched:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=5) as response:
        return Fetched(response.read().decode(), "openmetrics" in response.headers["Content-Type"])


def _expected(page: Fetched) -> list[tuple[str, list[tuple[str, str]], str]]:
    read: Any = read_openmetrics if page.openmetrics else read_text
    metrics = read(page.text if page.openmetrics else _without_counters(page.text))
    samples: list[Any] = [sample for metric in metrics for sample in metric.samples]
    return sorted((sample.name, sorted(sample.labels.items()), repr(float(sample.value))) for sample in samples)


def _without_counters(text: str) -> str:
    """prometheus-client adds ``_total`` to a counter that has none; here the page's own names count."""
    return "\n".join(
        f"{line[:-7]}gauge" if line.endswith(" counter") and line[0] == "#" else line for line in text.split("\n")
    )


def _compare(page: Fetched, at_least: int) -> None:
    expected = _expected(page)
    names = sorted({name for name, _, _ in expected})
    assert len(expected) >= at_least
    for step in STEPS:
        found = []
        for name in names:
            found += _scanned(page, name, step)
        assert sorted(found) == expected


def _scanned(page: Fetched, name: str, step: int) -> list[tuple[str, list[tuple[str, str]], str]]:
    def resolve(text: bytes) -> Series | None:
        series = parse_series(text)
        return series if series.name == name else None

    scanner = Scanner([family(name)], resolve, openmetrics=page.openmetrics)
    data = page.text.encode()
    for begin in range(0, len(data), step):
        scanner.feed(data[begin : begin + step])
    read = scanner.finish(whole=True)
    assert not read.cut_off
    return [
        (series.name, sorted(series.labels.items()), repr(value))
        for series, value in zip(read.found, read.values, strict=True)
    ]


EXPORTERS = [
    pytest.param(
        "prometheus",
        ("--config.file=empty.yml", "--storage.tsdb.path=data", "--web.listen-address=127.0.0.1:{port}"),
        id="prometheus",
    ),
    pytest.param(
        "prometheus-alertmanager",
        (
            "--config.file=alerts.yml",
            "--storage.path=data",
            "--cluster.listen-address=",
            "--web.listen-address=127.0.0.1:{port}",
        ),
        id="alertmanager",
    ),
    pytest.param("prometheus-node-exporter", ("--web.listen-address=127.0.0.1:{port}",), id="node"),
]


@pytest.mark.parametrize("accept", [TEXT, OPENMETRICS], ids=["text", "openmetrics"])
@pytest.mark.parametrize(("program", "arguments"), EXPORTERS)
def test_exporter_is_read_as_prometheus_client_reads_it(
    program: str, arguments: tuple[str, ...], accept: str, run_dir: Path, children: Children
) -> None:
    (run_dir / "empty.yml").write_text("{}\n")
    (run_dir / "alerts.yml").write_text("route: {receiver: none}\nreceivers: [{name: none}]\n")
    exporter = children.adopt(Exporter(run_dir, program, *arguments)).start()
    _compare(_fetch(exporter.port, accept), at_least=100)


@pytest.mark.redis
def test_redis_exporter_is_read_as_prometheus_client_reads_it(
    run_dir: Path, start_redis: StartRedis, children: Children
) -> None:
    redis = start_redis()
    arguments = (f"-redis.addr=redis://127.0.0.1:{redis.port}", "-web.listen-address=127.0.0.1:{port}")
    exporter = children.adopt(Exporter(run_dir, "prometheus-redis-exporter", *arguments)).start()
    _compare(_fetch(exporter.port, TEXT), at_least=100)


HAPROXY = """
defaults
  mode http
  timeout client 5s
  timeout server 5s
  timeout connect 5s
frontend metrics
  bind 127.0.0.1:{port}
  http-request use-service prometheus-exporter if {{ path /metrics }}
  default_backend none
backend none
  server "one" 127.0.0.1:1
"""


@pytest.mark.site
@pytest.mark.haproxy
def test_haproxy_is_read_as_prometheus_client_reads_it(haproxy: StartHaproxy) -> None:
    port = free_port()
    proxy: Haproxy = haproxy(HAPROXY.format(port=port))
    assert proxy.alive
    page = wait_for(lambda: _fetch(port, TEXT), timeout_s=60, what="HAProxy's page")
    _compare(page, at_least=100)
