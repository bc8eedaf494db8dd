"""``health-arbiter exec ... -- command``: one command at a time, or k, with planned ends and a standby.

Meant to be started again and again, as by cron: it takes the run lock and runs the command, or waits as standby, or
leaves. The exit codes are in ``_EPILOG``. Linux; a light program: what it needs is loaded as it is needed.
"""

from __future__ import annotations

import argparse
import math
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sidecar.runlock import durations
from sidecar.runlock.concurrency import ConcurrencyLimit, WithStandby
from sidecar.runlock.flock import LockError
from sidecar.runlock.lifetimes import Life, Pattern, contradictions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sidecar.runlock.supervise import Signals

EX_USAGE: Final = 2
_SIGNALLED: Final = 128
_PROGRAM: Final = "health-arbiter exec"
_EPILOG: Final = """\
Exit codes:
  0        nothing to do (others hold the locks), a standby that waited long enough, a planned end, or the command's 0
  1..255   the command's own, when it ended by itself or after a signal that was passed on to it
  128+n    signal n ended the command, or us while we waited
  2        the command line cannot be used, or its times contradict one another
  69       the command cannot be started
  73       the lock cannot be had: no such directory, not allowed, a network file system
  75       the lock was lost (somebody removed its file), so the command was ended

The command finds its slot, from 1, in HEALTH_ARBITER_SLOT. It is ended with SIGTERM, and SIGKILL after the grace.
Durations: 10s, 500ms, 5m, 1h; a bare number is seconds."""


class Orders(argparse.Namespace):
    """The command line, read; times in seconds, 0 for never or for ever."""

    run_lock: Path
    name: str
    max_procs: int
    standby: bool
    standby_for: float
    interval: float
    every: float
    lifetime: float
    lifetime_max: float
    grace: float
    busy_file: Path | None
    busy_command: list[str]
    inherit_lock: bool
    command: list[str]


def main(arguments: Sequence[str]) -> int:
    """Do what the arguments behind ``exec`` say, and return the exit code. Exits by itself for usage and --help."""
    orders = _read(list(arguments))
    try:
        main_lock = ConcurrencyLimit(orders.run_lock, name=orders.name, max_procs=orders.max_procs)
        standby_lock = ConcurrencyLimit(orders.run_lock, name=f"{orders.name}-standby")
    except ValueError as error:
        return _complain(EX_USAGE, str(error))
    if problems := _contradictions(orders):
        return _complain(EX_USAGE, *problems)
    try:
        return _run(orders, main_lock, standby_lock)
    except LockError as error:
        return _complain(os.EX_CANTCREAT, str(error))


def _run(orders: Orders, main_lock: ConcurrencyLimit, standby_lock: ConcurrencyLimit) -> int:
    if not orders.standby and main_lock.acquire() is None:
        return 0  # before anything else is loaded: this is what most starts come to
    from sidecar.runlock import supervise  # noqa: PLC0415 - as above

    with supervise.Signals() as signals:
        limit = WithStandby(
            main_lock,
            standby_lock,
            retries=math.ceil(orders.standby_for / orders.interval) if orders.standby_for else None,
            interval_s=orders.interval,
            process_name="exec-standby",
            sleep=signals.sleep,
        )
        try:
            if limit.acquire() is None:
                return 0
        except supervise.StoppedError as stopped:
            return _SIGNALLED + stopped.number
        with main_lock:
            return _supervised(orders, main_lock, signals)


def _supervised(orders: Orders, lock: ConcurrencyLimit, signals: Signals) -> int:
    from sidecar.runlock import supervise  # noqa: PLC0415 - as in _run

    supervisor = supervise.Supervisor(
        lock,
        signals,
        life=Life(orders.lifetime, orders.lifetime_max),
        busy=supervise.Busy(orders.busy_file, orders.busy_command),
        grace_s=orders.grace,
    )
    try:
        end = supervisor.run(orders.command, inherit_lock=orders.inherit_lock)
    except OSError as error:
        return _complain(os.EX_UNAVAILABLE, f"{orders.command[0]}: cannot be started: {error.strerror}")
    if end.was_killed:
        _complain(0, f"the command was still there {durations.write(orders.grace)} after SIGTERM, and was killed")
    if end.cause == "lost":
        return _complain(os.EX_TEMPFAIL, "the lock was lost: its file was removed or replaced")
    return 0 if end.cause == "planned" else end.code


# -- the command line -----------------------------------------------------------------------------------------------


def _read(arguments: list[str]) -> Orders:
    """Exits with EX_USAGE and a sentence for what cannot be read."""
    place = arguments.index("--") if "--" in arguments else len(arguments)
    parser = _parser()
    orders, rest = parser.parse_known_args(arguments[:place], namespace=Orders())
    orders.command = arguments[place + 1 :]
    if stray := next((word for word in rest if word.startswith("-")), ""):
        parser.error(f"{stray.partition('=')[0]}: unknown flag")
    if rest or not orders.command:
        parser.error("give the command behind --, as in: -- /usr/bin/worker --fast")
    return orders


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        _PROGRAM,
        usage=f"{_PROGRAM} --run-lock DIR [options] -- command ...",
        description="Run a command under a lock, if it is free: one at a time or k, with a planned end and a standby.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    time: dict[str, Any] = {"metavar": "TIME", "type": _duration, "default": 0.0}
    add("--run-lock", metavar="DIR", type=Path, required=True, help="local directory for the lock files; has to exist")
    add("--name", default="exec", help="name of the lock: another for each command in the same DIR (default: exec)")
    add("--max-procs", metavar="K", type=int, default=1, help="so many run at once (default: 1)")
    add("--standby", action="store_true", help="if all run, wait as standby, unless another does")
    add("--standby-for", **time, help="so long a standby waits, S (default: for ever)")
    add("--interval", **time | {"default": 0.2}, help="so often a standby tries (default: 200ms)")
    add("--every", **time | {"default": 60.0}, help="so often cron starts this, C (default: 60s)")
    add("--lifetime", **time, help="end the command at this age, L (default: never)")
    add("--lifetime-max", **time, help="let it live up to this age while it is busy")
    add("--busy-file", metavar="FILE", type=Path, help="the command is busy while this file exists")
    add(
        "--busy-command", metavar="WORDS", type=shlex.split, default=[], help="... while this, without a shell, exits 0"
    )
    add("--grace", **time | {"default": 10.0}, help="so long after SIGTERM comes SIGKILL (default: 10s)")
    add(
        "--no-inherit-lock",
        dest="inherit_lock",
        action="store_false",
        help="free the lock with us, even should something of the command still run",
    )
    return parser


def _duration(text: str) -> float:
    try:
        return durations.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} {error}") from None


def _contradictions(orders: Orders) -> list[str]:
    is_busy_known = bool(orders.busy_file or orders.busy_command)
    rows = (
        (orders.interval == 0, "--interval must be more than 0"),
        (orders.every == 0, "--every must be more than 0"),
        (orders.standby_for and not orders.standby, "--standby-for is for a --standby"),
        (orders.lifetime_max and not orders.lifetime, "--lifetime-max needs a --lifetime"),
        (orders.lifetime_max and not is_busy_known, "--lifetime-max needs --busy-file or --busy-command"),
        (is_busy_known and not orders.lifetime_max, "--busy-file and --busy-command need a --lifetime-max"),
        (0 < orders.lifetime_max <= orders.lifetime, "--lifetime-max must be more than --lifetime"),
    )
    pattern = Pattern(
        every_s=orders.every,
        lifetime_s=orders.lifetime,
        longest_s=max(orders.lifetime, orders.lifetime_max) + orders.grace,
        has_standby=orders.standby,
        standby_for_s=orders.standby_for,
        slots=orders.max_procs,
    )
    return [sentence for is_so, sentence in rows if is_so] or contradictions(pattern)


def _complain(code: int, *problems: str) -> int:
    for problem in problems:
        sys.stderr.write(f"{_PROGRAM}: {problem}\n")
    return code
