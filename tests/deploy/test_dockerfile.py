"""The Dockerfile and its .dockerignore, as text: no engine builds the image here."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Final

from sidecar.config import addresses
from sidecar.config.settings import Config

ROOT: Final = Path(__file__).parents[2]
LINES: Final = [
    line
    for line in re.sub(r"\\\n\s*", " ", (ROOT / "deploy" / "Dockerfile").read_text()).splitlines()
    if line and not line.startswith("#")
]
"""The instructions, a line each."""

PUBLIC_PORT: Final = addresses.split(Config().server.public_listen)[1]
AGENT_PORT: Final = addresses.split(Config().server.agent_listen)[1]


def every(name: str) -> list[str]:
    """The operands of the instructions of this name."""
    return [line.removeprefix(f"{name} ") for line in LINES if line.startswith(f"{name} ")]


def copied() -> set[str]:
    """The sources that are copied from the project."""
    return {source for copy in every("COPY") if "--from=" not in copy for source in copy.split()[:-1]}


def test_build_finds_what_it_copies_and_gets_nothing_else_of_the_project() -> None:
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project, wheel = pyproject["project"], pyproject["tool"]["hatch"]["build"]["targets"]["wheel"]
    parts = {"pyproject.toml", project["readme"], *project["license-files"], *wheel["packages"]}
    assert parts | {"deploy/constraints.txt", "deploy/build-constraints.txt"} == copied()
    assert [source for source in copied() if not (ROOT / source).exists()] == []
    first, *others = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] not in ("", "#")]
    assert first == "*"
    assert {line.removeprefix("!") for line in others if line.startswith("!")} == copied()


def test_nothing_is_fetched_without_its_hash() -> None:
    for base in every("FROM"):
        assert re.fullmatch(r"python:3\.\d+\.\d+-slim@sha256:[0-9a-f]{64}( AS build)?", base)
    assert len({base.split()[0] for base in every("FROM")}) == 1, "the venv has the interpreter of its own stage"
    installs = [command for run in every("RUN") for command in run.split("&&") if " install" in command]
    assert len(installs) == 3
    for command in installs:
        assert "--require-hashes -r deploy/" in command or {"--no-index", "--no-deps"} <= {*command.split()}


def test_sidecar_runs_unprivileged_and_gets_the_signal() -> None:
    (user,) = every("USER")
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user)
    assert not any(line.startswith(("RUN", "COPY")) for line in LINES[LINES.index(f"USER {user}") :])
    assert (every("STOPSIGNAL"), every("ENTRYPOINT"), every("CMD")) == (
        ["SIGTERM"],
        ['["health-arbiter"]'],
        ['["run"]'],
    )


def test_image_shows_its_ports_and_checks_the_sidecar_and_not_the_app() -> None:
    assert every("EXPOSE") == [f"{PUBLIC_PORT} {AGENT_PORT}"]
    (check,) = every("HEALTHCHECK")
    program = re.search(r'CMD \["python", "-c", "(.*)"\]$', check)
    assert program, "the image has neither curl nor a need for a shell"
    compile(program[1], "HEALTHCHECK", "exec")
    assert f"//127.0.0.1:{PUBLIC_PORT}/livez'" in program[1]
