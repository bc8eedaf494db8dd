"""Runs one command, and ends it with its life, with its lock, or at a signal.

Most starts of the program end before a command, so what a command needs is imported with the command. While it runs
there are no signal handlers: the program waits for signals (sigtimedwait), which never interrupt its code. Linux only.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Self

from .flock import ConcurrencyLimit

if TYPE_CHECKING:
    from collections.abc import Callable
    from subprocess import Popen

    from .concurrency import Lock
    from .exec_options import ExecOptions

_STOPPING: Final = frozenset((signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT))
_PASSED_ON: Final = frozenset((signal.SIGUSR1, signal.SIGUSR2))
_CHECK_S: Final = 1.0
_GROUP_CHECK_S: Final = 0.05
_PROBE_S: Final = 5.0
_PR_SET_PDEATHSIG: Final = 1


# -- signals ------------------------------------------------------------------------------------------------------


class StoppedError(Exception):
    """The signal ``number`` asked this process to end."""

    def __init__(self, number: int) -> None:
        super().__init__(f"signal {number}")
        self.number = number


class Signals:
    """Blocks the signals to this process inside the context, and waits for them. Ignored signals stay ignored."""

    def __init__(self) -> None:
        kept = {number for number in _STOPPING | _PASSED_ON if signal.getsignal(number) != signal.SIG_IGN}
        self._kept = frozenset(kept | {signal.SIGCHLD})
        self.before: set[signal.Signals] = set()

    def __enter__(self) -> Self:
        # The parent may have set it to be ignored; then the kernel would keep no exit code of the command.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self.before = {signal.Signals(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, self._kept)}
        return self

    def __exit__(self, *_: object) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self.before)

    def wait(self, seconds: float) -> int | None:
        """Return the next signal, including SIGCHLD; None if none arrives within ``seconds``."""
        arrived = signal.sigtimedwait(self._kept, max(0.0, seconds))
        return arrived.si_signo if arrived else None

    def sleep(self, seconds: float) -> None:
        """Wait for ``seconds``. Raises StoppedError if a signal asks this process to end."""
        ends_at = time.monotonic() + seconds
        while (left_s := ends_at - time.monotonic()) > 0:
            number = self.wait(left_s)
            if number in _STOPPING:
                raise StoppedError(number)


# -- the command --------------------------------------------------------------------------------------------------


class End(NamedTuple):
    """The end of the command."""

    cause: Literal["itself", "signal", "planned", "lost"]
    code: int  # as in a shell, 128+n for signal n
    was_killed: bool = False


class Supervisor:
    """Runs the command of ``options`` while ``lock`` is held; ends it with its life, with the lock, or at a signal."""

    def __init__(self, options: ExecOptions, lock: Lock, signals: Signals) -> None:
        self._options = options
        self._lock = lock
        self._signals = signals

    def run(self) -> End:
        """Start the command and return once it has ended. Raises OSError when it cannot be started."""
        began_at = time.monotonic()
        process = self._started()
        while (code := process.poll()) is None:
            age_s = time.monotonic() - began_at
            if self._options.is_over(age_s, self._is_busy):
                return self._ended(process, "planned")
            if not self._lock.heartbeat():
                return self._ended(process, "lost")
            number = self._signals.wait(self._next_check_s(age_s))
            if number in _STOPPING:
                return self._ended(process, "signal", number)
            if number in _PASSED_ON:
                _signal(process, number)
        return End("itself", _as_shell(code))

    def _started(self) -> Popen[bytes]:
        from subprocess import Popen  # noqa: PLC0415 - with ctypes 9 ms of each start

        # The command dies with this process, even by SIGKILL, but the command's children do not. So it inherits the
        # lock: as long as any part of it runs, no other main does.
        lock = self._lock if self._options.inherit_lock else None
        inherited = [lock.fileno()] if isinstance(lock, ConcurrencyLimit) else []
        return Popen(  # noqa: S603 - the operator's own command line
            self._options.command,
            env=os.environ
            | {"HEALTH_ARBITER_SLOT": str(self._lock.lock_id), "HEALTH_ARBITER_SLOTS": str(self._lock.max_procs)},
            pass_fds=inherited,
            process_group=0,
            preexec_fn=_dying_with_parent(self._signals),  # noqa: PLW1509 - this process has no threads
        )

    def _is_busy(self, within_s: float) -> bool:
        """Whether ``busy_command`` exits 0. No, if it takes longer than ``within_s`` or 5 s."""
        from subprocess import DEVNULL, TimeoutExpired, run  # noqa: PLC0415 - as in _started

        try:
            done = run(  # noqa: S603 - the operator's own command line
                self._options.busy_command,
                stdin=DEVNULL,
                stdout=DEVNULL,
                stderr=DEVNULL,
                timeout=min(within_s, _PROBE_S),
                check=False,
                preexec_fn=_unblock_signals,
            )
        except (OSError, TimeoutExpired):
            return False
        return done.returncode == 0

    def _next_check_s(self, age_s: float) -> float:
        ends_s = (self._options.lifetime_s, self._options.lifetime_max_s)
        return min((_CHECK_S, *(end_s - age_s for end_s in ends_s if end_s > age_s)))

    def _ended(
        self, process: Popen[bytes], cause: Literal["signal", "planned", "lost"], number: int = signal.SIGTERM
    ) -> End:
        """Send the signal to the whole process group, wait for all of it, and kill what is left after the grace."""
        _signal(process, number)
        _signal(process, signal.SIGCONT)  # a stopped process would not react
        ends_at = time.monotonic() + self._options.grace_s
        while process.poll() is None or _is_alive(process.pid):
            left_s = ends_at - time.monotonic()
            if left_s <= 0:
                _signal(process, signal.SIGKILL)
                return End(cause, _as_shell(process.wait()), was_killed=True)
            again = self._signals.wait(min(left_s, _GROUP_CHECK_S))
            if again in _STOPPING | _PASSED_ON:
                _signal(process, again)
        return End(cause, _as_shell(process.returncode))


def _as_shell(code: int) -> int:
    return code if code >= 0 else 128 - code


def _signal(process: Popen[bytes], number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _is_alive(group: int) -> bool:
    """Whether a process of the group still runs. Reads /proc, because killpg also finds zombies."""
    for stat_file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            # Behind the name in brackets, which may contain anything: state, parent, group (proc(5)).
            state, _, its_group = stat_file.read_bytes().rpartition(b")")[2].split()[:3]
            if int(its_group) == group and state not in b"ZX":
                return True
    return False


def _unblock_signals() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signal.valid_signals())


def _dying_with_parent(signals: Signals) -> Callable[[], None]:
    """Return the function that the forked child calls before it becomes the command."""
    import ctypes  # noqa: PLC0415 - as in Supervisor._started

    prctl = ctypes.CDLL(None, use_errno=True).prctl
    parent, mask = os.getpid(), signals.before

    def prepare() -> None:
        prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != parent:
            os._exit(128 + signal.SIGKILL)  # the parent ended before prctl
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    return prepare
