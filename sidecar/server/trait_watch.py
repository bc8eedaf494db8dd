"""What the suspects have in common, for the ``/why`` of a suspect, which has to come from memory.

Only a suspect in company looks, and only now and then: in an outage everybody does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Final

from sidecar.core.fleet.common_trait import SUSPECTS, CommonTrait, of_members
from sidecar.core.fleet.fleet_events import BeatRecord
from sidecar.core.fleet.members import MemberList
from sidecar.core.types import Fleet, Unknown

EVERY_S: Final = 30.0
"""Interval of the looks, give or take a fifth."""


class TraitWatch:
    """``value`` is the trait by the last look; None if there is none, or this container is no suspect.

    ``member_list`` reads the members of the fleet. ``on_failure`` gets the exception of a look.
    """

    def __init__(
        self,
        member_list: Callable[[], Awaitable[MemberList | Unknown]],
        is_suspect: Callable[[], bool],
        *,
        rng: Random,
        on_failure: Callable[[Exception], None],
    ) -> None:
        self.value: CommonTrait | None = None
        self._member_list = member_list
        self._is_suspect = is_suspect
        self._rng = rng
        self._on_failure = on_failure
        self._is_wanted = asyncio.Event()

    def beaten(self, record: BeatRecord) -> None:
        """Observe the answer to a beat."""
        if not isinstance(record.answer, Fleet):
            return
        if record.answer.suspect >= SUSPECTS and self._is_suspect():
            self._is_wanted.set()
        else:
            self._is_wanted.clear()
            self.value = None

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await self._is_wanted.wait()
            try:
                await self.look()
            except Exception as error:  # noqa: BLE001 - it must not end the sidecar
                self._on_failure(error)
            await asyncio.sleep(EVERY_S * self._rng.uniform(0.8, 1.2))

    async def look(self) -> None:
        """Read the members once; without an answer the value stays."""
        answer = await self._member_list()
        if isinstance(answer, MemberList):
            self.value = of_members(answer.members) if self._is_wanted.is_set() else None
