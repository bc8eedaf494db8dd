"""A stand-in for Nomad: allocations of real processes, its task API, and what its client does with the job file.

It answers what Nomad 2.0.5 answered (command/agent/alloc_endpoint.go). Left out are images, nodes and
deployments.
"""

from __future__ import annotations

import json
import re
import threading
import time
import uuid
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Final, Self

from deploy.nomad_job import JobFile, one, seconds
from harness.apps import FailingApp
from harness.http_request import request
from harness.http_server import Asked, Said, http_server
from harness.ports import free_port
from harness.sidecar import Setting, Sidecar
from harness.waiting import wait_for
from sidecar.config.load import load
from sidecar.config.settings import setting_names
from sidecar.config.sources import variable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    from harness.children import Children

SPEED: Final = 10
"""Nomad's waits, and the times of the job's checks, are that much shorter."""

TIMEOUT_S: Final = 5.0
"""Time for an answer to a check. A refused connection fails at once: only a stopped arbiter takes that long."""

TOKEN: Final = "eyJ-identity-of-the-task"
OF_THE_TEST: Final = ("service", "instance", "redis_url", "state_dir")
_ORDER: Final = re.compile(
    r"/v1/(?:client/allocation(?=.*/restart)|allocation(?=.*/stop))/([0-9a-f-]+)/(?:restart|stop(?:\?no_shutdown_delay=true)?)"
)


class TaskApi:
    """The task API of one task at ``api.sock`` in ``secrets``, while the context lasts.

    ``restart`` and ``stop`` carry out what it is asked for.
    """

    def __init__(
        self, secrets: Path, allocation: str, restart: Callable[[str], None], stop: Callable[[], None]
    ) -> None:
        self._path = secrets / "api.sock"
        self._allocation = allocation
        self._restart = restart
        self._stop = stop
        (secrets / "nomad_token").write_text(TOKEN)

    def __enter__(self) -> Self:
        self._serving = ExitStack()
        self._serving.enter_context(http_server(self._answer, self._path))
        return self

    def __exit__(self, *_: object) -> None:
        self._serving.close()
        self._path.unlink(missing_ok=True)

    def _answer(self, asked: Asked) -> Said:
        status, text = self._done(asked.path, asked.headers.get("X-Nomad-Token", ""), asked.body)
        kind = "application/json" if status == 200 else "text/plain; charset=utf-8"
        return Said(status, text.encode(), {"Content-Type": kind})

    def _done(self, path: str, token: str, body: bytes) -> tuple[int, str]:
        """Status and body, as Nomad's: errors are plain text."""
        refusal = self._refusal(path, token)
        if refusal is not None:
            return refusal
        if _is_stop(path):
            self._stop()
            return 200, json.dumps({"EvalID": str(uuid.uuid4()), "Index": 42})
        self._restart(json.loads(body)["TaskName"])
        return 200, json.dumps({"Index": 0})

    def _refusal(self, path: str, token: str) -> tuple[int, str] | None:
        found = _ORDER.fullmatch(path)
        if not token:
            return 401, "Unauthorized"
        if token != TOKEN:
            return 500, "Server error authenticating request\n"
        if found is None:
            return 404, "resource not found"
        if found[1] != self._allocation:
            return 404, "allocation not found" if _is_stop(path) else f'Unknown allocation "{found[1]}"'
        return None


def _is_stop(path: str) -> bool:
    return path.partition("?")[0].endswith("/stop")


class Placement:
    """One of the allocations that the job wants, with the tasks ``app`` and ``arbiter``.

    ``settings`` are of the test; the others are those of the job, with times that are SPEED times shorter.
    ``events`` has what happened to the app, in order. The ports stay when the allocation is replaced, so that HAProxy
    finds the next one.
    """

    def __init__(self, name: str, job: JobFile, directory: Path, children: Children, **settings: Setting) -> None:
        self.events: list[str] = []
        self.ports = {listener: free_port() for listener in ("app", "public", "agent")}
        self._name = name
        self._job = job
        self._directory = directory
        self._children = children
        self._settings = settings
        self._is_restarting = threading.Event()
        self._is_stopped = threading.Event()
        self._replaced_at = self._next_check = self._failing_since = 0.0

    def start(self) -> Self:
        """Place an allocation, and return once its tasks serve."""
        self.allocation = str(uuid.uuid4())
        directory = self._directory / self.allocation[:8]
        secrets, shared = directory / "secrets", directory / "tmp"
        for each in (secrets, shared):
            each.mkdir(parents=True)
        self.api = TaskApi(secrets, self.allocation, self._restart, self._is_stopped.set).__enter__()
        self.app = self._children.adopt(FailingApp(directory, self._name))
        self.app.port = self.ports["app"]
        self.arbiter = self._children.adopt(Arbiter(directory, self._name, secrets, **self._all_settings(shared)))
        self.app.start()
        self.arbiter.start()
        return self

    def end(self) -> None:
        """Stop the allocation: first the app, then its sidecar."""
        self.app.stop()
        self.arbiter.stop()
        self.api.__exit__()

    def work(self) -> None:
        """Do what Nomad does now: with tasks that ended, with a failing check, and with what was asked of the API."""
        if self._replaced_at:
            if time.monotonic() >= self._replaced_at:
                self._replaced_at = 0
                self.start()
        elif self._is_stopped.is_set():
            self._is_stopped.clear()
            self._end("stopped", delay_s=0)
        elif not self.app.alive and self._is_restarting.is_set():
            self._is_restarting.clear()
            self.events.append("restarted")
            self.app.launch()
        elif not self.app.alive:
            # `attempts = 0`, and then `reschedule`
            self._end("failed", seconds(one(self._job.group, "reschedule"), "delay") / SPEED)
        elif not self.arbiter.alive:
            self.arbiter.launch()
        else:
            self._check()

    def is_up(self) -> bool:
        """Whether the app serves, and its sidecar says so to Nomad."""
        with suppress(OSError):
            return request(self.ports["app"], "/")[0] == 200 and self.arbiter.health("/health/nomad")[0] == 200
        return False

    def _all_settings(self, shared: Path) -> dict[str, Setting]:
        environ, wanted = self._job.environ, load({}, self._job.environ)
        fields = [name for name in setting_names() if name not in OF_THE_TEST and variable(name) in environ]
        own: dict[str, Setting] = {name: environ[variable(name)] for name in fields}
        quick: dict[str, Setting] = {"grace": 0, "drain": wanted.culling.drain / SPEED, "stop_drain": 0}
        facts: dict[str, Setting] = {"instance": self.allocation, "state_dir": shared, "app_port": self.ports["app"]}
        listeners = {f"{name}_listen": f"127.0.0.1:{self.ports[name]}" for name in ("public", "agent")}
        return {**own, **quick, **facts, **listeners, **self._settings}

    def _restart(self, task: str) -> None:
        """End the task. Nomad answers when it has ended, and starts it again after that."""
        assert task == "app"
        self._is_restarting.set()
        self.app.stop()

    def _end(self, why: str, delay_s: float) -> None:
        self.events.append(why)
        self.end()
        self._replaced_at = time.monotonic() + delay_s

    def _check(self) -> None:
        """Ask what the job's check asks; it restarts the app after ``limit`` failures, and that makes it fail."""
        now = time.monotonic()
        if not self._job.check or now < self._next_check:
            return
        self._next_check = now + seconds(self._job.check, "interval") / SPEED
        try:
            is_well = request(self.ports["public"], self._job.check["path"], timeout_s=TIMEOUT_S)[0] < 400
        except OSError:
            is_well = False
        self._failing_since = 0 if is_well else self._failing_since or now
        if self._failing_since and now - self._failing_since >= self._job.patience_s / SPEED:
            self._failing_since = 0
            self.app.stop()


class Arbiter(Sidecar):
    """The task ``arbiter``: a sidecar with the variables that Nomad sets."""

    def __init__(self, directory: Path, name: str, secrets: Path, **settings: Setting) -> None:
        super().__init__(directory, name, **settings)
        self._secrets = secrets

    def _env(self) -> dict[str, str]:
        allocation = str(self.settings["instance"])
        return {**super()._env(), "NOMAD_SECRETS_DIR": str(self._secrets), "NOMAD_ALLOC_ID": allocation}


def until(placements: Collection[Placement], condition: Callable[[], bool], what: str) -> None:
    """Do Nomad's work until the condition holds."""

    def works() -> bool:
        for placement in placements:
            placement.work()
        return condition()

    wait_for(works, timeout_s=90, what=what)
