"""Every setting reaches what it is for: the whole sidecar is composed with it and without, and the two are compared.

A row of the table names the facts (``harness.composition``) that its setting changes. Of all facts in the table these
are the only ones that may change. So a setting that reaches nothing fails, and so does one in the place of another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Final

import pytest

from harness.certificates import Authority
from harness.children import short_path
from harness.composition import Facts, changed, composed, on_any_port
from harness.wiring_rows import ELSEWHERE, ROWS, Row
from sidecar.config.settings import setting_names
from sidecar.core.fleet.fleet_settings import FleetSettings
from sidecar.core.types import Policy

TESTS: Final = Path(__file__).parents[1]
IN_TABLE: Final = frozenset(fact for row in ROWS for fact in row.facts)
CONSTANT: Final[Mapping[type, set[str]]] = {
    Policy: {"ratio_min_requests", "drain_min_s", "lifetime_jitter"},
    FleetSettings: set(),
}
"""The numbers of the core that no setting changes."""
PATHS: Final = ("/why", "/fleet", "/events", "/page/state")


class Compositions:
    """Composes a sidecar with these flags, and remembers its facts."""

    def __init__(self, places: Mapping[str, Path]) -> None:
        self._places = places
        self._known: dict[str, Facts] = {}

    def text(self, template: str) -> str:
        """The template with its directories."""
        return template.format_map(self._places)

    async def facts(self, flags: Mapping[str, str]) -> Facts:
        """The facts of the sidecar with these flags, after its doors have been asked once."""
        config = on_any_port({name: self.text(value) for name, value in flags.items()})
        if (key := str(config)) not in self._known:
            async with composed(config) as one:
                # The routes for operators are built by the first request to them. Redis is away, so one is enough.
                answers = await one.told(*("/fleet",) if config.redis.redis_url else PATHS)
                self._known[key] = answers | one.metrics() | one.facts()
        return self._known[key]


@pytest.fixture(scope="module")
def compositions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compositions]:
    files = tmp_path_factory.mktemp("files")
    authority = Authority(files, "one")
    for name in ("a", "b"):
        authority.sign(name)
    for name in ("token", "word", "hook", "hook2"):
        (files / name).write_text("a word of sixteen letters or more\n")
        (files / name).chmod(0o700)
    with short_path(files) as run:
        yield Compositions({"files": files, "run": run})


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.setting}={row.value}")
async def test_setting_changes_what_it_is_for_and_nothing_else(compositions: Compositions, row: Row) -> None:
    before = await compositions.facts(row.base)
    after = await compositions.facts({**row.base, **row.also, row.setting: row.value})
    changes = {fact: value for fact, value in changed(before, after).items() if fact in IN_TABLE}
    assert changes == {fact: compositions.text(value) for fact, value in row.facts.items()}


def test_no_setting_is_left_out() -> None:
    assert {row.setting for row in ROWS}.isdisjoint(ELSEWHERE)
    assert {row.setting for row in ROWS} | ELSEWHERE.keys() == {*setting_names()}


@pytest.mark.parametrize("numbers", [Policy, FleetSettings])
def test_no_number_that_the_core_goes_by_is_left_out(numbers: type[Policy | FleetSettings]) -> None:
    names = {f"{numbers.__name__}.{field.name}" for field in fields(numbers)}
    assert names - IN_TABLE == {f"{numbers.__name__}.{name}" for name in CONSTANT[numbers]}


@pytest.mark.parametrize("setting", ELSEWHERE)
def test_setting_that_acts_elsewhere_has_its_test_there(setting: str) -> None:
    path, name = ELSEWHERE[setting]
    assert f"def {name}(" in (TESTS / path).read_text()
