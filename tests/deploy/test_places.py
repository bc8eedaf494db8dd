"""The files for Kubernetes, ECS, Compose and systemd: their own checkers accept them, and settings and times fit."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING, Final

import kubernetes_validate
import pytest
from botocore.loaders import Loader
from botocore.model import ServiceModel
from botocore.validate import ParamValidator

from deploy import places
from harness.binaries import find
from sidecar import __version__
from sidecar.app.daemon import EXIT_CULLED
from sidecar.config import addresses
from sidecar.config.load import SettingsError, load
from sidecar.config.settings import Config

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from deploy.places import Place

APP_PORT: Final = 8080
SERVED: Final = {"/health/haproxy", "/health/restart", "/livez"}
PUBLIC_PORT: Final = addresses.split(Config().server.public_listen)[1]
PLACES: Final[dict[str, Callable[[], Place]]] = {
    "kubernetes": lambda: places.kubernetes("app.yaml"),
    "kubernetes, older": lambda: places.kubernetes("app-liveness.yaml"),
    "ecs": places.ecs,
    "compose": places.compose,
    "systemd": places.systemd,
}


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """One place. The settings want a program that is there; not every machine has systemd."""
    systemctl = tmp_path / "bin" / "systemctl"
    systemctl.parent.mkdir()
    systemctl.touch(0o700)
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
    assert settings.redis.redis_url == places.REDIS_SAMPLE
    assert settings.app.app_port == str(APP_PORT)
    assert place.image in ("", f"health-arbiter:{__version__}")
    with pytest.raises(SettingsError):
        load({}, {**place.environ, "ARBITER_DRIAN": "10s"})
    assert list(place.exit_codes) == ([EXIT_CULLED] if settings.action.action == "exit" else [])
    probes = [probe for name, probe in place.app.items() if name.endswith("Probe") and "httpGet" in probe]
    assert {probe["httpGet"]["port"] for probe in probes} <= {PUBLIC_PORT}
    assert {probe["httpGet"]["path"] for probe in probes} <= SERVED
    readiness = place.app.get("readinessProbe", {})
    assert settings.culling.drain > readiness.get("periodSeconds", 0) * readiness.get("failureThreshold", 3)
