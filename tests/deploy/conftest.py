"""The site under a real Nomad, one for each file of tests that asks for it, and what the tests of the clients share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from client.statsd_receiver import Receiver
from deploy import go_clients
from deploy.client_programs import Posted, answering
from deploy.nomad_agent import require_nomad
from deploy.nomad_site import Clock, NomadSite
from harness.children import Children, short_path


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
    return go_clients.build(tmp_path_factory.mktemp("go"))


@pytest.fixture
def listener(run_dir: Path) -> Iterator[Receiver]:
    """A unix datagram socket."""
    with Receiver(run_dir / "statsd.sock") as listener:
        yield listener


@pytest.fixture
def udp_listener() -> Iterator[Receiver]:
    with Receiver() as listener:
        yield listener


@pytest.fixture
def posted() -> Iterator[Posted]:
    """What is posted to a server that takes everything, as a sidecar does."""
    with answering(202) as posted:
        yield posted
