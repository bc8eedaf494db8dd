"""Has a container that is down restarted, where no check of a scheduler does it. Each action is asked for once.

The action begins when the drain is over. One that fails leaves the container down, and its failing check is all that is
left: the failure is logged, counted, entered in the ledger and sent as a message, so that a person learns of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, NamedTuple

from sidecar.actions.asked_file import AskedFile
from sidecar.core.life.container import Container
from sidecar.core.life.snapshot import Record
from sidecar.core.types import Latch, State
from sidecar.net.threads import in_thread

EXIT: Final = "exit"
FILE_S: Final = 1.0
"""Maximum time for the file of what was asked: the disk may hang."""

Action = Callable[[], Awaitable[str]]
"""Restarts the container, and returns what it did in one sentence; ``ActionError`` if that is not possible."""


class ActionError(Exception):
    """The action failed; the message says why, without secrets."""


class ActionResult(NamedTuple):
    """How an action ended, ``at`` Unix time, after ``took_s`` seconds. ``failed``: the container was not restarted."""

    action: str
    at: float
    took_s: float
    sentence: str
    failed: bool


class Actuator:
    """Carries out the action ``name`` for each container that goes down.

    An action has ``timeout_s`` seconds. ``wall`` gives Unix seconds. ``on_result`` gets every result; ``last`` is the
    newest. ``asked`` remembers over restarts of the sidecar what was asked; None: the sidecar keeps no state.
    ``found_down_s``: time in which a sidecar that starts beside a container that is down notices a new incarnation.
    """

    def __init__(
        self,
        name: str,
        action: Action,
        *,
        timeout_s: float,
        wall: Callable[[], float],
        on_result: Callable[[ActionResult], None],
        asked: AskedFile | None = None,
        found_down_s: float = 2.0,
    ) -> None:
        self.last: ActionResult | None = None
        self._name = name
        self._action = action
        self._timeout_s = timeout_s
        self._wall = wall
        self._on_result = on_result
        self._asked = asked
        self._found_down_s = found_down_s
        self._latch: Latch | None = None
        self._wanted = asyncio.Event()

    @property
    def has_left(self) -> bool:
        """Whether the action ended this process."""
        return self._name == EXIT and self.last is not None and not self.last.failed

    def notice(self, record: Record) -> None:
        """Observe a step of the container."""
        if record.after.state is State.DOWN and record.before.state is not State.DOWN:
            self._want(record.after.latch)
        elif record.after.state is not State.DOWN:
            self._wanted.clear()

    async def run(self, container: Callable[[], Container]) -> None:
        """Carry out actions until cancelled."""
        await self._catch_up(container)
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            await self._note()
            self.last = await self._result()
            self._on_result(self.last)

    def _want(self, latch: Latch | None) -> None:
        self._latch = latch
        self._wanted.set()

    async def _catch_up(self, container: Callable[[], Container]) -> None:
        """Ask for a container that this sidecar found down, if no sidecar has asked: the last one ended in its drain.

        Any doubt means that one has asked.
        """
        found = container()
        if self._asked is None or found.latch is None or found.state is not State.DOWN:
            return
        await asyncio.sleep(self._found_down_s)
        with suppress(OSError, ValueError):  # a TimeoutError is an OSError
            async with asyncio.timeout(FILE_S):
                was_asked = await in_thread(self._asked.has, found.latch)
            now = container()
            if not was_asked and now.state is State.DOWN and now.latch == found.latch:
                self._want(found.latch)

    async def _note(self) -> None:
        if self._asked is not None and self._latch is not None:
            with suppress(OSError, ValueError):
                async with asyncio.timeout(FILE_S):
                    await in_thread(self._asked.note, self._latch)

    async def _result(self) -> ActionResult:
        loop = asyncio.get_running_loop()
        began, failed = loop.time(), True
        try:
            async with asyncio.timeout(self._timeout_s):
                sentence = await self._action()
            failed = False
        except TimeoutError:
            sentence = f"no end after {self._timeout_s:g} s"
        except ActionError as error:
            sentence = str(error)
        except Exception as error:  # noqa: BLE001 - an action that breaks must not end the sidecar
            sentence = f"{type(error).__name__} in the sidecar"
        return ActionResult(self._name, self._wall(), loop.time() - began, sentence, failed)
