"""The client and the run locks as distributions of their own: built, installed into empty environments, and used."""

from __future__ import annotations

import subprocess
import sys
import venv
import zipfile
from pathlib import Path
from typing import Final

import pytest

from deploy.client_programs import Posted
from sidecar import __version__
from sidecar.inputs.report_bodies import read_errors

pytestmark = pytest.mark.site

TOP: Final = Path(__file__).parents[2]
PIP: Final = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")


def _run(*words: str | Path, **environ: str) -> str:
    done = subprocess.run(words, env=environ, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _wheel(project: Path, directory: Path) -> Path:
    flags = ("--no-deps", "--no-index", "--no-build-isolation")
    _run(*PIP, "wheel", *flags, "--wheel-dir", directory, project, HOME=str(directory))
    (wheel,) = directory.glob("*.whl")
    return wheel


def _installed(wheel: Path, directory: Path) -> Path:
    """The ``bin`` of an environment with nothing but this wheel."""
    venv.create(directory, with_pip=False)
    python = directory / "bin" / "python"
    _run(*PIP, "--python", python, "install", "--no-deps", "--no-index", wheel, HOME=str(directory))
    return directory / "bin"


REPORT: Final = "from health_arbiter_client import Cascade, report_exception; report_exception(KeyError('cart'))"


@pytest.fixture(scope="module")
def client_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _wheel(TOP / "sidecar" / "client", tmp_path_factory.mktemp("client"))


@pytest.mark.parametrize("is_copied", [False, True], ids=["installed", "one copied file"])
def test_client_reports_without_the_sidecar(
    client_wheel: Path, run_dir: Path, posted: Posted, *, is_copied: bool
) -> None:
    port, seen = posted
    environ = {"ARBITER_LOCAL_LISTEN": f"127.0.0.1:{port}"}
    if is_copied:
        code = f"import sys; sys.path[:] = [*sys.path[:3], {str(client_wheel)!r}]; {REPORT}"
        _run(sys.executable, "-I", "-c", code, **environ)
    else:
        _run(_installed(client_wheel, run_dir / "env") / "python", "-c", REPORT, **environ)
    assert [(path, read_errors(body)[0].kind) for path, body in seen] == [("/errors", "KeyError")]


def test_client_wheel_needs_nothing(client_wheel: Path) -> None:
    with zipfile.ZipFile(client_wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith("METADATA"))
        assert "Requires-Dist" not in archive.read(metadata).decode()
        assert "health_arbiter_client/py.typed" in archive.namelist()


def test_run_lock_toolkit_works_without_the_sidecar(run_dir: Path) -> None:
    directory = _installed(_wheel(TOP / "sidecar" / "runlock", run_dir), run_dir / "env")
    execute = (directory / "health-arbiter-exec", "--run-lock", run_dir)
    assert _run(*execute, "--max-procs", "2", "--", "sh", "-c", "echo slot $HEALTH_ARBITER_SLOT") == "slot 1\n"
    held = f"""
from health_arbiter_runlock import ConcurrencyLimit, WithStandby
import subprocess, sys
with ConcurrencyLimit({str(run_dir)!r}, name="exec") as slot:
    print("held", slot, flush=True)
    sys.exit(subprocess.run(sys.argv[1:]).returncode)
"""
    assert _run(directory / "python", "-c", held, *execute, "--", "echo", "not alone") == "held 1\n"


def test_sidecar_wheel_has_every_file_of_its_version_and_not_the_other_projects(run_dir: Path) -> None:
    with zipfile.ZipFile(_wheel(TOP, run_dir)) as archive:
        names = set(archive.namelist())
    parts = {path.relative_to(TOP).as_posix() for path in (TOP / "sidecar").rglob("*") if path.is_file()}
    assert {name for name in names if name.startswith("sidecar/")} == {
        name for name in parts if "__pycache__" not in name and not name.endswith("pyproject.toml")
    }
    assert f"health_arbiter-{__version__}.dist-info/METADATA" in names
