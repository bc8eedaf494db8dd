"""Child processes that all tests of a file share, because fleets take long to start, and pools of sidecars."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness.children import Children, StartSidecar, short_path
from harness.sidecar_pool import SidecarPool

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    children = getattr(item, "funcargs", {}).get("shared_children")
    if report.failed and children is not None:
        report.sections.extend(children.outputs())
    return report


@pytest.fixture(scope="module")
def shared_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with short_path(tmp_path_factory.mktemp("shared")) as path:
        yield path


@pytest.fixture(scope="module")
def shared_children() -> Iterator[Children]:
    with Children() as children:
        yield children


@pytest.fixture(scope="module")
def shared_sidecar(shared_dir: Path, shared_children: Children) -> StartSidecar:
    return StartSidecar(shared_dir, shared_children)


@pytest.fixture
def pool(sidecar: StartSidecar, children: Children) -> SidecarPool:
    return SidecarPool(sidecar, children)
