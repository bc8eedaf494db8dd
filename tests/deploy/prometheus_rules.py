"""The shipped files of Prometheus and Grafana as text, and the names in them."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

DEPLOY: Final = Path(__file__).parents[2] / "deploy"
SHIPPED: Final = DEPLOY / "prometheus"
ALERTS: Final = SHIPPED / "alerts.yml"
RECORDING: Final = SHIPPED / "recording.yml"
DASHBOARD: Final = DEPLOY / "grafana" / "dashboard.json"
RUNBOOKS: Final = DEPLOY / "runbooks.md"
ALERT_TESTS: Final = (SHIPPED / "alerts.test.yml").read_text()
RUNBOOK_URL: Final = "https://runbooks.example/health-arbiter"

_OURS: Final = re.compile(r"(?<![\w:])arbiter_\w+")
_RECORDED: Final = re.compile(r"\b(?:service|instance):[\w:]+")
_SERIES_OF_ONE: Final = re.compile(r"_(?:bucket|count|sum)$")


class Query(NamedTuple):
    """One query of a panel, for ``service``."""

    panel: str
    ref: str
    expression: str
    is_instant: bool


def names(path: Path, word: str) -> list[str]:
    """The names in the lines ``- alert: X`` or ``- record: X`` of a rule file."""
    return re.findall(rf"^ +- {word}: (\S+)$", path.read_text(), re.MULTILINE)


def cases_of(alert: str) -> str:
    """The shipped tests of one alert, as text."""
    groups = re.split(r"^  - name: ", ALERT_TESTS, flags=re.MULTILINE)[1:]
    return "\n".join(f"  - name: {group}" for group in groups if group.split(maxsplit=1)[0] == alert)


def copied(directory: Path) -> Path:
    """A copy of the shipped Prometheus files."""
    return Path(shutil.copytree(SHIPPED, directory / "prometheus"))


def ours(expressions: str) -> set[str]:
    """The metrics of the sidecar in these expressions, by their names in deploy/metrics.md."""
    found = _OURS.findall(expressions)
    return {name if name.endswith("_total") else _SERIES_OF_ONE.sub("", name) for name in found}


def recorded(expressions: str) -> set[str]:
    """The recorded series in these expressions."""
    return set(_RECORDED.findall(expressions))


def documented() -> set[str]:
    """The metrics that deploy/metrics.md has."""
    return set(re.findall(r"^\| `(arbiter_\w+)`", (DEPLOY / "metrics.md").read_text(), re.MULTILINE))


def dashboard() -> dict[str, Any]:
    """The dashboard as Grafana reads it."""
    read: dict[str, Any] = json.loads(DASHBOARD.read_text())
    return read


def panels() -> list[dict[str, Any]]:
    """The panels of the dashboard, without the row titles."""
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def queries(service: str, rate_interval: str) -> Iterator[Query]:
    """Every query with its variables filled in, also those of annotations."""
    for panel in panels():
        for target in panel["targets"]:
            said = _filled(target["expr"], service, rate_interval)
            yield Query(panel["title"], target["refId"], said, target.get("instant", False))
    for one in dashboard()["annotations"]["list"]:
        yield Query(f"annotation {one['name']}", "A", _filled(one["expr"], service, rate_interval), is_instant=False)


def _filled(expression: str, service: str, rate_interval: str) -> str:
    return expression.replace("$__rate_interval", rate_interval).replace("$service", service)
