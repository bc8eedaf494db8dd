"""Has a container that is down restarted, where no check of a scheduler does it.

The action begins when the drain is over. One that fails leaves the container down: the failure is logged, counted,
entered in the ledger and sent as a message, so that a person learns of it. An action that was surely not carried out is
asked for again as long as the container is down; any doubt means that it may have been, and it is not asked for again.
What was asked is remembered over restarts of the sidecar, in a file beside the state file.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple

from sidecar.core.life.container import Container
from sidecar.core.life.events import Moved
from sidecar.core.life.snapshot import Record
from sidecar.core.types import Latch, State
from sidecar.net.threads import in_thread

EXIT: Final = "exit"
STOPPED: Final = "the sidecar was stopped during the action, and the container is still down"
TIMEOUT_S: Final = 300.0
"""Maximum time of an action: more than an app may take to end, for which Nomad and systemd wait."""

UNREAD_S: Final = 15.0
"""Time in which somebody has to read what is asked, or the action has failed."""

SOON_S: Final = 0.5
"""Pause until then: an agent that restarts is back within seconds."""

AGAIN_S: Final = 30.0
"""Pause once the action has failed. It need not grow: the budget bounds how many sidecars ask."""

FOUND_DOWN_S: Final = 2.0
"""Time in which a sidecar that starts beside a container that is down notices a new incarnation."""

FILE_S: Final = 1.0
"""Maximum time for the file of what was asked: the disk may hang."""

_LIMIT: Final = 65_536

Action = Callable[[], Awaitable[str]]
"""Restarts the container, and returns what it did in one sentence; ``ActionError`` if that is not possible."""


class ActionError(Exception):
    """The action failed; the message says why, without secrets."""


class NotCarriedOutError(ActionError):
    """The action was surely not carried out, so it may be asked for again."""


class UnreadError(NotCarriedOutError):
    """Nobody has read what was asked: the agent is away, or no server leads."""


class RefusedError(NotCarriedOutError):
    """A clear refusal, which only a person repairs: the action has failed at once."""


class ActionResult(NamedTuple):
    """How an action ended, or why it has not been carried out yet."""

    action: str
    at: float  # Unix time
    took_s: float  # since it was asked for first
    sentence: str
    failed: bool  # the container was not restarted
    asks_again: bool = False  # as long as the container is down


class _Order(NamedTuple):
    """The action wanted for one container that is down."""

    latch: Latch | None
    is_over: asyncio.Event  # set once the container is not down any more


class ActionProgress(Enum):
    """What became of the action for a latch; the second line of the file says it."""

    NOT_ASKED = None
    WITHOUT_RESULT = ""  # it may have been carried out: the sidecar ended during the action
    NOT_CARRIED_OUT = "unread\n"  # surely
    WITH_RESULT = "ended\n"


class AskedFile:
    """Holds the latch for which the action was asked last. Its methods may block, and raise OSError or ValueError."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self, latch: Latch) -> ActionProgress:
        """What became of the action for this latch."""
        try:
            with self._path.open() as file:
                text = file.read(_LIMIT)
        except FileNotFoundError:
            return ActionProgress.NOT_ASKED
        if not text.startswith(_name(latch)):
            return ActionProgress.NOT_ASKED
        try:
            return ActionProgress(text.removeprefix(_name(latch)))
        except ValueError:
            return ActionProgress.WITHOUT_RESULT

    def note(self, latch: Latch, progress: ActionProgress) -> None:
        """Write down that the action is asked for this latch, or what became of it."""
        # What became of it is added: a kill in between must not leave an empty file, as if nothing had been asked.
        flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        how = os.O_APPEND if progress.value else os.O_CREAT | os.O_TRUNC
        with os.fdopen(os.open(self._path, flags | how, 0o600), "w") as file:
            file.write(progress.value or _name(latch))


def _name(latch: Latch) -> str:
    return f"{latch.claim_id or latch.lease} {latch.at}\n"


class Actuator:
    """Carries out the action ``name`` for each container that goes down.

    ``wall`` gives Unix seconds, ``jitter`` a number from 0 to 1. ``on_result`` gets the first failure and the end of
    each action; ``last`` is the newest. ``asked`` remembers over restarts of the sidecar what was asked; None: the
    sidecar keeps no state. ``missing`` says in sentences what the action lacks on this machine, and may block;
    ``on_missing`` gets each.
    """

    def __init__(
        self,
        name: str,
        action: Action,
        *,
        wall: Callable[[], float],
        on_result: Callable[[ActionResult], None],
        asked: AskedFile | None = None,
        missing: Callable[[], Sequence[str]] = lambda: (),
        on_missing: Callable[[str], None] = lambda _: None,
        jitter: Callable[[], float] = lambda: 0.5,
    ) -> None:
        self.last: ActionResult | None = None
        self.missing: Sequence[str] = ()
        self._look = missing
        self._on_missing = on_missing
        self._name = name
        self._action = action
        self._wall = wall
        self._on_result = on_result
        self._asked = asked
        self._jitter = jitter
        self._order: _Order | None = None
        self._wanted = asyncio.Event()

    @property
    def has_left(self) -> bool:
        """Whether the action ended this process."""
        return self._name == EXIT and self.last is not None and not self.last.failed

    def notice(self, record: Record) -> None:
        """Observe a step of the container."""
        if record.container.state is not State.DOWN:
            if self._order is not None:
                self._order.is_over.set()
        elif any(isinstance(event, Moved) for event in record.events):
            self._order_action(record.container.latch)

    async def run(self, container: Callable[[], Container]) -> None:
        """Carry out actions until cancelled."""
        await self._examine()
        await self._catch_up(container)
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            if self._order is not None:
                await self._carry_out(self._order)

    async def _carry_out(self, order: _Order) -> None:
        """Ask until the action is carried out or may have been, or the container is not down any more."""
        loop = asyncio.get_running_loop()
        began, is_reported = loop.time(), False
        while not order.is_over.is_set():
            await self._note(order.latch, ActionProgress.WITHOUT_RESULT)
            sentence, error = await self._ask()
            asked_for_s = loop.time() - began
            if not isinstance(error, NotCarriedOutError):
                if error is None or not order.is_over.is_set():  # else the container was restarted all the same
                    self._report(sentence, asked_for_s, failed=error is not None)
                await self._note(order.latch, ActionProgress.WITH_RESULT)
                return
            has_failed = isinstance(error, RefusedError) or asked_for_s + SOON_S > UNREAD_S
            if has_failed:
                again = f"the sidecar asks again: {sentence}"
                self._report(again, asked_for_s, failed=True, asks_again=True, is_reported=is_reported)
                is_reported = True
            await self._note(order.latch, ActionProgress.NOT_CARRIED_OUT)
            with suppress(TimeoutError):
                async with asyncio.timeout((AGAIN_S if has_failed else SOON_S) * (0.8 + 0.4 * self._jitter())):
                    await order.is_over.wait()

    def _report(
        self, sentence: str, took_s: float, *, failed: bool, asks_again: bool = False, is_reported: bool = False
    ) -> None:
        self.last = ActionResult(self._name, self._wall(), took_s, sentence, failed, asks_again)
        if not is_reported:
            self._on_result(self.last)

    async def _examine(self) -> None:
        """Find out before the first cull whether the action can be carried out."""
        with suppress(OSError, RuntimeError):  # a TimeoutError is an OSError; no thread can be started
            async with asyncio.timeout(FILE_S):
                self.missing = await in_thread(self._look)
        for sentence in self.missing:
            self._on_missing(sentence)

    def _order_action(self, latch: Latch | None) -> None:
        self._order = _Order(latch, asyncio.Event())
        self._wanted.set()

    async def _catch_up(self, container: Callable[[], Container]) -> None:
        """Ask for a container that this sidecar found down, if no sidecar has asked, or the action was not carried out.

        If the last one ended during the action, the action has failed. Any doubt means that one has asked, and knew the
        result.
        """
        latch = _latch_of_down(container())
        if self._asked is None or latch is None:
            return
        await asyncio.sleep(FOUND_DOWN_S)
        with suppress(OSError, ValueError, RuntimeError):  # as above
            async with asyncio.timeout(FILE_S):
                asked = await in_thread(self._asked.read, latch)
            if _latch_of_down(container()) != latch:
                return
            if asked in {ActionProgress.NOT_ASKED, ActionProgress.NOT_CARRIED_OUT}:
                self._order_action(latch)
            elif asked is ActionProgress.WITHOUT_RESULT and self._name != EXIT:  # which has no time to note a result
                self._report(STOPPED, 0.0, failed=True)
                await self._note(latch, ActionProgress.WITH_RESULT)

    async def _note(self, latch: Latch | None, progress: ActionProgress) -> None:
        if self._asked is None or latch is None:
            return
        try:
            async with asyncio.timeout(FILE_S):
                await in_thread(self._asked.note, latch, progress)
        except TimeoutError:
            self._asked = None  # at most one thread waits for a disk that hangs
        except (OSError, ValueError, RuntimeError):  # no thread can be started
            return

    async def _ask(self) -> tuple[str, ActionError | None]:
        """Ask once: what was done, or why not, and the error."""
        try:
            async with asyncio.timeout(TIMEOUT_S):
                return await self._action(), None
        except TimeoutError:
            error = ActionError(f"no end after {TIMEOUT_S:g} s")
        except ActionError as raised:
            error = raised
        except Exception as raised:  # noqa: BLE001 - an action that breaks must not end the sidecar
            error = ActionError(f"{type(raised).__name__} in the sidecar")
        return str(error), error


def _latch_of_down(container: Container) -> Latch | None:
    return container.latch if container.state is State.DOWN else None
