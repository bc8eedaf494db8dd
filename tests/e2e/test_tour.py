"""The first commands of a new user, as the README has them: ``deploy/run``, and the tour with other ports."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from harness.binaries import require
from harness.ports import free_ports
from harness.sidecar import ASKS_AGAIN, Sidecar
from harness.waiting import wait_for

if TYPE_CHECKING:
    from harness.children import Children

pytestmark = pytest.mark.process

TOP: Final = Path(__file__).parents[2]
WAITS: Final = (
    """curl -s 127.0.0.1:9180/fleet | grep -q '"alive": 2'""",
    # The health of `two` says it first; then its beat and its ledger have to reach `one`.
    "curl -s 127.0.0.1:9281/health | grep -q 'is replaced' && health-arbiter why two | grep -qzE 'two +d.*  culled'",
    """curl -s 127.0.0.1:9180/verdict | grep -q '"outcome": "denied"'""",
    """curl -s 127.0.0.1:9180/verdict | grep -qE '"state": "(draining|down)"'""",
)
"""What each sleep of the tour waits for: the test looks often, for at most a minute, and needs no sleep."""

FAST: Final = {
    "ARBITER_SETTLE": "500ms",
    "ARBITER_CHECK_INTERVAL": str(ASKS_AGAIN["check_interval"]),
    "ARBITER_REDIS_TIMEOUT": str(ASKS_AGAIN["redis_timeout"]),
}
TIMEOUT_S: Final = 200
PORTS: Final = ("6390", "9180", "9181", "9182", "9280", "9281", "9282")
"""The ports of the tour, and the default ports of the listeners."""

SHOWN: Final = (
    r"tour: 2 alive, 0 of them suspect, 0 down",
    r'\{"state":"up"\}',
    r"HTTP/1\.1 503 ",
    r"5 server errors in 60 s \(5 of them redis\), the limit is 5",
    r"claim granted: 1 of 10 in use",
    r"clears when: .*the container is replaced",
    r"\ntwo +(draining|down) +redis ",
    r"  culled .*5 server errors",
    r"    5 x redis \(\w+, \S+ to \S+\): connection lost",
    r'\{"state":"\w+"\}',  # the state before it
    r"held: the service by .*: looking at redis",
    r"suspect: 5 server errors",
    r"claim denied \(hold\)",
    r"the service is released; a suspect asks again at its next check",
    r"(draining|down): 6 server errors",
    r"claim granted: 2 of 10 in use",
    r"revived: instance one: it is up again",
    r"tour: 2 alive, ",
    r"  culled +two ",
    r"  hold .*looking at redis",
    r"  release ",
    r"  culled +one ",
    r"  revived +one .*tour",
    r"culls +2: ",
)
"""In this order."""


def _tour() -> str:
    section = (TOP / "README.md").read_text().split("\n## The tour")[1]
    tour, waits = section.split("```sh\n")[1].split("```")[0], iter(WAITS)
    waiting = 'wait_until() { for _ in $(seq 600); do eval "$1" && return; sleep 0.1; done; }\n'
    tour = re.sub(r"\bsleep \d+", lambda _: f"wait_until {shlex.quote(next(waits))}", tour)
    assert next(waits, None) is None, "the tour has fewer sleeps than the test"
    return waiting + tour


@pytest.mark.redis
@pytest.mark.timeout(TIMEOUT_S + 20)
def test_tour_of_the_readme_prints_what_its_comments_say(run_dir: Path) -> None:
    require("redis-cli")
    require("curl")
    ports = dict(zip(PORTS, map(str, free_ports(len(PORTS))), strict=True))
    program = run_dir / "bin" / "health-arbiter"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nPYTHONPATH={TOP} exec {sys.executable} -m sidecar "$@"\n')
    program.chmod(0o755)
    (run_dir / "empty").mkdir()
    listeners = zip(("LOCAL", "PUBLIC", "AGENT"), ("9180", "9181", "9182"), strict=True)
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("ARBITER_", "NOMAD_"))}
    person = subprocess.Popen(
        ["bash", "-c", re.sub("|".join(PORTS), lambda found: ports[found[0]], _tour())],
        cwd=run_dir / "empty",
        env=ours
        | FAST
        | {f"ARBITER_{listener}_LISTEN": f"127.0.0.1:{ports[port]}" for listener, port in listeners}
        | {"PATH": f"{program.parent}:{ours.get('PATH', os.defpath)}"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = person.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        os.killpg(person.pid, signal.SIGKILL)
        raise
    finally:
        bye = ["redis-cli", "-p", ports["6390"], "shutdown", "nosave"]
        subprocess.run(bye, capture_output=True, check=False, timeout=90)
    at = 0
    for pattern in SHOWN:
        found = re.compile(pattern).search(said, at)
        assert found, f"{pattern!r} is not shown after {said[:at][-200:]!r}: {said}"
        at = found.end()


# -- deploy/run -------------------------------------------------------------------------------------------------------

RUN: Final = TOP / "deploy" / "run"


class FirstTry(Sidecar):
    """The sidecar that the script becomes."""

    def _command(self) -> list[str]:
        return [str(RUN)]


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
