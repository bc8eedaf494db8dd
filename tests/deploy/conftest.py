"""The site under a real Nomad, one for each file of tests that asks for it, and what the tests of the clients share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.client_programs import Posted, answering, build_go
from deploy.nomad_agent import require_nomad
from deploy.nomad_site import Clock, NomadSite
from harness.children import Children, short_path
from harness.sidecar import Setting, Sidecar


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NomadSite]:
    require_nomad()
    with short_path(tmp_path_factory.mktemp("nomad")) as directory, Children() as children:
        site = NomadSite(directory, children)
        try:
            yield site.start()
        finally:
            site.nomad.end()


@pytest.fixture
def clock(request: pytest.FixtureRequest) -> Iterator[Clock]:
    clock = Clock(request.node.name)
    yield clock
    print("\n".join(["", *clock.lines]))  # noqa: T201 - shown with -s


@pytest.fixture(scope="session")
def go_programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the programs with the client in Go."""
    return build_go(tmp_path_factory.mktemp("go"))


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
