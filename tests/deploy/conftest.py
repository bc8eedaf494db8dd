"""The site under a real Nomad, one for each file of tests that asks for it, and the clock of a story."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

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
