"""The shipped files for Kubernetes, ECS, Compose and systemd, each as the containers and the settings in it."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

DEPLOY: Final = Path(__file__).parents[2] / "deploy"
KUBERNETES: Final = DEPLOY / "kubernetes"
REDIS_SAMPLE: Final = "redis://:secret@redis.internal:6379/0"
_SAMPLES: Final = {"ARBITER_REDIS_URL": REDIS_SAMPLE, "ARBITER_INSTANCE": "app-5d9c7-x2x4z"}
"""What the place fills in: secrets, and facts of the container."""


@dataclass(frozen=True)
class Place:
    """Containers in the words of a pod, the settings of the arbiter, and its image (empty: none).

    ``exit_codes``: those with which the sidecar ends the app too.
    """

    app: dict[str, Any]
    arbiter: dict[str, Any]
    environ: dict[str, str]
    image: str
    exit_codes: Sequence[int] = ()


def kubernetes(name: str) -> Place:
    """The pod of a Deployment."""
    pod = documents(name)[0]["spec"]["template"]["spec"]
    (arbiter,), (app,) = pod["initContainers"], pod["containers"]
    environ = {each["name"]: each.get("value", _SAMPLES.get(each["name"])) for each in arbiter["env"]}
    codes = [code for rule in arbiter.get("restartPolicyRules", ()) for code in rule["exitCodes"]["values"]]
    return Place(_with_numbers(app), _with_numbers(arbiter), environ, arbiter["image"], codes)


def documents(name: str) -> list[dict[str, Any]]:
    """The objects in a file."""
    return list(yaml.safe_load_all((KUBERNETES / name).read_text()))


def ecs() -> Place:
    """The task, with the check of the target group as the readiness probe of the app."""
    app, arbiter = ecs_file("task-definition.json")["containerDefinitions"]
    environ = {each["name"]: each["value"] for each in arbiter["environment"]}
    environ |= {each["name"]: _SAMPLES[each["name"]] for each in arbiter["secrets"]}
    target = ecs_file("target-group.json")
    probe = {
        "httpGet": {"path": target["HealthCheckPath"], "port": int(target["HealthCheckPort"])},
        "periodSeconds": target["HealthCheckIntervalSeconds"],
        "failureThreshold": target["UnhealthyThresholdCount"],
    }
    policy = arbiter["restartPolicy"]
    return Place({**app, "readinessProbe": probe}, arbiter, environ, arbiter["image"], policy["ignoredExitCodes"])


def ecs_file(name: str) -> dict[str, Any]:
    """The input of a call of AWS."""
    read: dict[str, Any] = json.loads((DEPLOY / "ecs" / name).read_text())
    return read


def compose() -> Place:
    """The project. A check of Docker is a command that is run at intervals, and restarts nothing."""
    services = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text())["services"]
    app, arbiter = services["app"], services["arbiter"]
    assert {service["restart"] for service in services.values()} == {"always"}
    environ = {name: _SAMPLES[name] if "${" in value else value for name, value in arbiter["environment"].items()}
    kind, text = app["healthcheck"]["test"]
    assert kind == "CMD-SHELL"
    period_s = int(app["healthcheck"]["interval"].removesuffix("s"))
    check = {"exec": {"command": ["sh", "-c", text.replace("$$", "$")]}, "periodSeconds": period_s}
    return Place({"readinessProbe": check}, {}, environ, arbiter["image"])


def systemd() -> Place:
    """The units. Both are always restarted by themselves."""
    unit = (DEPLOY / "systemd" / "health-arbiter.service").read_text()
    lines = re.findall(r"^Environment=(.*)$", unit, re.MULTILINE)
    environ = dict(word.split("=", 1) for line in lines for word in shlex.split(line))
    return Place({}, {}, {**environ, **_SAMPLES, "ARBITER_SERVICE": "app"}, "")


def _with_numbers(container: dict[str, Any]) -> dict[str, Any]:
    """The container with the numbers of its own ports in place of their names."""
    numbers = {port["name"]: port["containerPort"] for port in container["ports"]}
    for probe in (value for name, value in container.items() if name.endswith("Probe")):
        target = probe.get("httpGet") or probe["tcpSocket"]
        target["port"] = numbers.get(target["port"], target["port"])
    return container
