"""Locks in files: a directory has a file for each holder, who holds the file's flock.

The kernel ties the lock to the open file, not to the process (flock(2)). It is free once the last descriptor is closed:
SIGKILL frees it, a forked child keeps it as long as it lives, and an executed program does not get it (close-on-exec).
So ``release`` closes the file: LOCK_UN would release the lock for all processes that share it. The files stay, because
with a removed file two processes could hold the same lock.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

from .concurrency import Lock, LockError

MOUNTS: Final = Path("/proc/self/mountinfo")
"""The mount points of Linux, with the types of their file systems (proc(5))."""

# There, flock works on one machine only, or is a lock of the process and ends with any close in that process.
_REMOTE: Final = frozenset(("nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "fuse.sshfs", "fuse.s3fs"))
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
# Only the owner may open it: a process that can read a file can also lock it.
_MODE: Final = 0o600
_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class ConcurrencyLimit(Lock):
    """One of the locks ``<name>.<id>.lock`` in ``directory``, with ids from 1 to ``max_procs``.

    The lock lasts as long as its process and the children that the process has forked. Two objects in one process
    exclude each other like two processes. Raises ValueError for a wrong name or number. The directory is made (0700) if
    it is missing, and checked, when a lock is first acquired.
    """

    def __init__(self, directory: Path | str, name: str = "main", max_procs: int = 1) -> None:
        if not _NAME.fullmatch(name):
            raise ValueError("the name of a lock has letters, digits, _ . and -, at most 100")
        super().__init__(max_procs)
        self._directory = Path(directory)
        self._name = name
        self._is_checked = False
        self._lock_id: int | None = None
        self._descriptor: int | None = None

    @property
    def lock_id(self) -> int | None:
        """As ``Lock.lock_id``."""
        return self._lock_id

    def path(self, lock_id: int) -> Path:
        """Return the file of an id. It contains the PID of its last holder, which may have ended."""
        return self._directory / f"{self._name}.{lock_id}.lock"

    def fileno(self) -> int:
        """Return the descriptor of the lock: a process that inherits it holds the lock too. ValueError without one."""
        if self._descriptor is None:
            raise ValueError("no lock is held")
        return self._descriptor

    def acquire(self) -> int | None:
        """As ``Lock.acquire``. Raises LockError when the directory or a file in it cannot carry locks."""
        if self._lock_id is None:
            if not self._is_checked:
                _check_directory(self._directory)
                self._is_checked = True
            for lock_id in range(1, self.max_procs + 1):
                descriptor = _locked(self.path(lock_id))
                if descriptor is not None:
                    self._lock_id, self._descriptor = lock_id, descriptor
                    break
        return self._lock_id

    def wait(self) -> int | None:
        """Take the first lock as soon as its holder has ended, and return it: the kernel wakes this process.

        None if the file was removed meanwhile, by which no lock is held: wait again. Raises LockError as ``acquire``.
        """
        if self.acquire() is None:
            descriptor = _locked(self.path(1), waits=True)
            if descriptor is not None:
                self._lock_id, self._descriptor = 1, descriptor
        return self._lock_id

    def heartbeat(self) -> bool:
        """Return whether the lock is still held. Releases it once its file was removed or replaced."""
        if self._lock_id is not None and not self.is_in_place():
            self.release()
        return self.is_held

    def is_in_place(self) -> bool:
        """Whether other processes find the file of the lock. Reads the disk."""
        return self._lock_id is not None and _is_at(self.fileno(), self.path(self._lock_id))

    def release(self) -> None:
        """Close the file. A child that was forked meanwhile keeps the lock."""
        descriptor, self._descriptor, self._lock_id = self._descriptor, None, None
        if descriptor is not None:
            os.close(descriptor)


def _locked(path: Path, *, waits: bool = False) -> int | None:
    """Return a descriptor that holds the lock of ``path``, with the PID written in; None if another holds it.

    With ``waits`` it waits for the other's end, and None means that the file was removed meanwhile.
    """
    try:
        descriptor = os.open(path, _FLAGS, _MODE)
    except OSError as error:
        raise LockError(f"{path}: the lock file cannot be opened: {error.strerror}") from None
    is_locked = False
    try:
        is_locked = _lock(descriptor, path, waits=waits)
    finally:
        if not is_locked:
            os.close(descriptor)
    if not is_locked:
        return None
    _write_pid(descriptor)
    return descriptor


def _write_pid(descriptor: int) -> None:
    """Write the PID, for people. On a full disk the lock works without it."""
    with suppress(OSError):
        os.ftruncate(descriptor, os.pwrite(descriptor, b"%d\n" % os.getpid(), 0))


def _lock(descriptor: int, path: Path, *, waits: bool) -> bool:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise LockError(f"{path}: is not a plain file")
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if waits else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise LockError(f"{path}: cannot be locked: {error.strerror}") from None
    # The file may have been removed between the two calls; the next attempt finds the new one.
    return _is_at(descriptor, path)


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether the open file is still the one at ``path``."""
    try:
        there = path.stat(follow_symlinks=False)
    except OSError:
        return False
    return os.path.samestat(os.fstat(descriptor), there)


def _made(directory: Path) -> None:
    """Make the directory if only it is missing. In a parent in which every user may rename it, LockError."""
    if directory.is_symlink() or directory.exists() or not directory.parent.is_dir():
        return
    mode = directory.parent.stat().st_mode
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        text = f"{directory}: is missing, and is not made: every user may rename it"
        raise LockError(f"{text}, because {directory.parent} is writable for all and has no sticky bit")
    directory.mkdir(mode=0o700, exist_ok=True)  # another process may have made it meanwhile


def _check_directory(directory: Path) -> None:
    try:
        _made(directory)
        place = directory.resolve(strict=True)
        kind = file_system(place)
    except (OSError, RuntimeError) as error:  # RuntimeError: links that form a circle, until Python 3.13
        reason = getattr(error, "strerror", None) or "its links lead nowhere"
        raise LockError(f"{directory}: the directory of the locks cannot be used: {reason}") from None
    if not place.is_dir():
        raise LockError(f"{directory}: the directory of the locks is not a directory")
    if kind in _REMOTE:
        raise LockError(f"{directory}: is on {kind}, where locks do not hold: use a local directory")


def file_system(place: Path) -> str:
    """Return the type of the file system of ``place``, found by its device; "" if unknown. Raises OSError."""
    device = place.stat().st_dev
    try:
        lines = MOUNTS.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return ""
    # Number, parent, device, root, mount point, options, ... " - " type (proc(5)).
    wanted = f"{os.major(device)}:{os.minor(device)}"
    return next((line.partition(" - ")[2].split()[0] for line in lines if line.split()[2:3] == [wanted]), "")
