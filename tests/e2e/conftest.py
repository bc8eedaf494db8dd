"""Children that all tests of a file share, for fleets that take long to start; also their output is shown."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.starting import Children, StartRedis, StartSidecar

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    children = getattr(item, "funcargs", {}).get("shared_children")
    if report.failed and children is not None:
        report.sections.extend(children.outputs())
    return report


@pytest.fixture(scope="module")
def shared_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory under a name short enough for unix sockets, as ``run_dir`` is."""
    holder = Path(tempfile.mkdtemp(prefix="arbiter-", dir="/tmp"))
    link = holder / "run"
    link.symlink_to(tmp_path_factory.mktemp("shared"))
    yield link
    shutil.rmtree(holder)


@pytest.fixture(scope="module")
def shared_children() -> Iterator[Children]:
    children = Children()
    yield children
    children.stop()


@pytest.fixture(scope="module")
def start_shared_redis(shared_dir: Path, shared_children: Children) -> StartRedis:
    return StartRedis(shared_dir, shared_children)


@pytest.fixture(scope="module")
def shared_sidecar(shared_dir: Path, shared_children: Children) -> StartSidecar:
    return StartSidecar(shared_dir, shared_children)
