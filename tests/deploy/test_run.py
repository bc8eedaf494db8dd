"""``deploy/run``, the first command of a new user: what it prints is true, and five errors end in a 503."""

from __future__ import annotations

import re
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.sidecar import Sidecar
from harness.waiting import wait_for

if TYPE_CHECKING:
    from harness.children import Children

RUN = Path(__file__).parents[2] / "deploy" / "run"


class FirstTry(Sidecar):
    """The sidecar that the script becomes."""

    def _command(self) -> list[str]:
        return [str(RUN)]


@pytest.mark.process
def test_first_try_says_where_and_when_and_shows_a_503(run_dir: Path, children: Children) -> None:
    one = children.adopt(FirstTry(run_dir, "try", alone="", settle="1s", drain="1s")).start()
    printed = one.output()
    assert "health-arbiter will listen, a few seconds from now, at\n" in printed  # it is said before the daemon starts
    assert "ARBITER_ALONE=true: there is no ARBITER_REDIS_URL" in printed
    assert re.search(r"503 after the settle time of 1s, and up to a quarter more$", printed, re.MULTILINE)
    (page,) = re.findall(r"status page +(\S+)$", printed, re.MULTILINE)
    assert urllib.request.urlopen(page, timeout=60).status == 200
    (report, times) = re.findall(r"curl -X POST (\S+) +# (\d+) times", printed)[0]
    for _ in range(int(times)):
        assert urllib.request.urlopen(report, data=b"", timeout=60).status == 202
    wait_for(lambda: one.health()[0] == 503, timeout_s=60, what="the container is drained")
