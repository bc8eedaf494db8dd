"""Decides whether this sidecar is the main, its standby, or not needed, by the locks ``main`` and ``standby``.

A sidecar must hold ``standby`` to take ``main``. So a third sidecar cannot become the main before the standby does, and
a sidecar that finds ``standby`` taken is not needed.
"""

from __future__ import annotations

import gc
import importlib
import math
import os
import stat
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sidecar.config import addresses as syntax
from sidecar.net.sockets import bind_tcp
from sidecar.runlock.flock import FlockSlots, LockError
from sidecar.takeover import handover
from sidecar.takeover.handover_client import HandoverClient
from sidecar.telemetry.log import logger

if TYPE_CHECKING:
    import socket

    from sidecar.config.slices import RunLockConfig
    from sidecar.net.sockets import Inherited

UNIX_SOCKETS: Final = ("socket", "statsd_socket")
TCP_SOCKETS: Final = ("public_listen", "local_listen", "agent_listen", "page_listen")
SHARED_SOCKETS: Final = (*TCP_SOCKETS, *UNIX_SOCKETS, "statsd_listen")
"""The settings whose sockets are handed over."""

EXIT_USAGE: Final = 2
MAX_PATH_BYTES: Final = 107
READ_INTERVAL_S: Final = 5.0
FAST_RETRY_FOR_S: Final = 1.0
FAST_RETRY_S: Final = 0.001
CONNECT_RETRY_S: Final = 0.1
MAIN_CLOSES_S: Final = 0.1
"""The kernel closes the files of a killed main in any order: its lock may be free before its connection ends."""
STANDBY_TRIES: Final = 5
STANDBY_RETRY_S: Final = 0.02
"""A sidecar that starts as main holds the lock ``standby`` for a moment: try for longer than that."""


@dataclass
class Takeover:
    """The run lock of this main, and what the previous main handed over.

    ``addresses`` and ``app`` are those of this sidecar. ``state``: the result of ``HandoverClient.state``.
    ``ended_latches``: latches that ended under earlier mains, as their state names them. ``is_successor``: another main
    ran before.
    """

    directory: Path
    lock: FlockSlots
    addresses: Mapping[str, str] = field(default_factory=dict)
    app: str = ""
    sockets: Inherited = field(default_factory=dict)
    connections: list[tuple[str, socket.socket]] = field(default_factory=list)
    state: tuple[Any, float] | None = None
    ended_latches: list[str] = field(default_factory=list)
    is_successor: bool = False

    def is_in_place(self) -> bool:
        """Whether other sidecars find the lock file and the socket at their paths. Reads the disk."""
        return self.lock.is_in_place() and Path(handover.socket_path(self.directory)).exists()

    def retake(self) -> None:
        """Take the lock again after its file was removed. ``LockError`` if another sidecar has it now."""
        if not self.lock.heartbeat():
            usable_directory(self.directory)
            if self.lock.acquire() is None:
                raise LockError(f"{self.directory}: the lock file was replaced, and another sidecar holds its lock")


class Election:
    """Takes the run lock or waits for it.

    ``addresses``: the address of each of ``SHARED_SOCKETS``. ``modules``: imported while the standby waits, because the
    takeover has no time for imports.
    """

    def __init__(
        self, config: RunLockConfig, *, app: str, addresses: Mapping[str, str], modules: Sequence[str] = ()
    ) -> None:
        self._config = config
        self._app = app
        self._addresses = addresses
        self._modules = modules
        self._directory = Path(config.run_lock)

    def run(self, serve: Callable[[Takeover], object]) -> int:
        """Call ``serve`` once this sidecar is the main; return at once if it is not needed.

        Returns the exit code: 2 if the directory of the locks cannot be used, else 0. Raises what ``serve`` raises.
        """
        try:
            usable_directory(self._directory)
            takeover = self._elected()
        except LockError as error:
            sys.stderr.write(f"health-arbiter: ARBITER_RUN_LOCK: {error}\n")
            return EXIT_USAGE
        if takeover is not None:
            try:
                serve(takeover)
            finally:
                takeover.lock.release()
        return 0

    def _elected(self) -> Takeover | None:
        standby_lock, main_lock = FlockSlots(self._directory, "standby"), FlockSlots(self._directory, "main")
        if not _acquired(standby_lock):
            logger.info("main and standby are there: nothing to do")
            return None
        try:
            if main_lock.acquire() is not None:
                return Takeover(self._directory, main_lock, self._addresses, self._app)
            if not self._config.standby:
                logger.info("a main is there: nothing to do")
                return None
            return self._succeeded(standby_lock, main_lock)
        finally:
            standby_lock.release()

    def _succeeded(self, standby_lock: FlockSlots, main_lock: FlockSlots) -> Takeover | None:
        """Wait as standby until the main has ended; None if this sidecar gives up."""
        for module in self._modules:
            importlib.import_module(module)
        gc.collect()
        gc.freeze()
        client = HandoverClient(self._directory, self._addresses)
        if not self._wait(client, standby_lock, main_lock):
            client.close()
            is_late = standby_lock.is_held
            logger.info("waited long enough as standby" if is_late else "the lock file of the standby was removed")
            return None
        client.read_all()
        self._drop_lost_sockets(client.sockets)
        state = None
        with suppress(ValueError, LookupError, TypeError, RecursionError):  # the state file is read instead
            state = client.state()
        return Takeover(
            self._directory,
            main_lock,
            self._addresses,
            self._app,
            client.sockets,
            client.connections,
            state,
            is_successor=True,
        )

    def _wait(self, client: HandoverClient, standby_lock: FlockSlots, main_lock: FlockSlots) -> bool:
        """Wait for the lock of the main; False once the time is over or another standby has replaced this one."""
        ends_at = time.monotonic() + (self._config.standby_for or math.inf)
        retry_fast_until = -math.inf
        while not self._is_main(main_lock, client):
            now = time.monotonic()
            if now >= ends_at or has_lost_place(standby_lock, client):
                return False
            if client.is_connected and not client.is_our_turn:
                client.wait(min(READ_INTERVAL_S, ends_at - now))
                retry_fast_until = time.monotonic() + FAST_RETRY_FOR_S
            elif now < retry_fast_until:
                time.sleep(FAST_RETRY_S)
            elif client.connect():
                self._become_ready(client)
            else:
                time.sleep(CONNECT_RETRY_S)
        return True

    def _become_ready(self, client: HandoverClient) -> None:
        if client.app not in ("", self._app):
            logger.warning("the main is of another app", extra={"fields": {"app": client.app}})
        self._open_missing(client.sockets)
        client.say_ready()
        logger.info("standby is ready", extra={"fields": {"inherits": ", ".join(client.sockets)}})

    def _is_main(self, main_lock: FlockSlots, client: HandoverClient) -> bool:
        """Try to take the lock. While the main lives, a free lock only means that its file was removed."""
        client.read_all()
        try:
            main_lock.acquire()
        except LockError:
            if not client.is_connected:
                usable_directory(self._directory)  # the directory was removed, and no other sidecar runs
                main_lock.acquire()
        ends_at = time.monotonic() + MAIN_CLOSES_S if main_lock.is_held else -math.inf
        while client.is_connected and not client.is_our_turn and (left_s := ends_at - time.monotonic()) > 0:
            client.wait(left_s)
        if client.is_connected and not client.is_our_turn:
            main_lock.release()
        return main_lock.is_held

    def _open_missing(self, sockets: dict[str, list[socket.socket]]) -> None:
        """Open the sockets that the main lacks or has at another address; a failed one is opened at the takeover."""
        for name, at in self._addresses.items():
            if at in ("", syntax.OFF) or name in sockets:
                continue
            logger.warning("not the main's: opened anew", extra={"fields": {"setting": name, "at": at}})
            if name in TCP_SOCKETS:
                with suppress(OSError, UnicodeError):
                    sockets[name] = bind_tcp(*syntax.split(at))

    def _drop_lost_sockets(self, sockets: dict[str, list[socket.socket]]) -> None:
        """Close unix sockets whose path was removed: the new main opens them again."""
        for name in UNIX_SOCKETS:
            if name in sockets and not Path(self._addresses[name]).exists():
                for opened in sockets.pop(name):
                    opened.close()


def usable_directory(directory: Path) -> None:
    """Create the directory of the locks if it is missing. ``LockError`` unless only this user can write in it.

    Others may write in its parent, such as the tasks of an allocation in ``alloc/tmp`` of Nomad (mode 0777): they can
    move the directory, which the main notices, and cannot put files into it. One that they have made is refused.
    """
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
        found = directory.stat()
    except OSError as error:
        raise LockError(f"{directory}: {error.strerror}") from None
    if not stat.S_ISDIR(found.st_mode):
        raise LockError(f"{directory}: is not a directory")
    if found.st_uid != os.geteuid():
        raise LockError(f"{directory}: belongs to user {found.st_uid}, the sidecar runs as {os.geteuid()}")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        text = f"{directory}: others may write in it (mode {stat.S_IMODE(found.st_mode):o}), it must be 700"
        raise LockError(f"{text}; the sidecar makes one that is missing, such as {directory}/lock")
    if len(os.fsencode(handover.socket_path(directory))) > MAX_PATH_BYTES:
        raise LockError(f"{directory}: {handover.SOCKET_NAME} in it must be at most {MAX_PATH_BYTES} bytes long")


def has_lost_place(standby_lock: FlockSlots, client: HandoverClient) -> bool:
    """Whether another standby may have replaced this one. False if the main has ended: this sidecar has to serve."""
    if not client.is_connected or standby_lock.heartbeat():
        return False
    client.read_all()
    return client.is_connected


def _acquired(standby_lock: FlockSlots) -> bool:
    for _ in range(STANDBY_TRIES):
        if standby_lock.acquire() is not None:
            return True
        time.sleep(STANDBY_RETRY_S)
    return False
