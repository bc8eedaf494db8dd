"""Has a container that is down restarted, where no check of a scheduler does it. Each action is asked for once.

The action begins when the drain is over. One that fails leaves the container down, and its failing check is all that is
left: the failure is logged, counted, entered in the ledger and sent as a message, so that a person learns of it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from enum import Enum, auto
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from sidecar.core.life.container import Container
from sidecar.core.life.events import Moved
from sidecar.core.life.snapshot import Record
from sidecar.core.types import Latch, State
from sidecar.net.threads import in_thread

EXIT: Final = "exit"
STOPPED: Final = "the sidecar was stopped during the action, and the container is still down"
FILE_S: Final = 1.0
"""Maximum time for the file of what was asked: the disk may hang."""

_ASKED_LIMIT: Final = 65_536
_ENDED: Final = "ended\n"

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


class ActionProgress(Enum):
    """Whether the action was asked for a latch, and whether its result is known."""

    NOT_ASKED = auto()
    WITHOUT_RESULT = auto()
    WITH_RESULT = auto()


class AskedFile:
    """Remembers in a file, over restarts of the sidecar, for which latch the action was asked last.

    A second line says that the result is known: without it the sidecar ended during the action. The methods may block,
    and raise OSError or ValueError.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self, latch: Latch) -> ActionProgress:
        """Whether the action was asked for this latch."""
        try:
            with self._path.open() as file:
                text = file.read(_ASKED_LIMIT)
        except FileNotFoundError:
            return ActionProgress.NOT_ASKED
        if not text.startswith(_line(latch)):
            return ActionProgress.NOT_ASKED
        return ActionProgress.WITH_RESULT if text.endswith(_ENDED) else ActionProgress.WITHOUT_RESULT

    def note(self, latch: Latch, *, has_result: bool = False) -> None:
        """Write down that the action is asked for this latch, or that its result is known."""
        # The result is added: a kill in between must not leave an empty file, as if nothing had been asked.
        how = os.O_APPEND if has_result else os.O_CREAT | os.O_TRUNC
        flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with os.fdopen(os.open(self._path, flags | how, 0o600), "w") as file:
            file.write(_ENDED if has_result else _line(latch))


def _line(latch: Latch) -> str:
    return f"{latch.claim_id or latch.lease} {latch.at}\n"


class Actuator:
    """Carries out the action ``name`` for each container that goes down.

    An action has ``timeout_s`` seconds. ``wall`` gives Unix seconds. ``on_result`` gets every result; ``last`` is the
    newest. ``asked`` remembers over restarts of the sidecar what was asked; None: the sidecar keeps no state.
    ``missing`` says in sentences what the action lacks on this machine, and may block; ``on_missing`` gets each.
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
        missing: Callable[[], Sequence[str]] = tuple,
        on_missing: Callable[[str], None] = lambda _: None,
        found_down_s: float = 2.0,
    ) -> None:
        self.last: ActionResult | None = None
        self.missing: Sequence[str] = ()
        self._look = missing
        self._on_missing = on_missing
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
        if record.container.state is not State.DOWN:
            self._wanted.clear()
        elif any(isinstance(event, Moved) for event in record.events):
            self._want(record.container.latch)

    async def run(self, container: Callable[[], Container]) -> None:
        """Carry out actions until cancelled."""
        await self._examine()
        await self._catch_up(container)
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            latch = self._latch
            await self._note(latch)
            self._report(await self._result())
            await self._note(latch, has_result=True)

    def _report(self, result: ActionResult) -> None:
        self.last = result
        self._on_result(result)

    async def _examine(self) -> None:
        """Find out before the first cull whether the action can be carried out."""
        with suppress(OSError, RuntimeError):  # a TimeoutError is an OSError; no thread can be started
            async with asyncio.timeout(FILE_S):
                self.missing = await in_thread(self._look)
        for sentence in self.missing:
            self._on_missing(sentence)

    def _want(self, latch: Latch | None) -> None:
        self._latch = latch
        self._wanted.set()

    async def _catch_up(self, container: Callable[[], Container]) -> None:
        """Ask for a container that this sidecar found down, if no sidecar has asked: the last one ended in its drain.

        If the last one ended during the action, the action has failed. Any doubt means that one has asked, and knew the
        result.
        """
        found = container()
        if self._asked is None or found.latch is None or found.state is not State.DOWN:
            return
        await asyncio.sleep(self._found_down_s)
        with suppress(OSError, ValueError):  # a TimeoutError is an OSError
            async with asyncio.timeout(FILE_S):
                asked = await in_thread(self._asked.read, found.latch)
            now = container()
            if now.state is not State.DOWN or now.latch != found.latch:
                return
            # A sidecar that exits has no time to note the result.
            was_stopped = asked is ActionProgress.WITHOUT_RESULT and self._name != EXIT
            if asked is ActionProgress.NOT_ASKED:
                self._want(found.latch)
            elif was_stopped:
                self._report(ActionResult(self._name, self._wall(), 0.0, STOPPED, failed=True))
                await self._note(found.latch, has_result=True)

    async def _note(self, latch: Latch | None, *, has_result: bool = False) -> None:
        if self._asked is not None and latch is not None:
            with suppress(OSError, ValueError):
                async with asyncio.timeout(FILE_S):
                    await in_thread(partial(self._asked.note, latch, has_result=has_result))

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
