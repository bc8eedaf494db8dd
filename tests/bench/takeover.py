"""The time without answers when a standby takes over from its main, and the polls that are lost."""

from __future__ import annotations

import signal
import time
from statistics import median
from typing import TYPE_CHECKING, Final

from bench.rig import NEVER
from bench.table import Row, at_most
from harness.main_and_standby import MainAndStandby
from harness.polls import RESET, UP, Polls, summary

if TYPE_CHECKING:
    from bench.rig import Rig
    from harness.polls import Polled

KILLS: Final = 200
TERMS: Final = 50
QUICK: Final = 10
RATE: Final = 1_000
CALM_S: Final = 0.2
P50_MS: Final = 50


def measure(rig: Rig) -> list[Row]:
    """Kills and planned ends; main and standby share a core, as on a full machine."""
    kills, terms = (QUICK, QUICK) if rig.quick else (KILLS, TERMS)
    killed, at = _ended(rig, signal.SIGKILL, kills)
    took_ms = [1000 * killed.handover_s(each) for each in at]
    rig.notes.append(summary("killed", [each / 1000 for each in took_ms], killed))
    planned, planned_at = _ended(rig, signal.SIGTERM, terms)
    planned_ms = [1000 * planned.handover_s(each) for each in planned_at]
    rig.notes.append(summary("planned end", [each / 1000 for each in planned_ms], planned))
    return [
        Row("takeover, main killed, p50", "ms", median(took_ms), None, at_most(P50_MS, "ms")),
        Row("takeover, main killed, max", "ms", max(took_ms)),
        Row("takeover, polls reset by a kill", "", killed.outcomes[RESET] / kills),
        Row("takeover, polls refused or answered wrongly", "", _wrong(killed) + _wrong(planned), None, at_most(0, "")),
        Row("takeover, planned, p50", "ms", median(planned_ms)),
        Row("takeover, planned, max", "ms", max(planned_ms)),
        Row("takeover, planned, polls lost", "", _lost(planned), None, at_most(0, "")),
    ]


def _ended(rig: Rig, number: signal.Signals, times: int) -> tuple[Polled, list[float]]:
    directory = rig.directory / f"takeover-{number.name}"
    directory.mkdir()
    at = []
    with rig.on_server_cores():
        one = MainAndStandby(rig.sidecar, directory, error_limit=NEVER).start()
    with Polls(one.main.address("public"), RATE) as polls:
        for _ in range(times):
            time.sleep(CALM_S)
            at.append(one.end_main(number))
            time.sleep(CALM_S)
            with rig.on_server_cores():
                one.await_standby()
    one.standby.stop()
    one.main.stop()
    return polls.polled, at


def _lost(polled: Polled) -> int:
    return polled.outcomes[RESET] + polled.kept_outcomes[RESET] + polled.closed


def _wrong(polled: Polled) -> int:
    both = polled.outcomes + polled.kept_outcomes
    return both.total() - both[UP] - both[RESET]
