"""cascade.cfg over a reload: what HAProxy remembers of its servers, with and without the state file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.cascade import EMPTY_STATE, await_status, await_weight, status, weights
from harness.steered_site import SteeredSite

if TYPE_CHECKING:
    from harness.haproxy import Haproxy
    from harness.starting import Children, StartHaproxy


@pytest.fixture
def site(run_dir: Path, children: Children, haproxy: StartHaproxy) -> Iterator[SteeredSite]:
    with ExitStack() as lives:
        yield SteeredSite(run_dir, children, haproxy, lives)


def _reloaded(site: SteeredSite, haproxy: StartHaproxy, state: str) -> Haproxy:
    """The next process, which knows what stands in the state file: the agents are silent until it is there."""
    (site.directory / "kept").write_text(state)
    return haproxy(site.config("kept"), "next")


@pytest.fixture
def state(site: SteeredSite) -> str:
    """What HAProxy says of its servers: one well, one half well, one in drain, one culled. The agents are gone."""
    proxy = site.open(4)
    lines = ("up ready 100%", "up ready 13%", "drain 0% #culled", "fail #culled")
    for agent, line in zip(site.agents.values(), lines, strict=True):
        agent.line = line
    await_weight(proxy, "app2", 13, 13)
    await_status(proxy, "app3", "DRAIN")
    await_status(proxy, "app4", "DOWN")
    told = proxy.admin("show servers state")
    for agent in site.agents.values():
        agent.stop()
    proxy.stop()
    return told


@pytest.mark.parametrize("moved", [False, True], ids=["same order", "servers in another order"])
def test_reload_with_the_state_file_forgets_nothing(
    site: SteeredSite, haproxy: StartHaproxy, state: str, *, moved: bool
) -> None:
    if moved:
        site.apps = dict(reversed(site.apps.items()))
    proxy = _reloaded(site, haproxy, state)
    site.apps = dict(sorted(site.apps.items()))
    assert weights(proxy) == {"app1": 100, "app2": 13, "app3": 0, "app4": 100}
    assert [status(proxy, name).split()[0] for name in site.apps] == ["UP", "UP", "DRAIN", "DOWN"]


def test_reload_without_it_forgets_all(site: SteeredSite, haproxy: StartHaproxy, state: str) -> None:
    assert state
    proxy = _reloaded(site, haproxy, EMPTY_STATE)
    assert set(weights(proxy).values()) == {100}
    assert {status(proxy, name).split()[0] for name in site.apps} == {"UP"}


def test_what_was_kept_is_undone_by_the_next_good_word(site: SteeredSite, haproxy: StartHaproxy, state: str) -> None:
    proxy = _reloaded(site, haproxy, state)
    for agent in site.agents.values():
        agent.revive()
    for name in site.apps:
        await_status(proxy, name, "UP")
        await_weight(proxy, name, 100, 100)
