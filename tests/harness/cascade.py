"""The shipped cascade.cfg in front of servers on loopback, and what HAProxy makes of their weights."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from harness.waiting import wait_for

if TYPE_CHECKING:
    from harness.haproxy import Haproxy

SHIPPED: Final = Path(__file__).parents[2] / "deploy" / "haproxy" / "cascade.cfg"
EMPTY_STATE: Final = "1\n"
"""A server-state file in which no server stands: the version of its format alone."""


class Ports(NamedTuple):
    """Where a server is: its app, and its agent."""

    app: int
    agent: int


def config(servers: Mapping[str, Ports], *, front: int, metrics: int, state: Path) -> str:
    """Return the shipped text with these servers, our ports and paths, and ten times as quick where it waits.

    ``state`` is made when it is not there. The harness brings its own admin socket.
    """
    if not state.exists():
        state.write_text(EMPTY_STATE)
    text = re.sub(r"(?m)^ +(server app|stats socket ).*\n", "", SHIPPED.read_text())
    for old, new in (
        ("bind :8000", f"bind 127.0.0.1:{front}\n    http-request set-log-level silent"),
        ("bind :8405", f"bind 127.0.0.1:{metrics}"),
        ("/var/lib/haproxy/server-state", str(state)),
        ("agent-port 9182 ", ""),
        ("inter 2s", "inter 200ms"),
        ("slowstart 20s", "slowstart 2s"),
    ):
        assert old in text, f"cascade.cfg has no {old!r}"
        text = text.replace(old, new)
    return text + "".join(
        f"    server {name} 127.0.0.1:{ports.app} agent-port {ports.agent}\n" for name, ports in servers.items()
    )


def weights(proxy: Haproxy) -> dict[str, int]:
    """The weight that each server has at this moment, of 100."""
    return {name: int(row["weight"]) for (backend, name), row in proxy.show_servers().items() if backend == "app"}


def status(proxy: Haproxy, name: str) -> str:
    """``UP``, ``DRAIN (agent)``, ``DOWN (agent)``, ..."""
    return proxy.show_servers()["app", name]["status"]


def await_status(proxy: Haproxy, name: str, start: str, timeout_s: float = 10) -> None:
    wait_for(lambda: status(proxy, name).startswith(start), timeout_s=timeout_s, what=f"{name} is {start}")


def await_weight(proxy: Haproxy, name: str, least: int, most: int, timeout_s: float = 10) -> None:
    what = f"the weight of {name} is within {least} to {most}"
    wait_for(lambda: least <= weights(proxy)[name] <= most, timeout_s=timeout_s, what=what)
