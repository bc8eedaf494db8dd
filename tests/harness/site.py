"""A whole site: twenty real sidecars, Redis, HAProxy, Prometheus with the shipped rules, Alertmanager, a webhook.

The apps are fakes that only report errors. Everything waits for seconds where production waits for minutes.
"""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from harness.alertmanager import Alertmanager
from harness.haproxy import Haproxy
from harness.ports import free_ports
from harness.prometheus import Prometheus
from harness.redis_server import RedisServer
from harness.sidecar import GATES, Setting, Sidecar

if TYPE_CHECKING:
    from harness.receiver import Receiver
    from harness.site_apps import SiteApps
    from harness.starting import Children

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
    "drain_min": "0s",
    "beat_interval": "1s",
    "probation": "2s",
    "budget": str(BUDGET),
    "runbook_url": "https://runbooks.example/health-arbiter",
}
_SHORTENED: Final = (
    (r"(scrape_interval|evaluation_interval): \w+", r"\1: 1s"),
    (r"\bfor: 4h", "for: 2s"),
    (r"\bfor: 1m", "for: 1s"),
)
"""Of the shipped files, how often and how long; what they look back on stays ten minutes and an hour."""

_APPS: Final = """
frontend apps
    bind 127.0.0.1:{port}
    http-request set-log-level silent
    http-request return status 200
"""


@dataclass
class Site:
    """Opened once; ``messages`` is the webhook, ``apps`` report what they suffer from."""

    directory: Path
    children: Children
    messages: Receiver
    apps: SiteApps
    fleet: list[Sidecar] = field(default_factory=list)

    def launch(self) -> Self:
        """Start all of it."""
        self.redis = self.children.adopt(RedisServer(self.directory)).start()
        self.alerts = self.children.adopt(Alertmanager(self.directory))
        self.alerts.launch()
        self.fleet = [self._sidecar(number) for number in range(1, FLEET + 1)]
        for one in self.fleet:
            one.launch()
        # Prometheus takes some seconds to look at its targets.
        self.metrics = self.children.adopt(Prometheus(self.directory, self._scraping()))
        self.metrics.launch()
        self.proxy = self.children.adopt(Haproxy(self.directory, self._balancing())).start()
        return self

    def ready(self) -> None:
        """Return once all of it serves, and let every app's life begin."""
        self.alerts.ready()
        self.metrics.ready()
        for one in self.fleet:
            one.ready(timeout_s=60)
            self.apps.begin(one)

    def replace(self, one: Sidecar) -> None:
        """Do what Nomad does: another allocation at the same address, of another name and without a past."""
        self.apps.heal(one)
        one.stop()
        name, _, life = str(one.settings["instance"]).partition(".")
        one.settings |= {"instance": f"{name}.{int(life or 1) + 1}", "state_dir": self._state(one)}
        self._tell_targets()
        one.start()
        self.apps.begin(one)

    def _sidecar(self, number: int) -> Sidecar:
        told = {"webhook_url": self.messages.url, "alertmanager_url": self.alerts.url}
        name = f"web-{number:02d}"
        return self.children.adopt(Sidecar(self.directory, name, **QUICK, **told, redis_url=self.redis.url))

    def _state(self, one: Sidecar) -> Path:
        made = self.directory / f"{one.name}.{one.pid}.state"
        made.mkdir()
        return made

    # -- the balancer ---------------------------------------------------------------------------------------------

    def _balancing(self) -> str:
        """The shipped agent.cfg, ten times as quick, and with one app that answers for all of them."""
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
        """The shipped rules and try.yml, in seconds instead of minutes, with the fleet and Alertmanager in it."""
        shipped = Path(shutil.copytree(DEPLOY / "prometheus", self.directory / "rules"))
        for path in (shipped / "alerts.yml", shipped / "try.yml"):
            text = path.read_text()
            for old, new in _SHORTENED:
                text = re.sub(old, new, text)
            path.write_text(text)
        self._targets = shipped / "targets.json"
        self._tell_targets()
        config = shipped / "try.yml"
        text, replaced = re.subn(
            r"static_configs:\n.*\n.*\n", "file_sd_configs: [{files: [targets.json]}]\n", config.read_text()
        )
        assert replaced == 1, "try.yml has no targets"
        address = self.alerts.url.removeprefix("http://")
        config.write_text(f"{text}\nalerting: {{alertmanagers: [{{static_configs: [{{targets: ['{address}']}}]}}]}}\n")
        return config

    def _tell_targets(self) -> None:
        half = self._targets.with_suffix(".half")
        half.write_text(json.dumps([_target(one) for one in self.fleet]))
        half.rename(self._targets)


def _target(one: Sidecar) -> dict[str, object]:
    labels = {"namespace": "default", "service": SERVICE, "instance": str(one.settings["instance"])}
    host, port = one.address("public")
    return {"targets": [f"{host}:{port}"], "labels": labels}
