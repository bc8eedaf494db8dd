"""The journal: the state file, with what has to survive a killed sidecar (incarnation, age, latch).

A journal that cannot be read or written costs persistence and never health: ``on_failure`` receives every failure, and
the sidecar runs without one. A thread reads and writes the file, and the wait for it is bounded.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import stat
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from sidecar.core.claims import NO_IDENTITY, RandomIdentity
from sidecar.core.life.container import Container, resume, start
from sidecar.core.types import Latch, Policy
from sidecar.net.threads import in_thread

FORMAT: Final = 1
SIZE_LIMIT: Final = 65_536
_WRITABLE_BY_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True, slots=True)
class SavedIncarnation:
    """What the journal has of one incarnation."""

    app: str
    app_start: str | None  # the first id that is known of it
    incarnation: str  # the id that it claims under
    latch: Latch | None = None
    born: float | None = None  # Unix seconds; None if it is not known
    identity: RandomIdentity = NO_IDENTITY
    socket: str = ""  # the one that listens at the app's port; empty if it is not known

    @classmethod
    def of(cls, container: Container, born: float, socket: str) -> SavedIncarnation:
        """What has to survive of this container, which began at ``born`` (Unix seconds)."""
        app, incarnation = container.app, container.incarnation
        return cls(app, container.app_start, incarnation, container.latch, born, container.identity, socket)

    def container(self, now: float, unix: float, policy: Policy, identity: RandomIdentity) -> Container:
        """The container that goes on where this sidecar left off, with ``identity`` if it had none.

        In shadow mode it is not out of balance, whatever an earlier sidecar did in enforce mode.
        """
        container = start(
            self.app,
            now,
            policy,
            app_start=self.app_start,
            asked_under=self.incarnation,
            born=None if self.born is None else now - (unix - self.born),
            identity=self.identity if self.identity.holder else identity,
        )
        if self.latch is None or not policy.enforce:
            return container
        return resume(container, self.latch, now, unix - self.latch.at, policy)


class Journal:
    """One file in ``directory``, replaced as a whole; without a ``directory`` nothing is kept."""

    def __init__(self, directory: Path | None, app: str, on_failure: Callable[[str, Exception], None]) -> None:
        self.path = path_of(directory, app) if directory else None
        self._app = app
        self._on_failure = on_failure
        self._writing = asyncio.Lock()
        self._newest: SavedIncarnation | None = None

    @property
    def keeps(self) -> bool:
        """Whether anything is written to a disk."""
        return self.path is not None

    async def load(self, timeout_s: float) -> SavedIncarnation | None:
        """What was saved of this app, if there is a file that can be read within ``timeout_s`` seconds."""
        if self.path is None:
            return None
        try:
            async with asyncio.timeout(timeout_s):
                saved = await in_thread(_read, self.path)
        except Exception as error:  # noqa: BLE001 - no content of the file may keep the sidecar from starting
            self._on_failure("read", error)
            return None
        return saved if saved and saved.app == self._app else None

    async def save(self, saved: SavedIncarnation) -> None:
        """Replace the file. While a write waits for another, newer content takes its place."""
        if self.path is None:
            return
        waiting, self._newest = self._newest, saved
        if waiting is not None:
            return  # a write waits already: writes must not pile up while the disk hangs
        async with self._writing:
            newest, self._newest = self._newest, None
            try:
                await in_thread(_replace, self.path, _encode(newest))
            except Exception as error:  # noqa: BLE001 - no failure to write may reach the controller
                self._on_failure("write", error)

    async def forget(self) -> None:
        """Remove the file: what starts next is another incarnation."""
        if self.path is not None:
            try:
                await in_thread(partial(self.path.unlink, missing_ok=True))
            except Exception as error:  # noqa: BLE001 - as above
                self._on_failure("removal", error)

    async def settled(self, timeout_s: float) -> None:
        """Wait until earlier writes are on disk, at most ``timeout_s`` seconds."""
        try:
            async with asyncio.timeout(timeout_s), self._writing:
                pass
        except TimeoutError as error:
            self._on_failure("wait", error)


def path_of(directory: str | Path, app: str) -> Path:
    """The path of this app's file in the state directory."""
    name = "".join(char if char.isalnum() or char in "-." else "_" for char in app)
    return Path(directory, f"health-arbiter-{name}.json")


def _read(path: Path) -> SavedIncarnation | None:
    """What it has, None if there is no file. Raises OSError, and ValueError for one that another may have planted."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError(f"{path} is not a regular file")
        # A latch in it takes the container out of service, and no budget is asked.
        if status.st_uid not in {0, os.geteuid()}:
            raise ValueError(f"{path} belongs to user {status.st_uid}, and is not believed")
        if status.st_mode & _WRITABLE_BY_OTHERS:
            raise ValueError(f"{path} can be written by other users, and is not believed")
        return _decode(file.read(SIZE_LIMIT))


def _encode(saved: SavedIncarnation) -> bytes:
    return json.dumps({"format": FORMAT, **asdict(saved)}, indent=1).encode() + b"\n"


def _decode(content: bytes) -> SavedIncarnation:
    """What it has. Raises ``ValueError`` and ``TypeError`` for what a program of another kind has written."""
    fields: dict[str, Any] = json.loads(content)
    if fields["format"] != FORMAT:
        raise ValueError(f"format {fields['format']!r} is not {FORMAT}")
    latch, (holder, part) = fields["latch"], fields["identity"]
    return SavedIncarnation(
        _text(fields["app"]),
        None if fields["app_start"] is None else _text(fields["app_start"]),
        _text(fields["incarnation"]),
        None if latch is None else _latch(**latch),
        None if fields["born"] is None else _number(fields["born"]),
        RandomIdentity(_text(holder), _number(part)),
        _text(fields["socket"]),
    )


def _latch(claim_id: Any, at: Any, reason: Any, lease: Any = "", spent_s: Any = 0.0) -> Latch:
    return Latch(_text(claim_id), _number(at), _text(reason), _text(lease), _number(spent_s))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"takes a text, not {value!r}")
    return value


def _number(value: Any) -> float:
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise TypeError(f"takes a number, not {value!r}")
    return value


def _replace(path: Path, content: bytes) -> None:
    """Write aside, sync, rename, sync the directory: a reader finds the old file or the new one, whole."""
    aside = path.with_suffix(".new")
    # An interrupted write may have left the file, or an attacker: a FIFO would hang, a link would lead elsewhere.
    aside.unlink(missing_ok=True)
    handle = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        while content:
            content = content[os.write(handle, content) :]  # a disk that fills up takes only a part
        os.fsync(handle)
    finally:
        os.close(handle)
    aside.replace(path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
