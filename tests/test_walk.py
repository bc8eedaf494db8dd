"""The way of one error, which the docstring of ``sidecar`` describes: its functions exist, and run in that order."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Callable
from contextlib import closing
from http.client import HTTPConnection
from pkgutil import resolve_name
from types import CodeType, FrameType
from typing import Final

import pytest

import sidecar
from harness.ports import free_ports
from harness.waiting import wait_for
from sidecar.app import build, daemon
from sidecar.config.load import load

WALK: Final = sidecar.__doc__ or ""
STEPS: Final = re.findall(r"``(\w+(?:\.\w+)+)``", WALK.partition("\n1. ")[2])
FAST: Final = {"settle": "100ms", "check_interval": "200ms", "drain": "0s", "stop_drain": "0s", "agent_listen": "off"}


def _function(step: str) -> Callable[..., object]:
    found: Callable[..., object] = resolve_name(f"sidecar.{step}")
    return found


def test_walk_has_ten_steps() -> None:
    assert re.findall(r"^(\d+)\. ``", WALK, re.MULTILINE) == [str(number + 1) for number in range(10)]


@pytest.mark.parametrize("step", STEPS)
def test_every_function_of_the_walk_exists(step: str) -> None:
    assert callable(_function(step))


def _status(port: int, method: str, path: str, body: bytes | None = None) -> int:
    with closing(HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        connection.request(method, path, body)
        return connection.getresponse().status


def _report_until_down(local: int, public: int) -> None:
    """Wait until the sidecar is up, report five errors, and wait until its health is 503."""
    wait_for(lambda: _status(public, "GET", "/health") == 200, timeout_s=60, what="the sidecar is up")
    assert _status(local, "POST", "/errors", b'{"count":5,"kind":"redis"}') == 202
    wait_for(lambda: _status(public, "GET", "/health") == 503, timeout_s=60, what="the container is drained")


async def _serve_until_down() -> None:
    local, public = free_ports(2)
    listeners = {"local_listen": f"127.0.0.1:{local}", "public_listen": f"127.0.0.1:{public}"}
    config, stop = load({"alone": "true", **listeners, **FAST}, {}), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(daemon.serve(config, build.metrics_of(config), stop))
        await asyncio.to_thread(_report_until_down, local, public)
        stop.set()


def test_one_error_takes_the_walk_in_this_order() -> None:
    codes: dict[CodeType, str] = {_function(step).__code__: step for step in STEPS}
    calls: list[str] = []

    def note(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and frame.f_code in codes:
            calls.append(codes[frame.f_code])

    sys.setprofile(note)
    try:
        asyncio.run(_serve_until_down())
    finally:
        sys.setprofile(None)
    following = iter(calls)
    assert [step for step in STEPS if step not in following] == [], "not called after the steps before"
