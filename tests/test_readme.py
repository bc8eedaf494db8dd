"""The README and the pages beside it say what the code does: their tables are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from prometheus_client.core import Metric

from harness.composition import composed, with_every_part
from sidecar import __version__
from sidecar.app import daemon
from sidecar.config import shown
from sidecar.core.claims import Fleet
from sidecar.core.explain import words
from sidecar.core.life.container import Container
from sidecar.core.types import Evidence, Latch, State
from sidecar.server.agent_check import line
from sidecar.telemetry import readings

TOP = Path(__file__).parents[1]
README = (TOP / "README.md").read_text()
DEPLOY = TOP / "deploy"
SETTINGS = (DEPLOY / "settings.md").read_text()
METRICS = (DEPLOY / "metrics.md").read_text()
REFUSALS = (
    r"""(?:HttpError|BadHeadError|Refusal)\((?:[\w.]+, )?"(\w+)\"|(?:cut|cut_oldest|refused)\((?:\w+, )?"(\w+)\""""
)
"""How the words of ``arbiter_refusals_total`` stand in the code."""
EVIDENCE = Evidence(60, 1, {"redis": 1}, {}, 0)


def _rows(section: str) -> list[list[str]]:
    """The cells of its tables whose first is code, which that of a head is not."""
    rows = re.findall(r"^\| `.*\|$", section, re.MULTILINE)
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


async def _families(files: Path) -> list[Metric]:
    """The metrics of a sidecar with every part."""
    async with composed(with_every_part(files, run_lock="/l", standby="true")) as one:
        metrics = one.sidecar.metrics
        metrics.read(lambda: readings.of_fleet(Fleet(1)))
        daemon.run_lock(one.sidecar.config, metrics)
        return [family for family in metrics.registry.collect() if family.name.startswith("arbiter_")]


def _full_name(family: Metric) -> str:
    return f"{family.name}_total" if family.type == "counter" else family.name


def _settings() -> list[list[str]]:
    return [[f"`{name}`", f"`{default}`" if default else "", text] for name, default, text in shown.table()]


def test_the_gates_have_every_reason_for_which_a_token_is_refused() -> None:
    section = (DEPLOY / "fleet.md").read_text().split("\n## Gates\n")[1].split("\n## ")[0]
    shown = {word for row in re.findall(r"\|([^|]*)\|$", section, re.MULTILINE) for word in re.findall(r"`(\w+)`", row)}
    assert shown == {*words.REFUSALS}


def test_tables_of_settings_have_each_setting_of_the_code_once() -> None:
    shown = [row for section in SETTINGS.split("\n## ")[1:] for row in _rows(section)]
    assert sorted(shown) == sorted(_settings())


def test_every_page_is_reached_from_the_readme_in_two_steps() -> None:
    near = {TOP / "README.md", *_linked(TOP / "README.md")}
    reached = near.union(*map(_linked, near))
    assert {*DEPLOY.rglob("*.md")} - reached == set()


def _linked(page: Path) -> set[Path]:
    """The pages that this page links to."""
    links = re.findall(r"\]\(([^)#:]+)[^)]*\)", page.read_text())
    found = ((page.parent / link).resolve() for link in links)
    return {path for path in found if path.suffix == ".md" and path.exists()}


async def test_tables_of_metrics_have_each_metric_of_the_code_once_with_its_labels(tmp_path: Path) -> None:
    shown = {name: (labels, text) for name, labels, text in _rows(METRICS.split("\n## Reasons")[0])}
    families = {f"`{_full_name(family)}`": family for family in await _families(tmp_path)}
    assert {name: text for name, (_, text) in shown.items()} == {
        name: family.documentation for name, family in families.items()
    }
    for name, family in families.items():
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        assert labels <= set(re.findall(r"`(\w+)`", shown[name][0])), name


def test_page_of_metrics_has_every_reason_for_which_a_request_is_refused() -> None:
    code = [path.read_text() for part in ("net", "server", "inputs") for path in (TOP / "sidecar" / part).rglob("*.py")]
    words = {one or other for text in code for one, other in re.findall(REFUSALS, text)}
    assert len(words) > 10
    section = METRICS.split("\n## Reasons")[1]
    assert words <= {word for row in _rows(section) for word in re.findall(r"`(\w+)`", row[0])}


@pytest.mark.parametrize("state", State)
def test_table_of_states_is_that_of_the_code(state: State) -> None:
    row = next(row for row in _rows((DEPLOY / "states.md").read_text()) if row[0] == f"`{state}`")
    latch = Latch("id", 0.0, "reason") if state in (State.DRAINING, State.DOWN) else None
    container = Container(state, 0.0, "app/a", latch=latch)
    assert row[2] == ("200" if container.haproxy_up else "503")
    assert re.match(r"\d+", row[3])[0] == ("200" if container.nomad_up else "503")  # type: ignore[index]
    said = line(container).partition("#")[0].strip()
    assert row[4].strip("`").partition("#")[0].strip() == said


def test_a_latched_sidecar_that_stops_stays_down_for_nomad() -> None:
    """The table says "200, or 503 if culled"."""
    assert not Container(State.STOPPING, 0.0, "app/a", stopped_down=True).nomad_up


def test_the_readme_is_about_as_long_as_one_reads() -> None:
    assert len(README.splitlines()) <= 120


def test_changelog_has_a_dated_section_for_this_version() -> None:
    dated = re.findall(r"^## \[(.+)\] - \d{4}-\d\d-\d\d$", (TOP / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert dated[:1] == [__version__]
