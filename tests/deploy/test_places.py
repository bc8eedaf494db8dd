"""The files for Kubernetes, ECS and Compose: their own checkers accept them, and their settings and probes fit."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any, Final, NamedTuple

import kubernetes_validate
import pytest
import yaml
from botocore.loaders import Loader
from botocore.model import ServiceModel
from botocore.validate import ParamValidator

from harness.binaries import find
from sidecar import __version__
from sidecar.app.daemon import EXIT_CULLED
from sidecar.config import addresses
from sidecar.config.load import SettingsError, load
from sidecar.config.settings import Config

DEPLOY: Final = Path(__file__).parents[2] / "deploy"
PUBLIC_PORT: Final = addresses.split(Config().server.public_listen)[1]
SAMPLES: Final = {"ARBITER_REDIS_URL": "redis://:secret@redis.internal:6379/0", "ARBITER_INSTANCE": "app-5d9c7-x2x4z"}
"""What the place fills in: secrets, and facts of the container."""

CALLS: Final = {
    "task-definition.json": ("ecs", "RegisterTaskDefinition"),
    "service.json": ("ecs", "CreateService"),
    "target-group.json": ("elbv2", "CreateTargetGroup"),
}


def _manifest(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((DEPLOY / "kubernetes" / name).read_text()))


def _aws(name: str) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((DEPLOY / "ecs" / name).read_text())
    return read


# -- the checkers of each place ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "version"), [("app.yaml", "1.36"), ("app-liveness.yaml", "1.29")])
def test_manifest_is_one_of_the_oldest_kubernetes_that_it_is_for(name: str, version: str) -> None:
    for document in _manifest(name):
        kubernetes_validate.validate(document, version, strict=True)


@pytest.mark.parametrize("name", CALLS)
def test_file_is_an_input_of_the_call_to_aws(name: str) -> None:
    service, operation = CALLS[name]
    model = ServiceModel(Loader().load_service_model(service, "service-2"))
    wanted = model.operation_model(operation).input_shape
    assert not ParamValidator().validate(_aws(name), wanted).has_errors()


def test_files_for_ecs_belong_together() -> None:
    task, service, target = (_aws(name) for name in CALLS)
    (balanced,), (app, arbiter) = service["loadBalancers"], task["containerDefinitions"]
    assert (service["taskDefinition"], balanced["containerName"]) == (task["family"], app["name"])
    assert {"containerPort": balanced["containerPort"]} in app["portMappings"]
    assert {"containerPort": int(target["HealthCheckPort"])} in arbiter["portMappings"]
    assert target["TargetType"] == "ip", "each task has an address of its own"


def test_docker_compose_accepts_the_project() -> None:
    program = find("docker-compose")
    if program is None:
        pytest.skip("docker-compose is not installed")
    file = [program, "-f", str(DEPLOY / "compose" / "compose.yaml"), "config", "-q"]
    done = subprocess.run(file, env=os.environ | SAMPLES, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


# -- settings and probes ----------------------------------------------------------------------------------------------


class Place(NamedTuple):
    """The settings of the arbiter, its image, the exit codes that end the app too, and the readiness of the app.

    ``readiness``: the address of the probe, and the seconds until its failure counts.
    """

    environ: dict[str, str]
    image: str
    exit_codes: list[int]
    readiness: tuple[str, float]


def _kubernetes(name: str) -> Place:
    pod = _manifest(name)[0]["spec"]["template"]["spec"]
    (arbiter,), (app,) = pod["initContainers"], pod["containers"]
    environ = {each["name"]: each.get("value", SAMPLES.get(each["name"])) for each in arbiter["env"]}
    codes = [code for rule in arbiter.get("restartPolicyRules", ()) for code in rule["exitCodes"]["values"]]
    probe = app["readinessProbe"]
    address = f"{probe['httpGet']['port']}{probe['httpGet']['path']}"
    return Place(environ, arbiter["image"], codes, (address, probe["periodSeconds"] * probe["failureThreshold"]))


def _ecs() -> Place:
    _, arbiter = _aws("task-definition.json")["containerDefinitions"]
    environ = {each["name"]: each["value"] for each in arbiter["environment"]}
    environ |= {each["name"]: SAMPLES[each["name"]] for each in arbiter["secrets"]}
    target = _aws("target-group.json")
    notice_s = target["HealthCheckIntervalSeconds"] * target["UnhealthyThresholdCount"]
    address = f"{target['HealthCheckPort']}{target['HealthCheckPath']}"
    return Place(environ, arbiter["image"], arbiter["restartPolicy"]["ignoredExitCodes"], (address, notice_s))


def _compose() -> Place:
    services = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text())["services"]
    assert {service["restart"] for service in services.values()} == {"always"}
    arbiter, check = services["arbiter"], services["app"]["healthcheck"]
    environ = {name: SAMPLES[name] if "${" in value else value for name, value in arbiter["environment"].items()}
    (address,) = re.findall(r"http://[^/:]+:(\d+/[\w/]+)", check["test"][1])
    return Place(environ, arbiter["image"], [], (address, int(check["interval"].removesuffix("s")) * 3))


@pytest.mark.parametrize(
    "place",
    [_kubernetes("app.yaml"), _kubernetes("app-liveness.yaml"), _ecs(), _compose()],
    ids=["kubernetes", "kubernetes, older", "ecs", "compose"],
)
def test_settings_of_the_place_are_valid_and_belong_together(place: Place) -> None:
    settings = load({}, place.environ)
    assert settings.redis.redis_url == SAMPLES["ARBITER_REDIS_URL"]
    assert settings.app.app_port == "8080"
    assert place.image == f"health-arbiter:{__version__}"
    with pytest.raises(SettingsError):
        load({}, {**place.environ, "ARBITER_DRIAN": "10s"})
    assert place.exit_codes == ([EXIT_CULLED] if settings.action.action == "exit" else [])
    address, notice_s = place.readiness
    assert re.fullmatch(rf"({PUBLIC_PORT}|arbiter)/health/(haproxy|restart)", address)
    assert settings.culling.drain > notice_s
