"""Who serves and who waits: of the sidecars that share a run lock one is main, one its standby, and others leave.

Only who holds the lock ``standby`` may take the lock ``main``: so nobody comes between a main that ends and the one
that waits for that, and who finds ``standby`` taken knows that there is nothing to do.
"""

from __future__ import annotations

import gc
import importlib
import math
import os
import stat
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sidecar.config import addresses
from sidecar.net.sockets import bound_tcp
from sidecar.runlock.flock import FlockSlots, LockError
from sidecar.takeover import handover
from sidecar.takeover.inherited_sockets import Inheritance
from sidecar.telemetry.log import logger

if TYPE_CHECKING:
    import socket

    from sidecar.config.settings import Settings
    from sidecar.net.sockets import Inherited

TCP: Final = ("public_listen", "local_listen", "agent_listen", "page_listen")
PATHS: Final = ("socket", "statsd_socket")
NAMES: Final = (*TCP, *PATHS, "statsd_listen")
"""The settings whose sockets outlive a main."""

EXIT_USAGE: Final = 2
LONGEST_PATH: Final = 107
IDLE_S: Final = 5.0
HURRY_S: Final = 1.0
HURRY_POLL_S: Final = 0.001
LINK_S: Final = 0.1
GONE_S: Final = 0.1
"""What a main that is killed has open is closed one after the other, its lock maybe before its end of our link."""
PATIENCE: Final = 5
PATIENCE_S: Final = 0.02
"""Who starts holds ``standby`` for a moment, and is then main: so long is waited to tell one from the other."""


@dataclass
class Succession:
    """What a main begins with: the lock that makes it the main, and what it was given by the one before.

    ``over``: the latches that the mains before saw end, once the state was read. ``past`` as ``Inheritance`` has it.
    """

    directory: Path
    lock: FlockSlots
    sockets: Inherited = field(default_factory=dict)
    connections: list[tuple[str, socket.socket]] = field(default_factory=list)
    state: tuple[Any, float] | None = None
    past: tuple[bytes, float] | None = None
    over: list[str] = field(default_factory=list)
    is_second: bool = False

    def is_in_place(self) -> bool:
        """Whether who starts now finds that we are the main. Asks the disk."""
        return self.lock.is_in_place() and Path(handover.path(self.directory)).exists()

    def retake(self) -> None:
        """Have the lock in the file that others find, made anew if it was removed. ``LockError`` when it cannot be."""
        if not self.lock.heartbeat():
            _directory(self.directory)
            if self.lock.acquire() is None:
                raise LockError(f"{self.directory}: the lock file was replaced, and another has its lock")


def run(settings: Settings, serve: Callable[[Succession], None]) -> int:
    """Serve as main, or wait to be it, or find that both are there; the exit code.

    2 when the directory cannot be used, 0 otherwise. What ``serve`` raises is raised.
    """
    try:
        directory = _directory(Path(settings.run_lock))
        succession = _succession(settings, directory)
    except LockError as error:
        sys.stderr.write(f"health-arbiter: ARBITER_RUN_LOCK: {error}\n")
        return EXIT_USAGE
    if succession is not None:
        try:
            serve(succession)
        finally:
            succession.lock.release()
    return 0


def shared(settings: Settings) -> dict[str, str]:
    """What the settings say of each of the sockets that outlive a main."""
    return {name: str(getattr(settings, name)) for name in NAMES}


def app(settings: Settings) -> str:
    """Whom the settings are for."""
    return f"{settings.service}/{settings.instance}"


def _directory(directory: Path) -> Path:
    """The directory of the locks, made if it is not there; ``LockError`` unless it is ours alone to write in."""
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
        found = directory.stat()
    except OSError as error:
        raise LockError(f"{directory}: {error.strerror}") from None
    if not stat.S_ISDIR(found.st_mode):
        raise LockError(f"{directory}: is not a directory")
    if found.st_uid != os.geteuid():
        raise LockError(f"{directory}: belongs to user {found.st_uid}, we are {os.geteuid()}")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise LockError(f"{directory}: others may write in it (mode {stat.S_IMODE(found.st_mode):o}), it must be 700")
    if len(os.fsencode(handover.path(directory))) > LONGEST_PATH:
        raise LockError(f"{directory}: {handover.NAME} in it must be at most {LONGEST_PATH} bytes long")
    return directory


def _succession(settings: Settings, directory: Path) -> Succession | None:
    """How we come to be the main; None when we do not."""
    turn, lock = FlockSlots(directory, "standby"), FlockSlots(directory, "main")
    if not _is_next(turn):
        logger.info("main and standby are there: nothing to do")
        return None
    try:
        if lock.acquire() is not None:
            return Succession(directory, lock)
        if not settings.standby:
            logger.info("a main is there: nothing to do")
            return None
        return _heir(settings, directory, turn, lock)
    finally:
        turn.release()


def _is_next(turn: FlockSlots) -> bool:
    for _ in range(PATIENCE):
        if turn.acquire() is not None:
            return True
        time.sleep(PATIENCE_S)
    return False


def _heir(settings: Settings, directory: Path, turn: FlockSlots, lock: FlockSlots) -> Succession | None:
    """Wait as standby for the end of the main, ready to go on at once."""
    _load(settings)
    inheritance = Inheritance(directory, shared(settings))
    if not _wait(settings, directory, inheritance, turn, lock):
        inheritance.close()
        logger.info("waited long enough as standby" if turn.is_held else "the lock file of the standby was removed")
        return None
    inheritance.hear_out()
    _leave_lost_paths(settings, inheritance.sockets)
    state = None
    with suppress(ValueError, LookupError, TypeError, RecursionError):  # then the journal knows
        state = inheritance.state()
    return Succession(
        directory, lock, inheritance.sockets, inheritance.connections, state, inheritance.past, is_second=True
    )


def _wait(settings: Settings, directory: Path, inheritance: Inheritance, turn: FlockSlots, lock: FlockSlots) -> bool:
    """Wait until the lock is ours; False after long enough, or when another may wait since ``turn`` was lost."""
    ends_at = time.monotonic() + (settings.standby_for or math.inf)
    hurry_until = -math.inf
    while not _is_main(directory, lock, inheritance):
        now = time.monotonic()
        if now >= ends_at or _has_lost(turn, inheritance):
            return False
        if inheritance.is_linked and not inheritance.is_told:
            inheritance.wait(min(IDLE_S, ends_at - now))
            hurry_until = time.monotonic() + HURRY_S
        elif now < hurry_until:
            time.sleep(HURRY_POLL_S)
        elif inheritance.link():
            if inheritance.app not in ("", app(settings)):
                logger.warning("the main is of another app", extra={"fields": {"app": inheritance.app}})
            _open_others(settings, inheritance.sockets)
            inheritance.say_ready()
            logger.info("standby is ready", extra={"fields": {"inherits": ", ".join(inheritance.sockets)}})
        else:
            time.sleep(LINK_S)
    return True


def _has_lost(turn: FlockSlots, inheritance: Inheritance) -> bool:
    """Whether another may wait for the main in our place. If the main has gone as well, we are all there is."""
    if not inheritance.is_linked or turn.heartbeat():
        return False
    inheritance.hear_out()
    return inheritance.is_linked


def _is_main(directory: Path, lock: FlockSlots, inheritance: Inheritance) -> bool:
    """Whether we are the main now. A lock that is free while the main lives is one whose file was removed."""
    inheritance.hear_out()
    try:
        lock.acquire()
    except LockError:
        if not inheritance.is_linked:
            _directory(directory)  # removed; and nobody else is left to answer
            lock.acquire()
    ends_at = time.monotonic() + GONE_S if lock.is_held else -math.inf
    while inheritance.is_linked and not inheritance.is_told and (left_s := ends_at - time.monotonic()) > 0:
        inheritance.wait(left_s)
    if inheritance.is_linked and not inheritance.is_told:
        lock.release()
    return lock.is_held


def _open_others(settings: Settings, sockets: dict[str, list[socket.socket]]) -> None:
    """Open what the main has elsewhere or not at all, while there is time; what fails is tried when it is our turn."""
    for name, at in shared(settings).items():
        if at in ("", addresses.OFF) or name in sockets:
            continue
        logger.warning("not the main's: opened anew", extra={"fields": {"setting": name, "at": at}})
        if name in TCP:
            with suppress(OSError, UnicodeError):
                sockets[name] = bound_tcp(*addresses.split(at))


def _leave_lost_paths(settings: Settings, sockets: dict[str, list[socket.socket]]) -> None:
    """Let go of unix sockets that nobody can find any more: they are opened anew."""
    for name in PATHS:
        if name in sockets and not Path(getattr(settings, name)).exists():
            for opened in sockets.pop(name):
                opened.close()


def _load(settings: Settings) -> None:
    """Import now what else would be imported when it is first needed: then there is no time."""
    wanted: Mapping[str, object] = {
        "sidecar.takeover.main_process": True,
        "sidecar.takeover.past": True,
        "sidecar.store.redis": settings.redis_url,
        "sidecar.store.memory": not settings.redis_url,
        "sidecar.inputs.datagram": settings.statsd_socket or settings.statsd_listen != addresses.OFF,
        "sidecar.inputs.scrape": settings.scrape_url,
        "sidecar.inputs.wanted_series": settings.scrape_url,
        "sidecar.net.tls": settings.tls_cert,
    }
    for module, is_wanted in wanted.items():
        if is_wanted:
            importlib.import_module(module)
    gc.collect()
    gc.freeze()
