"""The files for Kubernetes, ECS, Compose and systemd: a culled app is restarted, and a dead sidecar hurts nobody."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import kubernetes_validate
import pytest
from botocore.loaders import Loader
from botocore.model import ServiceModel
from botocore.validate import ParamValidator

from deploy import places
from deploy.ecs_service import SPEED_OF_ATTEMPTS, EcsService
from deploy.kubelet import SPEED, Kubelet
from deploy.places import Place
from harness.binaries import find
from harness.child import Child
from harness.ports import free_port
from harness.sidecar import Setting, Sidecar
from sidecar import __version__
from sidecar.config import addresses
from sidecar.config.settings import SettingsError, load
from sidecar.config.settings_model import Settings
from sidecar.config.sources import variable

if TYPE_CHECKING:
    from harness.children import Children
    from harness.redis_server import RedisServer

APP_PORT: Final = 8080
AWAY_S: Final = 2.0
"""How long the dead sidecar is away, at least."""

SERVED: Final = {"/health/haproxy", "/health/restart", "/livez"}
PUBLIC_PORT: Final = addresses.split(Settings.model_fields["public_listen"].default)[1]
OF_THE_TEST: Final = ("service", "instance", "redis_url", "state_dir")
PLACES: Final[dict[str, Callable[[], Place]]] = {
    "kubernetes": lambda: places.kubernetes("app.yaml"),
    "kubernetes, older": lambda: places.kubernetes("app-liveness.yaml"),
    "ecs": places.ecs,
    "compose": places.compose,
    "systemd": places.systemd,
}


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """One place, on a machine that has a stand-in for ``systemctl``: it ends the app, which is then started again."""
    systemctl = tmp_path / "bin" / "systemctl"
    systemctl.parent.mkdir()
    systemctl.write_text(
        f'#!/bin/sh\n[ "$*" = "--no-ask-password restart app.service" ] && kill -TERM "$(cat {tmp_path}/app.pid)"\n'
    )
    systemctl.chmod(0o700)
    monkeypatch.setenv("PATH", f"{systemctl.parent}{os.pathsep}{os.environ['PATH']}")
    return PLACES[request.param]()


every_place = pytest.mark.parametrize("place", PLACES, indirect=True)


# -- the files --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "version"), [("app.yaml", "1.36"), ("app-liveness.yaml", "1.29")])
def test_manifest_is_one_of_the_oldest_kubernetes_that_it_is_for(name: str, version: str) -> None:
    for document in places.documents(name):
        kubernetes_validate.validate(document, version, strict=True)
    document["spec"]["template"]["spec"]["initContainers"][0]["restartPolicyRule"] = []
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(document, version, strict=True)


@pytest.mark.parametrize(
    ("name", "service", "operation"),
    [
        ("task-definition.json", "ecs", "RegisterTaskDefinition"),
        ("service.json", "ecs", "CreateService"),
        ("target-group.json", "elbv2", "CreateTargetGroup"),
    ],
)
def test_file_is_an_input_of_the_call_to_aws(name: str, service: str, operation: str) -> None:
    model = ServiceModel(Loader().load_service_model(service, "service-2"))
    wanted = model.operation_model(operation).input_shape
    file = places.ecs_file(name)
    assert not ParamValidator().validate(file, wanted).has_errors()
    assert ParamValidator().validate({**file, "famili": "app"}, wanted).has_errors()


def test_files_for_ecs_belong_together() -> None:
    task, service = places.ecs_file("task-definition.json"), places.ecs_file("service.json")
    assert service["taskDefinition"] == task["family"]
    (balanced,) = service["loadBalancers"]
    app, arbiter = task["containerDefinitions"]
    assert balanced["containerName"] == app["name"]
    assert {"containerPort": balanced["containerPort"]} in app["portMappings"]
    target = places.ecs_file("target-group.json")
    assert {"containerPort": int(target["HealthCheckPort"])} in arbiter["portMappings"]
    assert target["TargetType"] == "ip", "each task has an address of its own"


def test_docker_compose_accepts_the_project() -> None:
    program = find("docker-compose")
    if program is None:
        pytest.skip("docker-compose is not installed")
    file = [program, "-f", str(places.DEPLOY / "compose" / "compose.yaml"), "config", "-q"]
    environ = {**os.environ, "ARBITER_REDIS_URL": places.REDIS_SAMPLE}
    done = subprocess.run(file, env=environ, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@every_place
def test_settings_of_the_place_are_valid_and_belong_together(place: Place) -> None:
    settings = load({}, place.environ)
    assert settings.redis_url == places.REDIS_SAMPLE
    assert settings.app_port == str(APP_PORT)
    assert place.image in ("", f"health-arbiter:{__version__}")
    with pytest.raises(SettingsError):
        load({}, {**place.environ, "ARBITER_DRIAN": "10s"})
    assert list(place.exit_codes) == ([settings.exit_code] if settings.action == "exit" else [])
    probes = [probe for name, probe in place.app.items() if name.endswith("Probe") and "httpGet" in probe]
    assert {probe["httpGet"]["port"] for probe in probes} <= {PUBLIC_PORT}
    assert {probe["httpGet"]["path"] for probe in probes} <= SERVED
    readiness = place.app.get("readinessProbe", {})
    assert settings.drain > readiness.get("periodSeconds", 0) * readiness.get("failureThreshold", 3)


GRANTED_S: Final = 4
"""A suspect's errors settle for 3 s, and the store answers."""


def test_pages_have_the_times_of_their_files() -> None:
    every = {name: build() for name, build in PLACES.items()}
    down_s = {name: GRANTED_S + load({}, place.environ).drain for name, place in every.items()}

    def failed_s(name: str, probe: str, since_s: float) -> tuple[float, float]:
        """The seconds of the first and of the last poll that can be the one too many."""
        spec = every[name].app[probe]
        period_s, limit = spec["periodSeconds"], spec.get("failureThreshold", 3)
        return since_s + (limit - 1) * period_s, since_s + limit * period_s

    older_s, newer_s = (f"{down_s[name]:g}" for name in ("kubernetes, older", "kubernetes"))
    assert older_s == newer_s
    unready_s = failed_s("kubernetes", "readinessProbe", GRANTED_S)[1]
    killed_s = failed_s("kubernetes, older", "livenessProbe", down_s["kubernetes, older"])
    ecs_s = failed_s("ecs", "readinessProbe", GRANTED_S)[1]
    compose_s, systemd = down_s["compose"], load({}, every["systemd"].environ)
    # Docker asks so long after the last check, whose second look comes after another second. Starting curl takes time.
    check_s = compose_s + every["compose"].app["readinessProbe"]["periodSeconds"] + 1
    told = {name: dict(_rows(name)) for name in ("kubernetes", "ecs", "compose", "systemd")}
    assert [*told["kubernetes"]][1:5] == [
        f"about {GRANTED_S} s",
        f"until {unready_s:g} s",
        f"{newer_s} s",
        f"{killed_s[0]:g} to {killed_s[1]:g} s",
    ]
    assert [*told["ecs"]][1:4] == [
        f"about {GRANTED_S} s",
        f"until {math.ceil(ecs_s / 10) * 10} s",
        f"{down_s['ecs']:g} s",
    ]
    assert [*told["compose"]][1:3] == [f"about {GRANTED_S} s", f"{compose_s:g} s"]
    latest_s = float([*told["compose"]][3].removeprefix("until ").removesuffix(" s"))
    assert check_s + 2 <= latest_s <= check_s + 3, "two polls by curl take up to a second each"
    assert [*told["systemd"]][1:4] == [
        f"about {GRANTED_S} s",
        f"{down_s['systemd']:g} s",
        f"until {down_s['systemd'] + systemd.action_timeout:g} s",
    ]


def _rows(name: str) -> list[list[str]]:
    """The rows of the table "What happens": when, and what."""
    page = (places.DEPLOY / name / "README.md").read_text()
    table = page[page.index("## What happens") :].split("\n\n")[1]
    return [[cell.strip() for cell in line.strip("|").split("|")][:2] for line in table.splitlines()[2:]]


# -- in place ---------------------------------------------------------------------------------------------------------


class App(Child):
    """An app that listens, and says nothing to its sidecar. Its process id is in ``app.pid``."""

    def __init__(self, directory: Path, port: int) -> None:
        super().__init__("app", directory)
        self.port = port

    def launch(self) -> None:
        super().launch()
        (self.directory / "app.pid").write_text(str(self.pid))

    def _command(self) -> list[str]:
        return [sys.executable, "-m", "http.server", str(self.port), "--bind", "127.0.0.1"]

    def _is_ready(self) -> bool:
        return True


def _with_real_names(probe: dict[str, Any], ports: dict[int, int], directory: Path) -> dict[str, Any]:
    """A check of Docker with the ports and the process of this test in it."""
    *shell, text = probe["exec"]["command"]
    for port, real in ports.items():
        assert f"127.0.0.1:{port}/" in text
        text = text.replace(f"127.0.0.1:{port}/", f"127.0.0.1:{real}/")
    assert "kill -TERM 1\n" in text
    return {**probe, "exec": {"command": [*shell, text.replace("-TERM 1", f'-TERM "$(cat {directory}/app.pid)"')]}}


def _sidecar(
    place: Place, children: Children, redis_server: RedisServer, run_dir: Path, app: App, **more: Setting
) -> Sidecar:
    """The sidecar of the place, with its own settings but for the times and the addresses."""
    settings = load({}, place.environ)
    fields = [name for name in Settings.model_fields if name not in OF_THE_TEST and variable(name) in place.environ]
    own: dict[str, Setting] = {name: place.environ[variable(name)] for name in fields}
    quick: dict[str, Setting] = {"grace": 0, "drain": settings.drain / SPEED, "drain_min": 0, "settle": 0}
    real: dict[str, Setting] = {"mode": "enforce", "app_port": app.port, "redis_url": redis_server.url}
    unhurried: dict[str, Setting] = {"redis_timeout": "4s", "check_interval": "4100ms"}
    return children.adopt(Sidecar(run_dir, "one", **{**own, **quick, **real, **unhurried, **more}))


def _is_up(arbiter: Sidecar) -> bool:
    return _status(arbiter, "/health") == 200 and arbiter.metrics()["arbiter_app_listening"] == 1


@pytest.mark.site
@pytest.mark.parametrize("place", [name for name in PLACES if name != "ecs"], indirect=True)
def test_culled_app_is_restarted_in_place_and_a_dead_sidecar_hurts_nobody(
    place: Place, children: Children, redis_server: RedisServer, run_dir: Path, tmp_path: Path
) -> None:
    settings = load({}, place.environ)
    app = children.adopt(App(tmp_path, free_port()))
    arbiter = _sidecar(place, children, redis_server, run_dir, app)
    ports = {PUBLIC_PORT: arbiter.address("public")[1], APP_PORT: app.port}
    specs = {"arbiter": place.arbiter, "app": dict(place.app)}
    is_docker = "exec" in place.app.get("readinessProbe", {})
    if is_docker and find("curl") is None:
        pytest.skip("curl is not installed")
    if is_docker:
        specs["app"]["readinessProbe"] = _with_real_names(place.app["readinessProbe"], ports, tmp_path)
    kubelet = Kubelet(specs, {"app": app, "arbiter": arbiter}, ports)
    kubelet.start()

    has_readiness = "httpGet" in place.app.get("readinessProbe", {})
    kubelet.until(lambda: _is_up(arbiter) and (kubelet.is_ready or not has_readiness), "both serve")
    first = app.pid
    arbiter.post_error(5, kind="redis")
    kubelet.until(lambda: kubelet.restarts["app"] >= 1 and _is_up(arbiter), "the culled app is a new one and up")
    assert app.pid != first
    assert kubelet.restarts["arbiter"] == (settings.action == "exit")
    if has_readiness:
        kubelet.until(lambda: kubelet.is_ready, "the pod is ready")
    if "livenessProbe" in place.app:
        assert kubelet.events[:4] == ["ready", "not ready", "app is killed", "app ended"]

    second, before = app.pid, dict(kubelet.restarts)
    # A liveness probe takes a sidecar without an answer for a sick app after 30 s, and its start takes real seconds.
    kubelet.speed = 1 if "livenessProbe" in place.app else SPEED
    kubelet.left_dead = "arbiter"
    arbiter.kill()
    began = time.monotonic()
    kubelet.until(lambda: time.monotonic() > began + AWAY_S, "several probes")
    kubelet.left_dead = ""
    kubelet.until(lambda: kubelet.restarts["arbiter"] > before["arbiter"] and _is_up(arbiter), "the sidecar is back")
    assert (app.pid, kubelet.restarts["app"]) == (second, before["app"])


@pytest.mark.site
def test_ecs_replaces_the_task_of_a_culled_app_and_restarts_a_dead_sidecar_alone(
    children: Children, redis_server: RedisServer, run_dir: Path, tmp_path: Path
) -> None:
    place = places.ecs()
    app = children.adopt(App(tmp_path, free_port()))
    arbiter = _sidecar(place, children, redis_server, run_dir, app, stop_drain=0)

    def begins() -> None:
        """Another task has another host name, and no state of the one before."""
        arbiter.settings |= {"instance": f"task-{service.tasks}", "state_dir": ""}

    ports = {PUBLIC_PORT: arbiter.address("public")[1]}
    service = EcsService({"app": place.app, "arbiter": place.arbiter}, {"app": app, "arbiter": arbiter}, ports, begins)
    service.start()
    service.until(lambda: _is_up(arbiter) and service.is_ready, "the target is healthy")
    first = app.pid
    arbiter.post_error(5, kind="redis")
    service.until(lambda: service.tasks == 2 and _is_up(arbiter) and service.is_ready, "another task serves")
    assert "arbiter ended: task ends" in service.events
    assert (app.pid != first, service.restarts) == (True, {"app": 0, "arbiter": 0})

    second, service.speed = app.pid, 1
    began = time.monotonic()
    period_s = place.arbiter["restartPolicy"]["restartAttemptPeriod"] / SPEED_OF_ATTEMPTS
    service.until(lambda: time.monotonic() > began + period_s, "the sidecar has run long enough")
    arbiter.kill()
    service.until(lambda: service.restarts["arbiter"] == 1 and _is_up(arbiter), "the sidecar is back")
    assert (app.pid, service.tasks, service.restarts["app"]) == (second, 2, 0)

    service.is_too_soon, service.speed = True, SPEED
    arbiter.kill()
    service.until(lambda: service.tasks == 3 and _is_up(arbiter) and service.is_ready, "a third task serves")
    assert app.pid != second


def _status(arbiter: Sidecar, path: str) -> int:
    try:
        status: int = arbiter.health(path)[0]
    except OSError:
        return 0
    return status
