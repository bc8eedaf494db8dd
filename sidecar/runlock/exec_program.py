"""The command line of ``health-arbiter exec``, and of ``health-arbiter-exec`` on machines without the sidecar."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NoReturn

from . import durations
from .execute import execute
from .options import ExecOptions

EPILOG: Final = """\
Exit codes:
  0        nothing to do (others hold the locks), a standby that waited long
           enough, a planned end, or the command's own 0
  1..255   the command's own, when it ended by itself or after a signal that
           was passed on to it
  128+n    signal n ended the command, or this program while it waited
  2        the options cannot be used, or their times contradict one another
  69       the command cannot be started
  73       the lock cannot be had: the directory cannot be used, or is on a
           network file system; Redis does not answer
  75       the lock was lost (its file was removed, Redis did not renew it), so
           the command was ended

The command finds its slot, from 1, in HEALTH_ARBITER_SLOT, and K in
HEALTH_ARBITER_SLOTS. It is ended with SIGTERM, and with SIGKILL after the
grace. Durations: 10s, 500ms, 5m, 1h; a bare number is seconds."""


class _Parser(argparse.ArgumentParser):
    """Says in one line what is wrong, without the usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n")


def parser(program: str = "health-arbiter-exec") -> argparse.ArgumentParser:
    """Return the parser of the words in front of ``--``; its values are the fields of ``ExecOptions``."""
    found = _Parser(
        program,
        usage="%(prog)s --run-lock DIR [OPTIONS] -- COMMAND...",
        description="Run a command under a lock, with a planned end and standbys. One command runs at a time, or K; "
        "without a free lock there is nothing to do.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = found.add_argument

    def time(flag: str, default: str, text: str) -> None:
        name = f"{flag.removeprefix('--').replace('-', '_')}_s"
        add(flag, dest=name, type=_duration, default=default, metavar="TIME", help=f"{text} (default: {default})")

    add("--run-lock", type=Path, metavar="DIR", help="Local directory for the lock files; made if missing.")
    add(
        "--redis-file",
        type=Path,
        metavar="FILE",
        help="File with the URL of a Redis, in which the locks of many machines are, instead of --run-lock.",
    )
    time("--ttl", "30s", "Time after which Redis gives away the lock of a machine that is gone.")
    add("--name", default="exec", help="Name of the lock: another for each command in the same DIR. (default: exec)")
    add("--max-procs", type=int, default=1, metavar="K", help="Maximum number of commands at once. (default: 1)")
    add("--standby", action="store_true", help="If all locks are taken, wait as standby, unless another one waits.")
    add("--standbys", type=int, default=0, metavar="M", help="Maximum number of standbys; --standby is one.")
    time("--standby-for", "0s", "Maximum time that a standby waits, S; 0: for ever.")
    time("--interval", "200ms", "Time between two attempts of a standby.")
    time("--every", "60s", "Time between two starts of this program, as by cron, C.")
    time("--lifetime", "0s", "Age at which the command is ended, L; 0: never.")
    add(
        "--lifetime-jitter",
        type=float,
        default=0.1,
        metavar="PART",
        help="Part of the lifetime by which it is shorter at random, so that not all end together. (default: 0.1)",
    )
    time("--lifetime-max", "0s", "Maximum age of a command that is busy; 0: as others.")
    add("--busy-file", type=Path, metavar="FILE", help="The command is busy while FILE exists.")
    add(
        "--busy-command",
        type=_words,
        default=(),
        metavar="WORDS",
        help="The command is busy while WORDS, without a shell, exit 0.",
    )
    time("--grace", "10s", "Time between SIGTERM and SIGKILL.")
    add(
        "--no-inherit-lock",
        dest="inherit_lock",
        action="store_false",
        help="Free the lock with this program, even if something that the command started still runs.",
    )
    return found


def options_of(words: Sequence[str], program: str = "health-arbiter-exec") -> ExecOptions:
    """Read a command line. Raises SystemExit once argparse has printed the help, or what is wrong with the words."""
    end = words.index("--") if "--" in words else len(words)
    reader = parser(program)
    given = reader.parse_args(words[:end])
    if not words[end + 1 :]:
        reader.error("the command is missing: give it behind --, as in: -- /usr/bin/worker --fast")
    return ExecOptions(words[end + 1 :], **vars(given))


def main(words: Sequence[str] | None = None, program: str = "health-arbiter-exec") -> int:
    """Run a command line and return the exit code of ``execute``."""
    try:
        options = options_of(sys.argv[1:] if words is None else words, program)
    except SystemExit as end:
        return int(end.code or 0)
    return execute(options)


def _duration(text: str) -> float:
    try:
        return durations.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} {error}") from None


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error).lower()) from None
