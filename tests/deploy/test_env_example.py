"""The example environment file is valid in every form, and the page of settings has its order."""

from __future__ import annotations

import re
from typing import Final

import pytest

from deploy.env_file import EXAMPLE, commented_out, given
from sidecar.config.load import load
from sidecar.config.shown import ADVANCED, FIRST
from sidecar.config.sources import variable

TEXT: Final = EXAMPLE.read_text()
OPTIONAL: Final = commented_out(TEXT)


def test_example_loads_as_it_is_shipped_and_with_everything_switched_on() -> None:
    config = load({}, given(TEXT))
    assert (config.identity.mode, config.identity.service) == ("shadow", "shop")
    assert config.redis.redis_url.startswith("redis://")
    load({}, given(TEXT) | OPTIONAL)


def test_example_has_the_settings_that_matter() -> None:
    told = {*given(TEXT), *OPTIONAL, *re.findall(r"\b[A-Z]+_WINDOW\b", TEXT)}
    assert {variable(name) for name in FIRST} - told == {"ARBITER_INSTANCE", "ARBITER_BUDGET_WINDOW"}


def test_page_begins_with_the_ten_settings_that_matter_and_ends_with_the_advanced_ones() -> None:
    page = (EXAMPLE.parent / "settings.md").read_text().split("\n## ")
    sections = {
        section.partition("\n")[0]: re.findall(r"^\| `(ARBITER_\w+)`", section, re.MULTILINE) for section in page
    }
    assert sections["The ten that matter"] == [variable(name) for name in FIRST]
    assert sections["Advanced"] == [variable(name) for name in ADVANCED]
    assert [*sections][1] == "The ten that matter"
    assert [*sections][-1] == "Advanced"


@pytest.mark.parametrize("name", [*given(TEXT), *OPTIONAL])
def test_value_is_the_same_for_systemd_and_docker(name: str) -> None:
    """systemd strips quotes and Docker keeps them; both keep text after ``#``."""
    assert re.fullmatch(r"[^\s'\"\\$#]+", (given(TEXT) | OPTIONAL)[name])
