"""A whole site: twenty real sidecars, Redis, HAProxy, Prometheus with the shipped rules, Alertmanager, a webhook.

The apps are fakes that only report errors. Settings have seconds where production has minutes.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from harness.haproxy import Haproxy
from harness.ports import free_ports
from harness.prometheus import Alertmanager, Prometheus
from harness.redis_server import RedisServer
from harness.sidecar import GATES, Setting, Sidecar

if TYPE_CHECKING:
    from harness.children import Children
    from harness.receiver import Receiver

DEPLOY: Final = Path(__file__).parents[2] / "deploy"
SERVICE: Final = "shop"
FLEET: Final = 20
BUDGET: Final = 6
QUICK: Final[dict[str, Setting]] = {
    **GATES,
    "service": SERVICE,
    "error_window": "3s",
    "check_interval": "1s",
    "redis_timeout": "900ms",
    "settle": "1500ms",
    "drain": "500ms",
    "beat_interval": "1s",
    "probation": "2s",
    "budget": str(BUDGET),
    "runbook_url": "https://runbooks.example/health-arbiter",
}
_PAUSE_S: Final = 0.5
_ERRORS: Final = 6
_AT_ONCE: Final = 10
_SHORTENED: Final = (
    (r"(scrape_interval|evaluation_interval): \w+", r"\1: 1s"),
    (r"\bfor: 4h", "for: 2s"),
    (r"\bfor: 1m", "for: 1s"),
)
"""Shorter intervals and durations in the shipped files; their ranges stay ten minutes and an hour."""

_APPS: Final = """
frontend apps
    bind 127.0.0.1:{port}
    http-request set-log-level silent
    http-request return status 200
"""


class SiteApps:
    """One app beside each sidecar. While the context lasts, a thread reports the errors of the sick ones."""

    def __init__(self) -> None:
        self._sick: dict[str, tuple[Sidecar, str]] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._report, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(10)

    def begin(self, one: Sidecar) -> None:
        """Begin an incarnation of the app, without errors."""
        one.post_error(count=0, app_start=_incarnation(one))

    def make_sick(self, *who: Sidecar, kind: str) -> None:
        """Let these apps report errors of this kind until ``heal``, culled or not."""
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            # The first reports go out side by side, as in a real outage.
            list(pool.map(lambda one: _report_errors(one, kind), who))
        with self._lock:
            self._sick |= {one.name: (one, kind) for one in who}

    def heal(self, *who: Sidecar) -> None:
        """Stop the errors of these apps; on return no report is on its way."""
        with self._lock:
            for one in who:
                self._sick.pop(one.name, None)

    def _report(self) -> None:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            while not self._stop.wait(_PAUSE_S):
                # ``heal`` waits until the round is over.
                with self._lock:
                    list(pool.map(_report_if_it_listens, self._sick.values()))


def _report_errors(one: Sidecar, kind: str) -> None:
    one.post_error(count=_ERRORS, kind=kind, app_start=_incarnation(one), message=f"no answer from {kind}")


def _report_if_it_listens(sick: tuple[Sidecar, str]) -> None:
    with contextlib.suppress(OSError):
        _report_errors(*sick)


def _incarnation(one: Sidecar) -> str:
    return str(one.settings["instance"])


@dataclass
class Site:
    """The site; ``messages`` is the webhook, and ``apps`` are the reporting apps."""

    directory: Path
    children: Children
    messages: Receiver
    apps: SiteApps
    fleet: list[Sidecar] = field(default_factory=list)

    def launch(self) -> Self:
        """Start everything."""
        self.redis = self.children.adopt(RedisServer(self.directory)).start()
        self.alerts = self.children.adopt(Alertmanager(self.directory))
        self.alerts.launch()
        self.fleet = [self._sidecar(number) for number in range(1, FLEET + 1)]
        for one in self.fleet:
            one.launch()
        # Prometheus takes some seconds until its first scrape.
        self.metrics = self.children.adopt(Prometheus(self.directory, self._scraping()))
        self.metrics.launch()
        self.proxy = self.children.adopt(Haproxy(self.directory, self._balancing())).start()
        return self

    def ready(self) -> None:
        """Return once everything serves, and begin the first incarnation of every app."""
        self.alerts.ready()
        self.metrics.ready()
        for one in self.fleet:
            one.ready(timeout_s=60)
            self.apps.begin(one)

    def replace(self, one: Sidecar) -> None:
        """Do what Nomad does: start another allocation at the same address, with another name and no state."""
        self.apps.heal(one)
        one.stop()
        name, _, life = str(one.settings["instance"]).partition(".")
        one.settings |= {"instance": f"{name}.{int(life or 1) + 1}", "state_dir": self._state(one)}
        self._write_targets()
        one.start()
        self.apps.begin(one)

    def _sidecar(self, number: int) -> Sidecar:
        template = self.directory / "message.json"
        template.write_text('{"text": "$text", "word": "$word", "sentence": "$sentence"}')
        receivers: dict[str, Setting] = {"webhook_url": self.messages.url, "webhook_template": template}
        name = f"web-{number:02d}"
        return self.children.adopt(Sidecar(self.directory, name, **QUICK, **receivers, redis_url=self.redis.url))

    def _state(self, one: Sidecar) -> Path:
        made = self.directory / f"{one.name}.{one.pid}.state"
        made.mkdir()
        return made

    # -- the balancer ---------------------------------------------------------------------------------------------

    def _balancing(self) -> str:
        """The shipped agent.cfg with ten times shorter intervals, and with one app for all servers."""
        front, app = free_ports(2)
        text = (DEPLOY / "haproxy" / "agent.cfg").read_text()
        text = text.replace("bind :8000", f"bind 127.0.0.1:{front}").replace("agent-inter 2s", "agent-inter 200ms")
        text = re.sub(r"(?m)^ +server app.*\n", "", text).replace("agent-port 9182 ", "")
        servers = "".join(
            f"    server {one.name.removeprefix('sidecar-')} 127.0.0.1:{app} agent-port {one.address('agent')[1]}\n"
            for one in self.fleet
        )
        return f"{text}{servers}{_APPS.format(port=app)}"

    # -- Prometheus -----------------------------------------------------------------------------------------------

    def _scraping(self) -> Path:
        """The shipped rules and try.yml with shorter times, with the fleet and Alertmanager."""
        shipped = Path(shutil.copytree(DEPLOY / "prometheus", self.directory / "rules"))
        for path in (shipped / "alerts.yml", shipped / "try.yml"):
            text = path.read_text()
            for old, new in _SHORTENED:
                text = re.sub(old, new, text)
            path.write_text(text)
        self._targets = shipped / "targets.json"
        self._write_targets()
        config = shipped / "try.yml"
        text, replaced = re.subn(
            r"static_configs:\n.*\n.*\n", "file_sd_configs: [{files: [targets.json]}]\n", config.read_text()
        )
        assert replaced == 1, "try.yml has no targets"
        address = self.alerts.url.removeprefix("http://")
        config.write_text(f"{text}\nalerting: {{alertmanagers: [{{static_configs: [{{targets: ['{address}']}}]}}]}}\n")
        return config

    def _write_targets(self) -> None:
        half = self._targets.with_suffix(".half")
        half.write_text(json.dumps([_target(one) for one in self.fleet]))
        half.rename(self._targets)


def _target(one: Sidecar) -> dict[str, object]:
    labels = {"namespace": "default", "service": SERVICE, "instance": str(one.settings["instance"])}
    host, port = one.address("public")
    return {"targets": [f"{host}:{port}"], "labels": labels}
