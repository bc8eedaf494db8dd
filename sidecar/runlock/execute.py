"""Runs a command under a lock, at most k at a time, with planned ends and standbys: ``health-arbiter exec``.

The program is meant to be started again and again, as by cron: it takes the run lock and runs the command, waits as
standby, or ends. Linux only.
"""

from __future__ import annotations

import math
import os
import sys
from typing import TYPE_CHECKING, Final

from . import durations
from .concurrency import Lock, LockError, WithStandby
from .exec_options import INTERVAL_S, PROGRAM, ExecOptions, contradictions, options_of
from .flock import ConcurrencyLimit
from .supervisor import Signals, StoppedError, Supervisor

if TYPE_CHECKING:
    from collections.abc import Sequence

EX_USAGE: Final = 2
_SIGNALLED: Final = 128


def main(words: Sequence[str] | None = None, program: str = PROGRAM) -> int:
    """Run a command line and return the exit code of ``execute``."""
    try:
        options = options_of(sys.argv[1:] if words is None else words, program)
    except SystemExit as end:
        return int(end.code or 0)
    return execute(options)


def execute(options: ExecOptions) -> int:
    """Run the command if its lock is free, and return an exit code of ``exec_options.EPILOG``.

    It writes problems to standard error.
    """
    if problems := contradictions(options):
        return _complain(EX_USAGE, *problems)
    try:
        main_lock = _lock(options, options.name, options.max_procs)
        standby_lock = _lock(options, f"{options.name}-standby", options.standbys or 1)
    except (ValueError, ImportError) as error:  # redis-py is optional
        return _complain(EX_USAGE, str(error))
    except OSError as error:
        return _complain(EX_USAGE, f"--redis-file {options.redis_file}: cannot be read: {error.strerror}")
    try:
        if not options.standbys and main_lock.acquire() is None:
            return 0
        return _run(options, main_lock, standby_lock)
    except LockError as error:
        return _complain(os.EX_CANTCREAT, str(error))


def _lock(options: ExecOptions, name: str, max_procs: int) -> Lock:
    if options.redis_file is None:
        return ConcurrencyLimit(options.run_lock or "", name, max_procs)
    from .leases import Leases  # noqa: PLC0415 - redis-py is optional

    # In a file, because every user can read the arguments, and the command inherits the environment.
    return Leases(options.redis_file.read_text().strip(), name, max_procs, ttl_s=options.ttl_s)


def _run(options: ExecOptions, main_lock: Lock, standby_lock: Lock) -> int:
    with Signals() as signals:
        limit = WithStandby(
            main_lock,
            standby_lock,
            retries=math.ceil(options.standby_for_s / INTERVAL_S) if options.standby_for_s else None,
            interval_s=INTERVAL_S,
            process_name="exec-standby",
            sleep=signals.sleep,
        )
        try:
            if limit.acquire() is None:
                return 0
        except StoppedError as stopped:
            return _SIGNALLED + stopped.number
        with main_lock:
            return _supervised(options, main_lock, signals)


def _supervised(options: ExecOptions, lock: Lock, signals: Signals) -> int:
    chance = int.from_bytes(os.urandom(4)) / 2**32  # the module random would take 4 ms of each start
    try:
        end = Supervisor(options.with_jitter(chance), lock, signals).run()
    except OSError as error:
        return _complain(os.EX_UNAVAILABLE, f"{options.command[0]}: cannot be started: {error.strerror}")
    if end.was_killed:
        _complain(0, f"the command was still there {durations.write(options.grace_s)} after SIGTERM, and was killed")
    if end.cause == "lost":
        why = "Redis did not renew it" if options.redis_file else "its file was removed or replaced"
        return _complain(os.EX_TEMPFAIL, f"the lock was lost: {why}")
    return 0 if end.cause == "planned" else end.code


def _complain(code: int, *problems: str) -> int:
    for problem in problems:
        sys.stderr.write(f"health-arbiter exec: {problem}\n")
    return code
