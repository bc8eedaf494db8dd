"""Sidecars of one service that claim at the same time, each on its own connection."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from bench.crowd import files_allowed
from bench.fleet import Service
from bench.rig import medians
from bench.table import Row, at_most, spread
from sidecar.core.types import Denied, Granted, Presence

if TYPE_CHECKING:
    from bench.rig import Rig

SIDECARS: Final = 500
TOKENS: Final = 10
MOST_S: Final = 2
_SPARE_FILES: Final = 200


class _Round(NamedTuple):
    """Seconds until all claims were answered, seconds for one exchange of each, and the number of conflicts."""

    claims_s: float
    pings_s: float
    conflicts: float


def measure(rig: Rig, url: str) -> list[Row]:
    """All sidecars are suspect, with ten tokens."""
    sidecars = SIDECARS // 5 if rig.quick else SIDECARS
    files_allowed(sidecars + _SPARE_FILES)
    services = [Service(url, f"at-once-{number}", sidecars) for number in range(rig.rounds)]
    rounds = [asyncio.run(_round(service)) for service in services]
    seconds, pings, conflicts = medians(rounds)
    rig.notes.append(
        f"{sidecars} sidecars claim at once: {spread([one.claims_s for one in rounds])} s until all are answered, "
        f"{spread([one.conflicts for one in rounds])} conflicts, {TOKENS} granted each time; one processor decides for "
        "all of them, which a fleet does not have to share"
    )
    return [
        Row(f"{sidecars} sidecars claim at once, until all are answered", "s", seconds, pings, at_most(MOST_S, "s")),
        Row(f"{sidecars} sidecars claim at once, commits that met another one", "", conflicts),
    ]


async def _round(service: Service) -> _Round:
    budgets = [service.budget() for _ in range(service.members)]
    for member, budget in enumerate(budgets):
        await budget.beat(service.beat(member, Presence.SUSPECT, first=True))
    before = sum(budget.conflicts for budget in budgets)
    begun = time.perf_counter()
    await asyncio.gather(*(budget.first(f"{member}", 1.0) for member, budget in enumerate(budgets)))
    pinged = time.perf_counter()
    claims = (budget.claim(service.claim(member)) for member, budget in enumerate(budgets))
    answers = await asyncio.gather(*claims)
    ended = time.perf_counter()
    granted = sum(isinstance(answer, Granted) for answer in answers)
    denied = sum(isinstance(answer, Denied) and answer.reason == "window" for answer in answers)
    if (granted, denied) != (TOKENS, len(answers) - TOKENS):
        raise RuntimeError(f"{granted} granted and {denied} denied of {len(answers)}")
    for budget in budgets:
        await budget.aclose()
    return _Round(ended - pinged, pinged - begun, sum(budget.conflicts for budget in budgets) - before)
