"""The files for Kubernetes, ECS, Compose and systemd: their own checkers accept them, and settings and times fit."""

from __future__ import annotations

import math
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

import kubernetes_validate
import pytest
from botocore.loaders import Loader
from botocore.model import ServiceModel
from botocore.validate import ParamValidator

from deploy import places
from deploy.places import Place
from harness.binaries import find
from sidecar import __version__
from sidecar.app.daemon import EXIT_CULLED
from sidecar.config import addresses
from sidecar.config.load import SettingsError, load
from sidecar.config.settings import Config

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


GRANTED_S: Final = 4
"""A suspect's errors settle for 3 s, and the store answers."""


def test_pages_have_the_times_of_their_files() -> None:
    every = {name: build() for name, build in PLACES.items()}
    down_s = {name: GRANTED_S + load({}, place.environ).culling.drain for name, place in every.items()}

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
        f"until {down_s['systemd'] + systemd.action.action_timeout:g} s",
    ]


def _rows(name: str) -> list[list[str]]:
    """The rows of the table "What happens": when, and what."""
    page = (places.DEPLOY / name / "README.md").read_text()
    table = page[page.index("## What happens") :].split("\n\n")[1]
    return [[cell.strip() for cell in line.strip("|").split("|")][:2] for line in table.splitlines()[2:]]
