"""What the tests of the clients share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy import go_clients
from deploy.client_programs import Posted, answering
from harness.children import short_path
from harness.sidecar import Setting, Sidecar


@pytest.fixture(scope="session")
def go_programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the programs with the client in Go."""
    return go_clients.build(tmp_path_factory.mktemp("go"))


@pytest.fixture
def posted() -> Iterator[Posted]:
    """What is posted to a server that takes everything, as a sidecar does."""
    with answering(202) as posted:
        yield posted


@pytest.fixture(scope="module")
def arbiter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sidecar]:
    """A sidecar as the shipped job starts it, with a unix socket too; it counts for an hour and culls nothing."""
    with short_path(tmp_path_factory.mktemp("clients")) as directory:
        settings: dict[str, Setting] = {"error_limit": 1000, "error_window": "1h", "error_ratio": 0}
        one = Sidecar(directory, "clients", **settings, socket=directory / "app.sock").start()
        try:
            yield one
        finally:
            one.stop()
