"""Culls that are carried out by an action: the sidecar exits, runs a command, or asks Nomad."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import pytest

from harness.command import command
from harness.sidecar import AT_ONCE, Setting, Sidecar
from harness.waiting import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from harness.children import StartSidecar
    from harness.redis_server import RedisServer

pytestmark = [pytest.mark.redis, pytest.mark.process]

CULL: Final[dict[str, Setting]] = {**AT_ONCE, "drain": "100ms"}


def _entries(one: Sidecar, what: str) -> list[dict[str, str]]:
    done = command(one, "events", "--json")
    assert done.code == 0, done
    return [event for event in map(json.loads, done.out.splitlines()) if event["what"] == what]


def test_sidecar_leaves_with_its_code_and_the_next_one_starts_clean(
    sidecar: StartSidecar, redis_server: RedisServer
) -> None:
    settings: dict[str, Setting] = {**CULL, "action": "exit", "stop_drain": "1h", "redis_url": redis_server.url}
    one = sidecar("one", **settings)
    one.post_error(5, kind="redis")
    assert one.wait(90) == 88, "it does not wait for stop_drain: its balancers have noticed"
    one.start()
    assert [one.health(path)[0] for path in ("/health", "/health/nomad")] == [200, 200]
    assert [entry["reason"] for entry in _entries(one, "acted")] == ["exit"]
    one.post_error(5, kind="redis")
    assert one.wait(90) == 88, "another incarnation, another token"


def test_command_restarts_the_app_and_the_sidecar_says_so(
    sidecar: StartSidecar, redis_server: RedisServer, run_dir: Path
) -> None:
    script, app_start = run_dir / "restart", run_dir / "restarted"
    script.write_text(f"#!/bin/sh\necho restarting $ARBITER_INSTANCE; echo yes > {app_start}\n")
    script.chmod(0o700)
    one = sidecar("one", action="command", action_command=str(script), redis_url=redis_server.url, **CULL)
    one.post_error(5, app_start="life-1")
    wait_for(app_start.exists, timeout_s=60, what="the command has run")
    done = 'arbiter_actions_total{action="command",outcome="done"}'
    wait_for(lambda: one.metrics()[done] == 1, timeout_s=60, what="it is counted")
    told = one.request("local", "GET", "/why").json()["action"]
    assert (told["action"], told["failed"]) == ("command", False)
    assert "restarting one" in told["sentence"]
    assert one.health("/health/nomad")[0] == 503
    one.post_error(1, app_start="life-2")
    one.await_health(200, "/health/nomad")
    wait_for(lambda: _entries(one, "acted"), timeout_s=60, what="it is in the ledger")


@pytest.mark.site
def test_sidecar_that_was_killed_during_its_action_says_so_when_it_is_back(
    sidecar: StartSidecar, redis_server: RedisServer, run_dir: Path
) -> None:
    script, begun = run_dir / "restart", run_dir / "begun"
    script.write_text(f"#!/bin/sh\necho yes > {begun}; exec sleep 600\n")
    script.chmod(0o700)
    settings: dict[str, Setting] = {**CULL, "action": "command", "action_command": str(script)}
    one = sidecar("one", redis_url=redis_server.url, **settings)
    one.post_error(5)
    wait_for(begun.exists, timeout_s=60, what="the command runs")
    one.kill()
    one.start()
    wait_for(lambda: _entries(one, "action_failed"), timeout_s=60, what="it is in the ledger")
    assert one.health("/health/nomad")[0] == 503
    assert "stopped during the action" in one.request("local", "GET", "/why?format=text").body
