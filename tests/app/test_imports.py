"""What a running daemon imports: all of it before the first cull, so that no 503 waits for an import."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

import pytest

from harness.sidecar import Setting, Sidecar
from harness.waiting import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from harness.children import Children
    from harness.redis_server import RedisServer

EVERYTHING: dict[str, Setting] = {
    "webhook_url": "http://127.0.0.1:9/",
    "scrape_url": "http://127.0.0.1:9/metrics",
    "scrape_errors": "errors_total",
}
SECRET = "the password=hunter2 of 10.1.2.3 was refused"
TRACED = """
import os, runpy, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        os.write(2, f"looks for module {name}\\n".encode())
sys.meta_path.insert(0, Finder())
sys.argv = ["sidecar", "run"]
runpy.run_module("sidecar", run_name="__main__")
"""


class TracedSidecar(Sidecar):
    """A daemon that writes a line for each module that it does not have yet. ``-X importtime`` would miss some."""

    def imports(self) -> list[str]:
        return re.findall(r"looks for module (\S+)\n", self.output())

    def _command(self) -> list[str]:
        return [sys.executable, "-c", TRACED]


@pytest.mark.process
@pytest.mark.parametrize(
    "more", [pytest.param({}, id="nothing else", marks=pytest.mark.site), pytest.param(EVERYTHING, id="all")]
)
def test_nothing_is_imported_for_the_first_503(
    run_dir: Path, children: Children, redis_server: RedisServer, more: dict[str, Setting]
) -> None:
    settings = {
        "redis_url": redis_server.url,
        "error_limit": 5,
        "settle": "0s",
        "redis_timeout": "10s",
        "check_interval": "20s",
        **more,
    }
    one = children.adopt(TracedSidecar(run_dir, "a", **settings)).start()
    wait_for(lambda: one.metrics().get("arbiter_fleet_alive") == 1, timeout_s=60, what="the first beat is answered")
    one.request("local", "POST", "/errors", '{"count": 0, "app_start": "boot-1"}')
    before = one.imports()
    one.post_error(5, kind="redis", message=SECRET, app_start="boot-1")
    wait_for(lambda: one.health()[0] == 503, timeout_s=60, what="the cull")
    wait_for(lambda: "granted" in one.output(), timeout_s=60, what="the line in the log")
    assert one.imports()[len(before) :] == []
    assert "hunter2" not in one.output()
