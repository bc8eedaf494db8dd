"""The image: built from the shipped Dockerfile by a Docker engine of the test's own, and run as its head says.

Only the base differs: Debian's Python 3.11.2, made by debootstrap, is in the place of the official image, which has to
come from a registry of images. It is also the oldest Python that the sidecar runs on.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from harness.binaries import require
from harness.child import Child
from harness.http_request import request
from harness.ports import free_port
from harness.waiting import wait_for
from sidecar.config import addresses
from sidecar.config.settings import Config

TOP: Final = Path(__file__).parents[2]
CERTIFICATES: Final = "etc/ssl/certs/ca-certificates.crt"
MOST_MEGABYTES: Final = 60


class Engine(Child):
    """A dockerd without networks of its own: builds and containers use the host's."""

    def __init__(self, directory: Path) -> None:
        super().__init__("dockerd", directory)
        self._program = require("dockerd")
        self._host = f"unix://{directory}/docker.sock"

    def _command(self) -> list[str]:
        directory = self.directory
        data = [f"--data-root={directory}/data", f"--exec-root={directory}/exec", f"--pidfile={directory}/pid"]
        return [self._program, f"--host={self._host}", "--bridge=none", "--iptables=false", *data]

    def _is_ready(self) -> bool:
        return (
            subprocess.run(["docker", "version"], env=self.client_env(), capture_output=True, check=False).returncode
            == 0
        )

    def client_env(self) -> dict[str, str]:
        return {**os.environ, "DOCKER_HOST": self._host, "DOCKER_BUILDKIT": "0"}

    def docker(self, *words: str) -> str:
        """What ``docker WORDS`` prints; it has to succeed."""
        return run("docker", *words, env=self.client_env())


def run(*words: str, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(words, env=env, cwd=TOP, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, f"{words}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


def make_base(directory: Path) -> None:
    """Debian with Python, pip and the certificate authorities of this machine, which may know a mirror's own."""
    packages = "python3,python3-venv,python3-pip,ca-certificates"
    run(require("debootstrap"), "--variant=minbase", f"--include={packages}", "bookworm", str(directory))
    (directory / "usr/local/bin/python").symlink_to("/usr/bin/python3")
    (directory / "usr/lib/python3.11/EXTERNALLY-MANAGED").unlink()
    shutil.copy(f"/{CERTIFICATES}", directory / CERTIFICATES)
    (directory / "etc/pip.conf").write_text(f"[global]\ncert = /{CERTIFICATES}\n")


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    """An engine that has built the image under the name ``health-arbiter``."""
    if os.geteuid() != 0:
        pytest.skip("only root can start a Docker engine")
    with tempfile.TemporaryDirectory(prefix="arbiter-image-") as name:
        directory = Path(name)
        engine = Engine(directory).start()
        try:
            make_base(directory / "base")
            run("tar", "-C", str(directory / "base"), "-cf", str(directory / "base.tar"), ".")
            engine.docker("import", str(directory / "base.tar"), "base")
            recipe = re.sub(r"(?m)^FROM \S+", "FROM base", (TOP / "deploy" / "Dockerfile").read_text())
            (directory / "Dockerfile").write_text(recipe)
            engine.docker("build", "--network=host", f"--file={directory}/Dockerfile", "--tag=health-arbiter", ".")
            yield engine
        finally:
            engine.stop(timeout_s=30)
            for mount in Path("/proc/mounts").read_text().splitlines():
                if (place := mount.split()[1]).startswith(name):  # dockerd leaves that of its network
                    run("umount", "--lazy", place)


@pytest.mark.site
@pytest.mark.timeout(1200)
def test_image_has_what_the_sidecar_needs_and_no_more(engine: Engine) -> None:
    script = "du -sm /opt/health-arbiter/lib; find /opt /usr/local -name pip -o -name setuptools"
    size, *installers = engine.docker("run", "--rm", "--entrypoint=sh", "health-arbiter", "-c", script).splitlines()
    assert int(size.split()[0]) <= MOST_MEGABYTES
    assert installers == []


@pytest.mark.site
@pytest.mark.timeout(1200)
def test_container_is_healthy_read_only_and_unprivileged_and_stops_when_told(engine: Engine) -> None:
    public, local = free_port(), free_port()
    addresses = {"PUBLIC_LISTEN": f"127.0.0.1:{public}", "LOCAL_LISTEN": f"127.0.0.1:{local}"}
    settings = {**addresses, "AGENT_LISTEN": "off", "STOP_DRAIN": "0s"}
    words = [f"--env=ARBITER_{name}={value}" for name, value in settings.items()]
    confined = ["--read-only", "--cap-drop=all", "--ulimit=core=0", "--memory=96m"]
    container = engine.docker("run", "--detach", "--network=host", *confined, *words, "health-arbiter").strip()
    try:
        wait_for(lambda: request(public, "/health")[0] == 200, timeout_s=60, what="the container is healthy")
        assert engine.docker("exec", container, "id", "-u").strip() == "10001"
        (check,) = json.loads(engine.docker("inspect", "--format={{json .Config.Healthcheck.Test}}", container))[3:]
        engine.docker("exec", container, "python", "-c", check.replace(":9181/", f":{public}/"))
    finally:
        engine.docker("stop", "--time=30", container)
    assert engine.docker("inspect", "--format={{.State.ExitCode}}", container).strip() == "0"


# -- Dockerfile, .dockerignore and pins as text -----------------------------------------------------------------------

PYPROJECT: Final = tomllib.loads((TOP / "pyproject.toml").read_text())
LINES: Final = [
    line
    for line in re.sub(r"\\\n\s*", " ", (TOP / "deploy" / "Dockerfile").read_text()).splitlines()
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
    assert [source for source in copied if not (TOP / source).exists()] == []
    first, *others = [line for line in (TOP / ".dockerignore").read_text().splitlines() if line[:1] not in ("", "#")]
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
    text = (TOP / "deploy" / name).read_text()
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
