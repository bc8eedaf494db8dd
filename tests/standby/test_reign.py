"""What a main tells its standby, and when."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from harness.hall import Stage
from harness.virtual_time import in_virtual_time
from sidecar.answer.log import Log
from sidecar.answer.metrics import Metrics
from sidecar.core.words import Ping, Policy
from sidecar.observers import Observers
from sidecar.settings import load
from sidecar.standby.flock import FlockSlots
from sidecar.standby.reign import SOON_S, Reign
from sidecar.standby.roles import Succession


class Heard:
    """An offer whose standby hears everything: how many errors were in what it was told."""

    is_heard = is_ready = True

    def __init__(self, stage: Stage) -> None:
        self.errors: list[int] = []
        self._stage = stage

    def tell(self) -> None:
        self.errors.append(self._stage.hall.evidence().errors)


def reign(stage: Stage) -> Any:
    settings = load({"run_lock": "/run/nowhere"}, {})
    told = Observers(Metrics("enforce", 5, 10), Log())
    succession = Succession(Path("/run/nowhere"), FlockSlots(Path("/run/nowhere"), "main"))
    made: Any = Reign(settings, succession, stage.hall, Policy(), told)
    made._offer = Heard(stage)
    return made


@in_virtual_time
async def test_error_that_comes_between_the_moment_to_tell_and_the_telling_is_told_too() -> None:
    async with Stage(Policy(error_limit=100)) as stage:
        one, loop = reign(stage), asyncio.get_running_loop()
        one.offer([Ping()])
        # In the same turn of the loop as the moment to tell, and after it: the hall counts it when that was told.
        loop.call_at(loop.time() + SOON_S, one.offer, [Ping()])
        await asyncio.sleep(0.1)
        assert one._offer.errors[-1] == 2
