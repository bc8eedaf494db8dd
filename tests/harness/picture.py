"""Draws the picture of the README: the status page of a real service in which one container was culled.

``cd tests && python -m harness.picture`` writes ``deploy/page.png``.
"""

from __future__ import annotations

import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Final

from harness.browser import Browser
from harness.children import Children, StartRedis, StartSidecar, short_path
from harness.sidecar import GATES, Setting
from harness.waiting import wait_for

PICTURE: Final = Path(__file__).parents[2] / "deploy" / "page.png"
NAMES: Final = tuple(f"web-{number}" for number in range(1, 13))
LATE_S: Final = 30
"""From this second of a minute on it waits for the next: the errors and the cull share a bar of the time line then."""

SETTINGS: Final[dict[str, Setting]] = GATES | {
    "service": "shop.web",
    "settle": "0s",
    "drain": "5s",
    "check_interval": "3s",
    "beat_interval": "500ms",
}


def draw(path: Path) -> None:
    """Start a service, break the Redis connection of one of its containers, and photograph the page of another."""
    with tempfile.TemporaryDirectory() as temporary, short_path(Path(temporary)) as directory, Children() as children:
        redis = StartRedis(directory, children)()
        start = StartSidecar(directory, children)
        fleet = [start(name, redis_url=redis.url, **SETTINGS) for name in NAMES]
        first, sick = fleet[0], fleet[3]
        asked = partial(first.request, "local", "GET")
        wait_for(lambda: asked("/fleet").json()["fleet"]["alive"] == len(NAMES), timeout_s=60, what="all are known")
        if time.time() % 60 > LATE_S:
            time.sleep(61 - time.time() % 60)
        fleet[1].post_error(1, kind="mysql", message="OperationalError: lock wait timeout")
        sick.post_error(7, kind="redis", message="ConnectionError: connection lost")
        wait_for(lambda: sick.health("/health/nomad")[0] == 503, timeout_s=60, what="it is down")
        wait_for(lambda: "culled" in asked("/events").body, timeout_s=60, what="the ledger has the cull")
        host, port = first.address("local")
        with Browser() as browser:
            window = browser.open(f"http://{host}:{port}/page", width=1100, height=605)
            window.wait("document.body.innerText.includes('web-4') && document.body.innerText.includes('down')")
            window.page.wait_for_timeout(3000)
            window.page.screenshot(path=path)


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if sys.argv[1:] else PICTURE)
