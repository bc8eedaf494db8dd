"""A recorded hour, compressed: what the real sidecars culled is what the backtest of their Prometheus culls."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, Self

import pytest

from harness.children import Children, StartSidecar
from harness.prometheus import Prometheus
from harness.redis_server import RedisServer
from harness.sidecar import GATES, Setting, Sidecar
from harness.waiting import wait_for

pytestmark = pytest.mark.site
TICK_S: Final = 0.25
FOR_S: Final = 30.0
REPLACE_S: Final = 3.0
JUDGING: Final[dict[str, Setting]] = {
    "error_limit": 5,
    "error_window": "10s",
    "check_interval": "1s",
    "settle": "1s",
    "drain": "1s",
    "drain_min": "1s",
    "budget": 2,
    "budget_window": "5m",
    "grace": "0s",
    "redis_timeout": "500ms",
    "beat_interval": "1s",
    "probation": "60s",
    "replace_time": f"{REPLACE_S:g}s",
    **GATES,
    "refund": "off",
}
"""Of the sidecars, and of the backtest."""

COUNTERS: Final = ("kind_from=kind: errors_total", "requests_total")


class CountingApp:
    """An app with a metrics page. ``failing``: errors a second of this kind, until it is restarted or healed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.failing: tuple[str, float] | None = None
        self.culled_at: float | None = None
        self._lock = threading.Lock()
        app = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = app.page()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Nothing: the test has counters."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_port
        self.restart()

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def restart(self) -> None:
        """Begin another incarnation, whose counters begin at 0."""
        with self._lock:
            self.failing, self.culled_at = None, None
            self._errors: dict[str, float] = {"db": 0.0, "stray": 0.0}
            self._requests = 0
            self._start = time.time()

    def work(self) -> None:
        """Serve requests for a tick."""
        with self._lock:
            self._requests += 5
            if self.failing is not None:
                kind, per_s = self.failing
                self._errors[kind] = self._errors.get(kind, 0.0) + per_s * TICK_S

    def heal(self) -> None:
        """Work again, in the same incarnation."""
        self.failing = None

    def fail(self, kind: str, count: int) -> None:
        """Have errors at once."""
        with self._lock:
            self._errors[kind] += count

    def page(self) -> bytes:
        with self._lock:
            lines = [f'errors_total{{kind="{kind}"}} {int(count)}' for kind, count in self._errors.items()]
            lines += [f"requests_total {self._requests}", f"process_start_time_seconds {self._start:.3f}"]
        return ("\n".join(lines) + "\n").encode()


class Hour:
    """The incidents of the hour, by the second at which they begin, and the scheduler that restarts the culled."""

    def __init__(self, apps: dict[str, CountingApp], fleet: dict[str, Sidecar]) -> None:
        self._apps, self._fleet = apps, fleet
        self._plan: list[tuple[float, Callable[[], None]]] = [
            (2.0, lambda: self._stick("a", "db")),
            (8.0, lambda: self._stick("b", "connection")),
            (14.0, lambda: self._stick("c", "memory")),
            (19.0, lambda: apps["d"].fail("stray", 4)),
            (23.0, apps["c"].heal),
            *((at, lambda: apps["e"].fail("stray", 2)) for at in (5.0, 12.0, 19.0)),
        ]

    def run(self) -> tuple[float, float]:
        """Let it pass; return its beginning and its end in Unix time."""
        begun, since = time.time(), time.monotonic()
        plan = sorted(self._plan, key=lambda one: one[0])
        tick = threading.Event()
        while (now := time.monotonic() - since) < FOR_S:
            while plan and plan[0][0] <= now:
                plan.pop(0)[1]()
            for app in self._apps.values():
                app.work()
                self._schedule(app)
            tick.wait(TICK_S)
        return begun, time.time()

    def _stick(self, name: str, kind: str) -> None:
        self._apps[name].failing = (kind, 4.0)

    def _schedule(self, app: CountingApp) -> None:
        """Restart an app some seconds after its sidecar said that it is down."""
        if app.culled_at is not None:
            if time.monotonic() - app.culled_at >= REPLACE_S:
                app.restart()
        elif app.failing and self._fleet[app.name].health()[0] != 200:
            app.culled_at = time.monotonic()


def scraping(directory: Path, apps: dict[str, CountingApp]) -> Path:
    targets = [{"targets": [f"127.0.0.1:{app.port}"], "labels": {"instance": name}} for name, app in apps.items()]
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
        "scrape_configs": [{"job_name": "apps", "static_configs": targets}],
    }
    path = directory / "scrape.yml"
    path.write_text(json.dumps(config))
    return path


@pytest.mark.redis
@pytest.mark.timeout(240)
def test_backtest_of_a_recorded_hour_culls_what_the_real_sidecars_culled(
    run_dir: Path, children: Children, redis_server: RedisServer, sidecar: StartSidecar
) -> None:
    """Two stuck containers are culled, the third is refused and recovers, and the others stay below the limit."""
    apps = {name: CountingApp(name) for name in "abcde"}
    for app in apps.values():
        app.__enter__()
    try:
        prometheus = children.adopt(Prometheus(run_dir, scraping(run_dir, apps)))
        prometheus.launch()
        fleet = {name: sidecar.unstarted(name, **_settings(app, redis_server)) for name, app in apps.items()}
        for one in fleet.values():
            one.launch()
        for one in fleet.values():
            one.ready(timeout_s=60)
        prometheus.ready()
        wait_for(lambda: len(prometheus.instant("requests_total")) == 5, timeout_s=60, what="all apps are scraped")
        wait_for(
            lambda: fleet["a"].request("local", "GET", "/fleet").json()["fleet"]["alive"] == 5, timeout_s=60, what="5"
        )
        begun, ended = Hour(apps, fleet).run()
        wait_for(lambda: last_scrape(prometheus) > ended, timeout_s=60, what="the last scrape")
        real = fleet["e"].request("local", "GET", "/events?most=500").json()["events"]
        played = backtest(run_dir, prometheus, begun - 1, ended)
    finally:
        for app in apps.values():
            app.__exit__()
    culls = [(event["instance"], event["kind"]) for event in real if event["what"] == "culled"]
    assert culls == [("a", "db"), ("b", "connection")]
    refused = {(event["instance"], event["reason"]) for event in real if event["what"] == "denied"}
    assert {name for name, _ in refused} == {"c"}
    for column in ("optimistic", "pessimistic"):
        assert [(cull["name"], cull["cause"]) for cull in played[column]["each_cull"]] == culls
        assert {(one["name"], one["gate"]) for one in played[column]["each_refusal"]} == refused


def last_scrape(prometheus: Prometheus) -> float:
    """When the app that was scraped longest ago was scraped, in Unix time."""
    (found,) = prometheus.instant("min(timestamp(requests_total))")
    return float(found["value"][1])


def _settings(app: CountingApp, redis: RedisServer) -> dict[str, Setting]:
    errors, requests = COUNTERS
    return {
        **JUDGING,
        "redis_url": redis.url,
        "scrape_url": f"http://127.0.0.1:{app.port}/metrics",
        "scrape_errors": errors,
        "scrape_requests": requests,
        "scrape_interval": "500ms",
        "scrape_timeout": "500ms",
    }


def backtest(directory: Path, prometheus: Prometheus, begun: float, ended: float) -> dict[str, Any]:
    """The results of the command by their names."""
    settings = directory / "settings.toml"
    settings.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in JUDGING.items()))
    errors, requests = COUNTERS
    words = ["--prometheus", f"http://127.0.0.1:{prometheus.port}", "--errors", errors, "--requests", requests]
    words += ["--since", str(int(begun)), "--until", str(int(ended)), "--step", "1s", "--settings", str(settings)]
    words += ["--replace", "8s", "--weighted", "--no-article", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "sidecar", "backtest", *words], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    (directory / "played.json").write_text(done.stdout)
    return {one["rules"]: one for one in json.loads(done.stdout)["rules"]}
