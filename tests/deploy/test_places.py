"""The files for Kubernetes, ECS, Compose and systemd: a culled app is restarted, and a dead sidecar hurts nobody."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import kubernetes_validate
import pytest

from deploy import places
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


@every_place
def test_settings_of_the_place_are_valid_and_belong_together(place: Place) -> None:
    settings = load({}, place.environ)
    assert settings.redis_url == places.REDIS_SAMPLE
    assert settings.app_port == str(APP_PORT)
    assert place.image in ("", f"health-arbiter:{__version__}")
    with pytest.raises(SettingsError):
        load({}, {**place.environ, "ARBITER_DRIAN": "10s"})
    (codes,) = [rule["exitCodes"]["values"] for rule in place.arbiter.get("restartPolicyRules", ())] or [[]]
    assert codes == ([settings.exit_code] if settings.action == "exit" else [])
    probes = [probe for name, probe in place.app.items() if name.endswith("Probe") and "httpGet" in probe]
    assert {probe["httpGet"]["port"] for probe in probes} <= {PUBLIC_PORT}
    assert {probe["httpGet"]["path"] for probe in probes} <= SERVED
    readiness = place.app.get("readinessProbe", {})
    assert settings.drain > readiness.get("periodSeconds", 0) * readiness.get("failureThreshold", 3)


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


@pytest.mark.redis
@pytest.mark.parametrize("place", [name for name in PLACES if name != "ecs"], indirect=True)  # as kubernetes
def test_culled_app_is_restarted_in_place_and_a_dead_sidecar_hurts_nobody(
    place: Place, children: Children, redis_server: RedisServer, run_dir: Path, tmp_path: Path
) -> None:
    settings = load({}, place.environ)
    fields = [name for name in Settings.model_fields if name not in OF_THE_TEST and variable(name) in place.environ]
    own: dict[str, Setting] = {name: place.environ[variable(name)] for name in fields}
    app = children.adopt(App(tmp_path, free_port()))
    quick: dict[str, Setting] = {"grace": 0, "drain": settings.drain / SPEED, "drain_min": 0, "settle": 0}
    real: dict[str, Setting] = {"mode": "enforce", "app_port": app.port, "redis_url": redis_server.url}
    arbiter = children.adopt(Sidecar(run_dir, "one", **{**own, **quick, **real, "check_interval": "2s"}))
    ports = {PUBLIC_PORT: arbiter.address("public")[1], APP_PORT: app.port}
    specs = {"arbiter": place.arbiter, "app": dict(place.app)}
    is_docker = "exec" in place.app.get("readinessProbe", {})
    if is_docker and find("curl") is None:
        pytest.skip("curl is not installed")
    if is_docker:
        specs["app"]["readinessProbe"] = _with_real_names(place.app["readinessProbe"], ports, tmp_path)
    kubelet = Kubelet(specs, {"app": app, "arbiter": arbiter}, ports)
    kubelet.start()

    def is_up() -> bool:
        return _status(arbiter, "/health") == 200 and arbiter.metrics()["arbiter_app_listening"] == 1

    has_readiness = "httpGet" in place.app.get("readinessProbe", {})
    kubelet.until(lambda: is_up() and (kubelet.is_ready or not has_readiness), "both serve")
    first = app.pid
    arbiter.post_error(5, kind="redis")
    kubelet.until(lambda: kubelet.restarts["app"] >= 1 and is_up(), "the culled app is a new one and up")
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
    kubelet.until(lambda: kubelet.restarts["arbiter"] > before["arbiter"] and is_up(), "the sidecar is back")
    assert (app.pid, kubelet.restarts["app"]) == (second, before["app"])


def _status(arbiter: Sidecar, path: str) -> int:
    try:
        status: int = arbiter.health(path)[0]
    except OSError:
        return 0
    return status
