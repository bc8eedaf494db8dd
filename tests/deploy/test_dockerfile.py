"""The Dockerfile, its .dockerignore and its pins, as text; test_image.py builds and runs it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Final

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from sidecar.config import addresses
from sidecar.config.settings import Config

ROOT: Final = Path(__file__).parents[2]
PYPROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text())
LINES: Final = [
    line
    for line in re.sub(r"\\\n\s*", " ", (ROOT / "deploy" / "Dockerfile").read_text()).splitlines()
    if line and not line.startswith("#")
]
"""The instructions, a line each."""

PINNED: Final[dict[str, list[str]]] = {
    "constraints.txt": [*PYPROJECT["project"]["dependencies"], "hiredis"],  # the extra of redis
    "build-constraints.txt": PYPROJECT["build-system"]["requires"],
}
PIN: Final = re.compile(
    r"^([a-z0-9-]+)==(\S+)(?: ; \S+ < '[0-9.]+')?(?: \\\n    --hash=sha256:[0-9a-f]{64})+\n", re.MULTILINE
)


def every(name: str) -> list[str]:
    """The operands of the instructions of this name."""
    return [line.removeprefix(f"{name} ") for line in LINES if line.startswith(f"{name} ")]


def test_build_finds_what_it_copies_and_gets_nothing_else_of_the_project() -> None:
    copied = {source for copy in every("COPY") if "--from=" not in copy for source in copy.split()[:-1]}
    project, wheel = PYPROJECT["project"], PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    parts = {"pyproject.toml", project["readme"], *project["license-files"], *wheel["packages"]}
    assert parts | {f"deploy/{name}" for name in PINNED} == copied
    assert [source for source in copied if not (ROOT / source).exists()] == []
    first, *others = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] not in ("", "#")]
    assert first == "*"
    assert {line.removeprefix("!") for line in others if line.startswith("!")} == copied


def test_nothing_is_fetched_without_its_hash() -> None:
    assert len({base.split()[0] for base in every("FROM")}) == 1, "the venv has the interpreter of its own stage"
    assert re.fullmatch(r"python:3\.\d+\.\d+-slim@sha256:[0-9a-f]{64}( AS build)?", every("FROM")[0])
    installs = [command for run in every("RUN") for command in run.split("&&") if " install" in command]
    assert len(installs) == 3
    for command in installs:
        assert "--require-hashes -r deploy/" in command or {"--no-index", "--no-deps"} <= {*command.split()}


@pytest.mark.parametrize("name", PINNED)
def test_every_package_is_pinned_with_hashes_to_an_allowed_version(name: str) -> None:
    text = (ROOT / "deploy" / name).read_text()
    versions = dict(PIN.findall(text))
    assert re.sub(r"(?m)^ *#.*$", "", PIN.sub("", text)).strip() == "", "neither a pin nor a comment"
    for requirement in map(Requirement, PINNED[name]):
        assert requirement.specifier.contains(versions[canonicalize_name(requirement.name)])


def test_sidecar_runs_unprivileged_gets_the_signal_and_is_checked_instead_of_the_app() -> None:
    (user,) = every("USER")
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user)
    assert not any(line.startswith(("RUN", "COPY")) for line in LINES[LINES.index(f"USER {user}") :])
    starts = [*every("STOPSIGNAL"), *every("ENTRYPOINT"), *every("CMD")]
    assert starts == ["SIGTERM", '["health-arbiter"]', '["run"]']
    public, agent = (
        addresses.split(address)[1] for address in (Config().server.public_listen, Config().server.agent_listen)
    )
    assert every("EXPOSE") == [f"{public} {agent}"]
    (check,) = every("HEALTHCHECK")
    program = re.search(r'CMD \["python", "-c", "(.*)"\]$', check)
    assert program, "the image has neither curl nor a need for a shell"
    compile(program[1], "HEALTHCHECK", "exec")
    assert f"//127.0.0.1:{public}/livez'" in program[1]
