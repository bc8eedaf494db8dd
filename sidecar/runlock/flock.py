"""Locks in files: of ``slots`` files in a directory, who holds the flock of one holds that slot.

The kernel keeps the lock with the open file, not with the process (flock(2)): it is free once the last descriptor is
closed, so SIGKILL frees it, a forked child keeps it for as long as it lives, and a program that is executed does not
get it (close-on-exec). That is why it is released by closing: LOCK_UN would take it from everybody who shares it. The
files stay: who unlinks one lets two hold the same slot.
"""

from __future__ import annotations

import errno
import fcntl
import math
import os
import re
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

MOUNTS: Final = Path("/proc/self/mountinfo")
"""Where Linux tells which file system a directory is on (proc(5))."""

# They keep flock to one machine, or turn it into locks that belong to a process and end with any close in it.
_REMOTE: Final = frozenset(("nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "fuse.sshfs", "fuse.s3fs"))
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
# Only the owner may open it: whoever can read a file can also lock it.
_MODE: Final = 0o600
_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class LockError(Exception):
    """The lock can be neither had nor refused: a sentence for a person says why."""


class FlockSlots:
    """One of ``slots`` locks ``<name>.<slot>.lock`` in ``directory``; the slots are numbered from 1.

    Two of these in one process exclude one another as those of two processes do. Raises ValueError for a name or
    count that cannot be; the directory is looked at when the lock is first acquired.
    """

    beat_within_s: Final = math.inf

    def __init__(self, directory: Path, name: str, slots: int = 1, *, mounts: Path = MOUNTS) -> None:
        if not _NAME.fullmatch(name):
            raise ValueError("the name of a lock is of letters, digits, _ . and -, at most 100")
        if slots < 1:
            raise ValueError("there must be at least one slot")
        self._directory = Path(directory)
        self._name = name
        self._slots = slots
        self._mounts = mounts
        self._is_fit = False
        self._slot: int | None = None
        self._descriptor: int | None = None

    @property
    def is_held(self) -> bool:
        """Whether a slot is held, as far as this process did: it does not look at the files."""
        return self._descriptor is not None

    @property
    def slot(self) -> int | None:
        """The slot that is held."""
        return self._slot

    def path(self, slot: int) -> Path:
        """Return the file of a slot; the PID inside is that of its last holder, who may be gone."""
        return self._directory / f"{self._name}.{slot}.lock"

    def fileno(self) -> int:
        """Return the descriptor that holds the lock: whoever inherits it holds the lock too. ValueError without."""
        if self._descriptor is None:
            raise ValueError("no slot is held")
        return self._descriptor

    def acquire(self) -> int | None:
        """Take the first free slot and return its number, at once; None when all are held. A held one is returned.

        Raises LockError when the directory or a file in it cannot carry locks.
        """
        if self._slot is None:
            if not self._is_fit:
                _refuse_unfit(self._directory, self._mounts)
                self._is_fit = True
            for slot in range(1, self._slots + 1):
                descriptor = _locked(self.path(slot))
                if descriptor is not None:
                    self._slot, self._descriptor = slot, descriptor
                    break
        return self._slot

    def heartbeat(self) -> bool:
        """Whether the lock is still worth something: False, and released, once its file was removed or replaced."""
        if self._slot is not None and not self.is_in_place():
            self.release()
        return self.is_held

    def is_in_place(self) -> bool:
        """Whether others find the file whose lock is held. Asks the disk."""
        return self._slot is not None and _is_at(self.fileno(), self.path(self._slot))

    def release(self) -> None:
        """Close the file. A child that was forked meanwhile holds the lock on."""
        descriptor, self._descriptor, self._slot = self._descriptor, None, None
        if descriptor is not None:
            os.close(descriptor)


def _locked(path: Path) -> int | None:
    """Return a descriptor with the lock of ``path``, the PID written in; None when another has it."""
    try:
        descriptor = os.open(path, _FLAGS, _MODE)
    except OSError as error:
        raise LockError(f"{path}: the lock file cannot be opened: {error.strerror}") from None
    try:
        if _lock(descriptor, path):
            _sign(descriptor)
            held, descriptor = descriptor, -1
            return held
    except OSError as error:
        raise LockError(f"{path}: cannot be locked: {error.strerror}") from None
    finally:
        if descriptor >= 0:
            os.close(descriptor)
    return None


def _sign(descriptor: int) -> None:
    """Write our PID, for people: the lock holds without it, so a full disk is no reason not to have it."""
    with suppress(OSError):
        os.ftruncate(descriptor, os.pwrite(descriptor, b"%d\n" % os.getpid(), 0))


def _lock(descriptor: int, path: Path) -> bool:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise LockError(f"{path}: is not a plain file")
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EINTR):
            return False
        raise
    # Somebody may have removed the file between the two calls; the next attempt finds the new one.
    return _is_at(descriptor, path)


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether the open file is still the one that others will find under ``path``."""
    try:
        there = path.stat(follow_symlinks=False)
    except OSError:
        return False
    return os.path.samestat(os.fstat(descriptor), there)


def _refuse_unfit(directory: Path, mounts: Path) -> None:
    try:
        place = directory.resolve(strict=True)
    except (OSError, RuntimeError) as error:  # RuntimeError: links that lead to themselves, until Python 3.13
        reason = getattr(error, "strerror", None) or "its links lead nowhere"
        raise LockError(f"{directory}: the directory of the locks cannot be used: {reason}") from None
    if not place.is_dir():
        raise LockError(f"{directory}: the directory of the locks is not a directory")
    kind = file_system(place, mounts)
    if kind in _REMOTE:
        raise LockError(f"{directory}: is on {kind}, where a lock does not hold as it should: take a local directory")


def file_system(place: Path, mounts: Path = MOUNTS) -> str:
    """Return the type of the file system that the absolute path ``place`` is on, "" when nothing tells."""
    try:
        lines = mounts.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return ""
    found = ((_unescaped(line), line.partition(" - ")[2].partition(" ")[0]) for line in lines)
    # The longest mount point leads there, and of several mounted over one another the last.
    return max(
        ((len(point.parts), number, kind) for number, (point, kind) in enumerate(found) if place.is_relative_to(point)),
        default=(0, 0, ""),
    )[2]


def _unescaped(line: str) -> Path:
    """Return the mount point of a line, in which blanks, tabs, newlines and backslashes stand as octal numbers."""
    fields = line.split(" ")
    point = fields[4] if len(fields) > 4 else "?"  # noqa: PLR2004 - the fifth field, proc(5)
    return Path(re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), point))
