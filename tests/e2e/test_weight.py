"""A real sidecar whose app fails half of its requests, and a real HAProxy that uses its weight."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from harness.apps import FailingApp
from harness.ports import free_port
from harness.waiting import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from harness.children import Children, StartHaproxy, StartSidecar
    from harness.sidecar import Sidecar

pytestmark = pytest.mark.process

CONFIG = """
defaults
    mode http
    timeout connect 2s
    timeout client 5s
    timeout server 5s
frontend public
    bind 127.0.0.1:{front}
    default_backend app
backend app
    balance roundrobin
    default-server weight 100 check inter 200ms agent-check agent-inter 200ms
    server app1 127.0.0.1:{port} agent-port {agent}
"""
CALM = {"error_ratio": "0", "error_limit": "1000", "settle": "0s"}
"""The results cause no cull."""


def _results(one: Sidecar, **fields: int) -> None:
    assert one.request("local", "POST", "/results", json.dumps(fields)).status == 202


def _weight(one: Sidecar) -> int:
    """The weight in the line of the agent, which must have nothing else."""
    matched = re.fullmatch(r"up ready ([0-9]{1,3})%\n", one.agent_line())
    assert matched
    return int(matched[1])


def _await_weight(one: Sidecar, most: int, **fields: int) -> None:
    """Report these results until the weight is at most ``most``."""

    def reported() -> bool:
        _results(one, **fields)
        return _weight(one) <= most

    wait_for(reported, timeout_s=60, what=f"the weight is at most {most} %")


@pytest.mark.site
def test_weight_is_in_every_health_answer_and_haproxy_uses_it(
    run_dir: Path, children: Children, sidecar: StartSidecar, haproxy: StartHaproxy
) -> None:
    one = sidecar("half", **CALM)
    assert _weight(one) == 100
    front = free_port()
    app = children.adopt(FailingApp(run_dir, "half")).start()
    proxy = haproxy(CONFIG.format(front=front, port=app.port, agent=one.address("agent")[1]))

    def server() -> tuple[str, str]:
        row = proxy.show_servers()["app", "app1"]
        return row["status"], row["weight"]

    wait_for(lambda: server() == ("UP", "100"), timeout_s=60, what="HAProxy has the full weight")
    _await_weight(one, 14, ok=5, failed=5)
    wait_for(lambda: 10 <= int(server()[1]) <= 14, timeout_s=60, what="HAProxy sends it an eighth")

    reply = one.request("public", "GET", "/health")
    assert (reply.status, reply.headers["X-Arbiter-State"]) == (200, "up")
    assert 10 <= int(reply.headers["X-Arbiter-Weight"]) <= 14
    assert reply.headers["x-envoy-degraded"] == "true"
    assert 10 <= one.metrics()["arbiter_weight"] <= 14
    assert 0.45 <= one.verdict()["success_rate"] <= 0.53

    one.post_error(1, fatal=True, app_start="boot-1")
    wait_for(lambda: server()[0].startswith("DRAIN"), timeout_s=60, what="HAProxy drains it")
    one.post_error(1, count=0, app_start="boot-2")
    wait_for(lambda: server() == ("UP", "100"), timeout_s=60, what="the next incarnation has the full weight")
