"""Fifteen minutes of attacks, one kind after another, with honest clients beside them.

The app's own attacks on the listener for reports come last: then, and only then, a report may be lost.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import pytest

from harness.attacks import ATTACKS, Attacking
from harness.ports import free_port
from harness.sidecar import Sidecar

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.children import Children

pytestmark = [pytest.mark.site, pytest.mark.timeout(1800)]

SOAK_S: Final = 900
MOST_MIB: Final = 64
MOST_MIB_OF_AN_APP: Final = 96
"""Once the app itself has flooded the listener for reports; strangers do not reach it."""

MOST_HOLD_S: Final = 0.05
"""The aim is 20 ms. An idle machine keeps it but for an app that holds 400 bodies (27 ms); a busy one takes longer."""

PAUSE_S: Final = 0.05


class Noting(Sidecar):
    """A sidecar that notes its long holds in ``holds``."""

    @property
    def holds(self) -> Path:
        return self.directory / "holds"

    def _command(self) -> list[str]:
        program, *_, command = super()._command()
        return [program, "-m", "harness.loop_holds", str(self.holds), command]

    def take_holds(self) -> list[float]:
        """The seconds of the long holds since the last call."""
        lines = self.holds.read_text().split() if self.holds.exists() else []
        self.holds.unlink(missing_ok=True)
        return [float(line) for line in lines]


class HonestClients:
    """A health check, an agent-check and an app that reports, one after another, while the context lasts.

    ``lost``: what they got in the place of their answer, with the attack meanwhile.
    """

    def __init__(self, sidecar: Sidecar) -> None:
        self.attack = next(iter(ATTACKS))
        self.answers = 0
        self.lost = Counter[str]()
        self._is_over = threading.Event()
        clients = {
            "health": lambda: sidecar.health()[0] == 200,
            "agent": lambda: sidecar.agent_line() == "up ready 100%\n",
            "report": lambda: sidecar.request("local", "POST", "/errors").status == 202,
        }
        self._threads = [threading.Thread(target=self._repeat, args=client) for client in clients.items()]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def _repeat(self, name: str, is_answered: Callable[[], bool]) -> None:
        while not self._is_over.wait(PAUSE_S):
            try:
                outcome = "" if is_answered() else "another answer"
            except OSError as error:
                outcome = repr(error)
            if outcome and not (name == "report" and ATTACKS[self.attack].listener == "local"):
                self.lost[f"{name} during {self.attack}: {outcome}"] += 1
            self.answers += not outcome


def test_no_honest_poll_is_lost_and_no_hold_is_long_under_all_attacks(run_dir: Path, children: Children) -> None:
    sidecar = children.adopt(Noting(run_dir, error_limit=10**9, statsd_listen=f"127.0.0.1:{free_port()}"))
    sidecar.start()
    sidecar.take_holds()  # its start is no attack
    longest_s = dict[str, float]()
    with HonestClients(sidecar) as honest:
        for name, attack in sorted(ATTACKS.items(), key=lambda item: item[1].listener == "local"):
            honest.attack = name
            with Attacking(name, sidecar.address(attack.listener)):
                time.sleep(SOAK_S / len(ATTACKS))
            longest_s[name] = max(sidecar.take_holds(), default=0.0)
            if attack.listener != "local":
                assert sidecar.peak_mib() <= MOST_MIB, name
    assert honest.lost == {}
    assert honest.answers > SOAK_S
    assert {name: seconds for name, seconds in longest_s.items() if seconds > MOST_HOLD_S} == {}
    assert sidecar.peak_mib() <= MOST_MIB_OF_AN_APP
