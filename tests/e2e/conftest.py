"""Child processes that all tests of a file share, because they take long to start, and fleets in this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from harness.children import CHILDREN, Children, StartSidecar, short_path
from harness.sidecar import Setting, Sidecar
from harness.sidecar_thread import SidecarLoop

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

StartFleet = Callable[..., list[Sidecar]]


@pytest.fixture(scope="module")
def shared_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with short_path(tmp_path_factory.mktemp("shared")) as path:
        yield path


@pytest.fixture(scope="module")
def shared_children(request: pytest.FixtureRequest) -> Iterator[Children]:
    with Children() as request.node.stash[CHILDREN]:
        yield request.node.stash[CHILDREN]


@pytest.fixture(scope="module")
def shared_sidecar(shared_dir: Path, shared_children: Children) -> StartSidecar:
    return StartSidecar(shared_dir, shared_children)


@pytest.fixture
def start_fleet(sidecar: StartSidecar) -> Iterator[StartFleet]:
    """Starts sidecars ``n00``, ``n01``, ... with the same settings on a loop of this process."""
    loops: list[SidecarLoop] = []

    def start(count: int, name: str = "n", **settings: Setting) -> list[Sidecar]:
        fleet = [sidecar.unstarted(f"{name}{number:02d}", **settings) for number in range(count)]
        loops.append(SidecarLoop(fleet).start())
        return fleet

    yield start
    for loop in loops:
        loop.stop()
