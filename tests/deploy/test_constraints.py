"""The pins of the image: every package is pinned, with hashes, to an allowed version."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT: Final = Path(__file__).parents[2]
PYPROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text())
RUNTIME: Final = "constraints.txt"
BUILD: Final = "build-constraints.txt"
WANTED: Final[Mapping[str, list[str]]] = {
    RUNTIME: [*PYPROJECT["project"]["dependencies"], "hiredis"],  # the extra of redis
    BUILD: PYPROJECT["build-system"]["requires"],
}

_PIN = re.compile(
    r"^(?P<name>[a-z0-9-]+)==(?P<version>\S+)(?P<hashes>( \\\n    --hash=sha256:[0-9a-f]{64})*)$", re.MULTILINE
)
_COMMENT = re.compile(r"^ *#.*$", re.MULTILINE)


@dataclass(frozen=True)
class Pins:
    """A requirements file: version and number of hashes by name, and the text that is neither pin nor comment."""

    versions: Mapping[str, str]
    hashes: Mapping[str, int]
    rest: str


Rule = Callable[[Pins, list[str]], list[str]]


def _read(text: str) -> Pins:
    pins = list(_PIN.finditer(text))
    return Pins(
        {pin["name"]: pin["version"] for pin in pins},
        {pin["name"]: pin["hashes"].count("--hash=sha256:") for pin in pins},
        _COMMENT.sub("", _PIN.sub("", text)).strip(),
    )


# -- rules ----------------------------------------------------------------------------------------------------------


def every_requirement_is_pinned_as_it_allows(pins: Pins, wanted: list[str]) -> list[str]:
    sentences = []
    for requirement in map(Requirement, wanted):
        version = pins.versions.get(canonicalize_name(requirement.name))
        if version is None or not requirement.specifier.contains(version):
            sentences.append(f"{requirement} is pinned to {version}")
    return sentences


def every_pin_has_a_hash(pins: Pins, wanted: list[str]) -> list[str]:
    del wanted
    return [f"{name} has no sha256" for name, count in pins.hashes.items() if not count]


def nothing_else_is_in_the_file(pins: Pins, wanted: list[str]) -> list[str]:
    """No option with an index or a directory, and no requirement without a pin."""
    del wanted
    return [f"neither a pin nor a comment: {line.strip()}" for line in pins.rest.splitlines() if line.strip()]


RULES: Final[tuple[Rule, ...]] = (
    every_requirement_is_pinned_as_it_allows,
    every_pin_has_a_hash,
    nothing_else_is_in_the_file,
)


@pytest.mark.parametrize("name", WANTED)
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_pins_keep_the_rule(rule: Rule, name: str) -> None:
    assert rule(_read((ROOT / "deploy" / name).read_text()), WANTED[name]) == []


@pytest.mark.parametrize("name", WANTED)
def test_file_names_no_place_to_download_from(name: str) -> None:
    assert "://" not in (ROOT / "deploy" / name).read_text()
