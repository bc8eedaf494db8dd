"""The Dockerfile and its .dockerignore, checked without an engine."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from deploy.image import Stage, copied, every, is_ignored, stages
from sidecar.config import addresses
from sidecar.config.settings import Config

ROOT: Final = Path(__file__).parents[2]
TEXT: Final = (ROOT / "deploy" / "Dockerfile").read_text()
IGNORE: Final = (ROOT / ".dockerignore").read_text().splitlines()
PYPROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text())
PUBLIC_PORT: Final = addresses.split(Config().server.public_listen)[1]
AGENT_PORT: Final = addresses.split(Config().server.agent_listen)[1]

Rule = Callable[[list[Stage]], list[str]]


def _runs(stage: Stage) -> list[str]:
    return [command.strip() for run in every("RUN", stage) for command in run.rest.split("&&")]


# -- rules ----------------------------------------------------------------------------------------------------------


def build_finds_what_it_copies(image: list[Stage]) -> list[str]:
    sources = [source for stage in image for source in copied(stage)]
    missing = [f"{source} is not in the project" for source in sources if not (ROOT / source).exists()]
    return missing + [f".dockerignore keeps {source} out" for source in sources if is_ignored(source, IGNORE)]


def wheel_has_all_its_parts(image: list[Stage]) -> list[str]:
    project, wheel = PYPROJECT["project"], PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    parts = {"pyproject.toml", project["readme"], *project["license-files"], *wheel["packages"]}
    return [f"{part} is not copied" for part in sorted(parts - {*copied(image[0])})]


def installs_are_hashed_or_offline(image: list[Stage]) -> list[str]:
    sentences = []
    for command in (command for stage in image for command in _runs(stage) if " pip " in command):
        hashed = "--require-hashes -r deploy/" in command
        offline = "--no-index" in command and "--no-deps" in command
        if not hashed and not offline:
            sentences.append(f"fetches an unpinned package: {command}")
    return sentences


def base_is_pinned_by_its_digest(image: list[Stage]) -> list[str]:
    bases = {stage[0].words[0] for stage in image}
    return [f"{base} may change" for base in bases if not re.fullmatch(r"\S+@sha256:[0-9a-f]{64}", base)]


def image_does_not_run_as_root(image: list[Stage]) -> list[str]:
    users = every("USER", image[-1])
    number = users[-1].rest.partition(":")[0] if users else "root"
    if not re.fullmatch(r"[1-9]\d*", number):
        return [f"runs as {number}"]
    late = image[-1][image[-1].index(users[-1]) :]
    return [f"{instruction.name} after USER" for instruction in late if instruction.name in {"RUN", "COPY"}]


def signal_reaches_the_arbiter(image: list[Stage]) -> list[str]:
    entry = [instruction.exec_form for instruction in every("ENTRYPOINT", image[-1])]
    sentences = [] if entry == [["health-arbiter"]] else [f"ENTRYPOINT {entry}"]
    sentences += [f"CMD {each.rest}" for each in every("CMD", image[-1]) if each.exec_form is None]
    signals = [instruction.rest for instruction in every("STOPSIGNAL", image[-1])]
    return sentences + ([] if signals == ["SIGTERM"] else [f"STOPSIGNAL {signals}"])


def ports_are_exposed(image: list[Stage]) -> list[str]:
    exposed = {port for instruction in every("EXPOSE", image[-1]) for port in instruction.words}
    return [] if exposed == {str(PUBLIC_PORT), str(AGENT_PORT)} else [f"EXPOSE {sorted(exposed)}"]


def image_checks_the_sidecar_and_not_the_app(image: list[Stage]) -> list[str]:
    checks = every("HEALTHCHECK", image[-1])
    command = checks[0].exec_form if checks else None
    if not command or command[:2] != ["python", "-c"]:
        return [f"HEALTHCHECK {command}: the image has neither curl nor a need for a shell"]
    compile(command[2], "HEALTHCHECK", "exec")
    return [] if f"//127.0.0.1:{PUBLIC_PORT}/livez'" in command[2] else [f"HEALTHCHECK asks {command[2]}"]


RULES: Final[tuple[Rule, ...]] = (
    build_finds_what_it_copies,
    wheel_has_all_its_parts,
    installs_are_hashed_or_offline,
    base_is_pinned_by_its_digest,
    image_does_not_run_as_root,
    signal_reaches_the_arbiter,
    ports_are_exposed,
    image_checks_the_sidecar_and_not_the_app,
)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_image_keeps_the_rule(rule: Rule) -> None:
    assert rule(stages(TEXT)) == []


# -- the build context -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [".git/config", ".venv/bin/python", "arbiter.env", "deploy/arbiter.env", "tests/run"])
def test_build_context_has_no_private_files(path: str) -> None:
    assert is_ignored(path, IGNORE)


def test_build_context_has_the_whole_package() -> None:
    files = [path for path in (ROOT / "sidecar").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert [path for path in files if is_ignored(str(path.relative_to(ROOT)), IGNORE)] == []
