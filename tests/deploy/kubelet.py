"""A stand-in for a kubelet: it restarts the containers of one pod, which are real processes, by its probes and rules.

It speaks the words of a pod. What other schedulers do in place is said in them too (places.py). Left out are the wait
between restarts (CrashLoopBackOff), preStop, and the pod around the containers. Sources: Kubernetes' documentation of
"Liveness, Readiness and Startup Probes", and KEP-5532 for RestartAllContainers.
"""

from __future__ import annotations

import http.client
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any, Final

from harness.child import Child
from harness.waiting import wait_for

SPEED: Final = 10
"""Probes come that much more often than the files say."""

TIMEOUT_S: Final = 30.0
"""The stand-in takes no slow answer for a failure: the machine may be busy."""

BAD_REQUEST: Final = 400
Spec = Mapping[str, Any]


class Kubelet:
    """Runs ``processes``, by the name of their container in ``specs``. ``ports``: port in the files -> real one.

    It works only while ``until`` waits. ``restarts`` counts by container; ``events`` has what happened, in order. The
    container ``left_dead`` is not restarted, as if it ended again and again.
    """

    def __init__(self, specs: Mapping[str, Spec], processes: Mapping[str, Child], ports: Mapping[int, int]) -> None:
        self.restarts = dict.fromkeys(specs, 0)
        self.events: list[str] = []
        self.is_ready = False
        self.left_dead = ""
        self.speed = SPEED
        self._specs = specs
        self._processes = processes
        self._ports = ports
        self._due: dict[tuple[str, str], float] = {}
        self._failures: dict[tuple[str, str], int] = {}
        self._has_started: dict[str, bool] = {}

    def start(self) -> None:
        """Start every container, each when the one before is ready."""
        for name in self._specs:
            self._launch(name)
            self._processes[name].ready()

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Work until the condition holds."""

        def works() -> bool:
            self._work()
            return condition()

        wait_for(works, timeout_s=90, what=what)

    def _work(self) -> None:
        for name, process in self._processes.items():
            if not process.alive and name != self.left_dead:
                self._after(name, process.wait())
        for name, spec in self._specs.items():
            self._probe(name, spec)

    def _after(self, name: str, code: int) -> None:
        """Restart the container that ended, or all of them if a rule says so."""
        rules = self._specs[name].get("restartPolicyRules", ())
        restarts_all = any(code in rule["exitCodes"]["values"] for rule in rules)
        self.events.append(f"{name} ended" if not restarts_all else f"{name} ended: restart all")
        for each in self._specs if restarts_all else (name,):
            self._processes[each].kill()
            self.restarts[each] += 1
            self._launch(each)

    def _launch(self, name: str) -> None:
        self._processes[name].launch()
        self._has_started[name] = "startupProbe" not in self._specs[name]
        self._failures = {key: count for key, count in self._failures.items() if key[0] != name}

    def _probe(self, name: str, spec: Spec) -> None:
        kinds = ("livenessProbe", "readinessProbe") if self._has_started[name] else ("startupProbe",)
        for kind in kinds:
            probe, key = spec.get(kind), (name, kind)
            if probe is None or time.monotonic() < self._due.get(key, 0):
                continue
            self._due[key] = time.monotonic() + probe["periodSeconds"] / self.speed
            self._failures[key] = 0 if self._ask(probe) else self._failures.get(key, 0) + 1
            has_failed = self._failures[key] >= probe.get("failureThreshold", 3)
            if kind == "startupProbe":
                self._has_started[name] = self._failures[key] == 0
            elif kind == "readinessProbe":
                self._see_readiness(is_good=self._failures[key] == 0, has_failed=has_failed)
            elif has_failed:
                self.events.append(f"{name} is killed")
                self._processes[name].stop()

    def _see_readiness(self, *, is_good: bool, has_failed: bool) -> None:
        if self.is_ready != is_good and (is_good or has_failed):
            self.is_ready = is_good
            self.events.append("ready" if is_good else "not ready")

    def _ask(self, probe: Spec) -> bool:
        if "exec" in probe:
            return subprocess.run(probe["exec"]["command"], timeout=TIMEOUT_S, check=False).returncode == 0
        port = self._ports[(probe.get("httpGet") or probe["tcpSocket"])["port"]]
        try:
            if "tcpSocket" in probe:
                socket.create_connection(("127.0.0.1", port), TIMEOUT_S).close()
                return True
            with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)) as connection:
                connection.request("GET", probe["httpGet"]["path"])
                return connection.getresponse().status < BAD_REQUEST
        except (OSError, http.client.HTTPException):
            return False
