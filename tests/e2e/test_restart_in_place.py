"""An app that is restarted beside its sidecar and says nothing: the sidecar notices by the socket at its port."""

from __future__ import annotations

import json
import os
import socket
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from harness.ports import free_port
from harness.sidecar import AT_ONCE, Setting, Sidecar, command
from harness.waiting import wait_for

if TYPE_CHECKING:
    from harness.children import StartSidecar
    from harness.redis_server import RedisServer

pytestmark = [pytest.mark.redis, pytest.mark.process]

CULL: Final[dict[str, Setting]] = {**AT_ONCE, "drain": "100ms"}


def _listening(port: int) -> socket.socket:
    return socket.create_server(("127.0.0.1", port))


def _await_health(one: Sidecar, status: int) -> None:
    wait_for(lambda: one.health()[0] == status, timeout_s=60, what=f"health is {status}")


def test_culled_app_that_is_restarted_in_place_is_up_again(sidecar: StartSidecar, redis_server: RedisServer) -> None:
    port = free_port()
    with closing(_listening(port)):
        one = sidecar("one", app_port=port, redis_url=redis_server.url, **CULL)
        one.post_error(5, kind="redis")
        _await_health(one, 503)
    assert [one.health()[0] for _ in range(20)] == [503] * 20, "it stays down while nobody listens"
    with closing(_listening(port)):
        _await_health(one, 200)
        assert one.verdict()["evidence"]["errors"] == 0
        one.post_error(1, kind="redis")
        wait_for(lambda: one.verdict()["evidence"]["errors"] == 1, timeout_s=60, what="the new life is counted")
    wait_for(lambda: {"culled", "restarted"} <= _events(one), timeout_s=60, what="both are in the ledger")


def test_restarted_sidecar_knows_the_app_that_it_culled(sidecar: StartSidecar, redis_server: RedisServer) -> None:
    port = free_port()
    one = sidecar("one", app_port=port, redis_url=redis_server.url, **CULL)
    state = Path(str(one.settings["state_dir"]))
    with closing(_listening(port)) as app:
        wait_for(lambda: one.metrics()["arbiter_app_listening"] == 1, timeout_s=60, what="the port is seen")
        one.post_error(5)
        _await_health(one, 503)
        socket_id = str(os.fstat(app.fileno()).st_ino)
        wait_for(lambda: _has_saved(state, socket_id), timeout_s=60, what="the latch and the socket are saved")
        one.kill()
        one.start()
        assert [one.health()[0] for _ in range(20)] == [503] * 20
        one.kill()
    with closing(_listening(port)):
        one.start()
        _await_health(one, 200)


def _has_saved(directory: Path, socket_id: str) -> bool:
    text = "".join(file.read_text() for file in directory.glob("*.json"))
    return '"latch": {' in text and socket_id in text


def _events(one: Sidecar) -> set[str]:
    """What the ledger of the service tells."""
    done = command(one, "events", "--json")
    assert done.code == 0, done
    return {json.loads(line)["what"] for line in done.out.splitlines()}
