"""Real StatsD clients from the registries, sending an app's reports to the real sockets."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import statsd
from datadog.dogstatsd.base import DogStatsd

from harness.waiting import eventually
from sidecar.core.app_reports import ErrorReport, Heartbeat, Report, Results
from sidecar.inputs.datagram import Datagrams

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

PREFIX = "myapp"
APPS = Path(__file__).parents[1] / "apps"
"""Where ``node_modules`` is, if the clients for Node are installed; ``NODE_PATH`` may name another place."""

HOT_SHOTS = """
const [path, host, port] = JSON.parse(process.argv[1]);
const StatsD = require("hot-shots");
const where = path ? { protocol: "uds", path } : { host, port };
const client = new StatsD({ ...where, prefix: "myapp.", globalTags: { env: "prod" }, errorHandler: fail });
function fail(error) { console.error(error); process.exit(1); }
client.increment("errors");
client.increment("errors", 3, ["kind:redis", "level:server_error"]);
client.increment("errors", 1, { kind: "redis" });
client.increment(["requests", "failed"], 2);
client.gauge("memory", 1.5);
client.gaugeDelta("memory", -1);
client.timing("render", 3.3);
client.histogram("size", 17, 1);
client.distribution("size", 17);
client.set("users", "anna|b");
client.decrement("open");
client.event("deployed", "one\\ntwo", { alert_type: "info" });
client.check("db", client.CHECKS.OK, { message: "fine" });
client.increment("heartbeat");
client.close((error) => error && fail(error));
"""


@dataclass
class Controller:
    """What came in, summed."""

    errors: Counter[str] = field(default_factory=Counter)
    ok: int = 0
    failed: int = 0
    heartbeats: int = 0

    @property
    def counted(self) -> int:
        """Errors and requests."""
        return self.errors.total() + self.ok + self.failed

    def offer(self, reports: Sequence[Report]) -> bool:
        for report in reports:
            if isinstance(report, ErrorReport):
                self.errors[report.kind] += report.errors
            elif isinstance(report, Results):
                self.ok += report.ok
                self.failed += report.failed
            else:
                assert report == Heartbeat()
                self.heartbeats += 1
        return True


@pytest.fixture
def controller() -> Controller:
    return Controller()


@pytest.fixture
async def datagrams(controller: Controller, run_dir: Path) -> AsyncIterator[Datagrams]:
    failures: list[Exception] = []
    datagrams = Datagrams(controller.offer, on_failure=failures.append, prefix=PREFIX)
    await datagrams.open_udp("127.0.0.1", 0)
    await datagrams.open_unix(str(run_dir / "statsd.sock"))
    yield datagrams
    datagrams.close()
    assert not failures


def _host_and_port(datagrams: Datagrams) -> tuple[str, int]:
    host, _, port = datagrams.addresses[0].rpartition(":")
    return host, int(port)


async def _heard(controller: Controller, errors: int = 0) -> None:
    """A client sends the heartbeat last, but some send again later what found the queue full."""
    await eventually(lambda: controller.heartbeats, timeout_s=60, what="the heartbeat has come")
    await eventually(lambda: controller.counted >= errors, timeout_s=60, what="everything sent before has come")


# -- Python: statsd -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefix", [PREFIX, None], ids=["prefix", "plain"])
async def test_statsd_reports_are_counted(controller: Controller, datagrams: Datagrams, prefix: str | None) -> None:
    with closing(statsd.StatsClient(*_host_and_port(datagrams), prefix=prefix)) as client:
        client.incr("errors")
        client.incr("errors", 3)
        client.incr("requests", 10)
        client.incr("failed", 2)
        client.gauge("memory", 5)
        client.gauge("memory", -5, delta=True)
        client.set("users", "anna|b")
        client.timing("render", 3.2)
        client.decr("open")
        with client.timer("render"), client.pipeline() as pipeline:
            pipeline.incr("errors")
            pipeline.incr("requests", 5)
            pipeline.timing("render", 1)
        client.incr("heartbeat")
    await _heard(controller, 5 + 17)
    assert controller.errors == {"unknown": 5}
    assert (controller.ok, controller.failed) == (15, 2)
    assert datagrams.unreadable == 0


# -- Python: datadog ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [{}, {"disable_aggregation": False, "container_id": "83c0a99c", "cardinality": "low"}],
    ids=["as it is", "aggregated, with origin"],
)
@pytest.mark.parametrize("place", ["udp", "unix"])
async def test_datadog_reports_are_counted(
    controller: Controller, datagrams: Datagrams, place: str, options: dict[str, object]
) -> None:
    await asyncio.to_thread(_send_as_datadog, datagrams, place, options)
    await _heard(controller, 8 + 12)
    assert controller.errors == {"unknown": 4, "redis": 4}
    assert (controller.ok, controller.failed) == (10, 2)
    assert datagrams.unreadable == 0


def _send_as_datadog(datagrams: Datagrams, place: str, options: dict[str, object]) -> None:
    host, port = _host_and_port(datagrams)
    where = (
        {"host": host, "port": port} if place == "udp" else {"socket_path": datagrams.addresses[1], "socket_timeout": 5}
    )
    client = DogStatsd(**where, **options, namespace=PREFIX, constant_tags=["env:prod"])  # type: ignore[arg-type]
    client.increment("errors")
    client.increment("errors", 3, tags=["kind:redis"])
    client.increment("errors", tags=["kind:redis", "level:client_error", "canary"])
    client.increment("errors", 1.0, sample_rate=1)
    client.count_with_timestamp("errors", 2, 1_700_000_000)
    client.increment("requests", 10)
    client.increment("failed", 2)
    client.gauge("memory", 1.5)
    client.timing("render", 5)
    client.histogram("size", 1.5)
    client.distribution("size", 1.5)
    client.set("users", "anna|b")
    client.event("deployed", "one\ntwo", tags=["kind:a"])
    client.service_check("db", DogStatsd.OK, message="fine: |all")
    client.flush()
    client.increment("heartbeat")
    client.flush()
    client.stop()
    client.close_socket()


# -- Node: hot-shots ----------------------------------------------------------------------------------------


def _require_node(*modules: str) -> None:
    """Skip without these modules, under CI=true as well: whether a registry answers is no property of ours."""
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    for module in modules:
        command = ["node", "-e", f"require({module!r})"]
        if subprocess.run(command, cwd=_node_home(), capture_output=True, check=False, timeout=60).returncode:
            pytest.skip(f"{module} is not installed for node (tests/run installs it)")


def _node_home() -> Path:
    return APPS if APPS.is_dir() else Path(__file__).parent


@pytest.mark.parametrize(
    ("place", "modules"), [("udp", ["hot-shots"]), ("unix", ["hot-shots", "unix-dgram"])], ids=["udp", "unix"]
)
async def test_hot_shots_reports_are_counted(
    controller: Controller, datagrams: Datagrams, place: str, modules: list[str]
) -> None:
    await asyncio.to_thread(_require_node, *modules)
    host, port = _host_and_port(datagrams)
    where = json.dumps(["", host, port] if place == "udp" else [datagrams.addresses[1], "", 0])
    client = await asyncio.create_subprocess_exec("node", "-e", HOT_SHOTS, where, cwd=_node_home())
    assert await asyncio.wait_for(client.wait(), 60) == 0
    await _heard(controller, 5 + 4)
    assert controller.errors == {"unknown": 1, "redis": 4}
    assert (controller.ok, controller.failed) == (2, 2)
    assert datagrams.unreadable == 0
