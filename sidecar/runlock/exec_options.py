"""The options of ``exec``: its command line, when a main ends, and whether mains follow one another without a gap.

The relations are those of Booking.com's "Writing Advanced Daemons That Aren't Daemons". If a process is started every
C seconds, a main lives L and a standby waits S, then some main always runs if S > L > C. With k mains at a time the
condition is S/k > L/k > C, since each of the k needs a successor within L. With more standbys than mains the last one
waits for several ends.
"""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

from . import durations
from .durations import write

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PROGRAM: Final = "health-arbiter-exec"
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

INTERVAL_S: Final = 0.2
"""Time between two attempts of a standby."""

_JITTER: Final = 0.1
"""Part of a lifetime by which it may be shorter, so that mains that started together do not end together."""

_NOTICE_S: Final = 6.0
"""A lost lock is noticed within this time: a second, and five for a busy command."""


class ExecOptions(NamedTuple):
    """What to run, and how; the help says what each option is. Times are in seconds."""

    command: Sequence[str]
    run_lock: Path | None = None
    redis_file: Path | None = None
    ttl_s: float = 30.0
    name: str = "exec"
    max_procs: int = 1  # k
    standbys: int = 0
    standby_for_s: float = 0.0  # S
    every_s: float = 60.0  # C
    lifetime_s: float = 0.0  # L
    lifetime_max_s: float = 0.0
    grace_s: float = 10.0
    busy_command: Sequence[str] = ()
    inherit_lock: bool = True

    @property
    def longest_wait_s(self) -> float:
        """How long the last of the standbys waits for a main to end."""
        longest_s = max(self.lifetime_s, self.lifetime_max_s) + self.grace_s
        return longest_s * max(1.0, self.standbys / self.max_procs)

    def with_jitter(self, chance: float) -> ExecOptions:
        """The same with a lifetime that is shorter by up to a tenth. ``chance`` is random, 0 to 1.

        L/k > C holds for each lifetime. Mains that end within C still leave a gap, unless each has a standby.
        """
        least_s = min(self.lifetime_s, self.max_procs * self.every_s)
        shortest_s = max(self.lifetime_s * (1 - _JITTER), least_s)
        return self._replace(lifetime_s=self.lifetime_s - chance * (self.lifetime_s - shortest_s))

    def is_over(self, age_s: float, is_busy: Callable[[float], bool]) -> bool:
        """Whether a main of this age ends. ``is_busy`` is asked at the end, with the seconds it may still take."""
        left_s = self.lifetime_max_s - age_s
        return 0 < self.lifetime_s <= age_s and not (left_s > 0 and is_busy(left_s))


# -- the command line ---------------------------------------------------------------------------------------------


class _Parser(argparse.ArgumentParser):
    """Says in one line what is wrong, without the usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n")


def parser(program: str = PROGRAM) -> argparse.ArgumentParser:
    """Return the parser of the words in front of ``--``; its values are fields of ``ExecOptions``, and ``standby``."""
    made = _Parser(
        program,
        usage="%(prog)s --run-lock DIR [OPTIONS] -- COMMAND...",
        description="Run a command under a lock, with a planned end and standbys. One command runs at a time, or K; "
        "without a free lock there is nothing to do.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )

    def add(flag: str, text: str, kind: Callable[[str], object], metavar: str = "TIME") -> None:
        field = flag.removeprefix("--").replace("-", "_") + ("_s" if metavar == "TIME" else "")
        default = ExecOptions._field_defaults[field]
        shown = write(default) if metavar == "TIME" else default
        text = text if default in (None, ()) else f"{text} (default: {shown})"
        made.add_argument(flag, dest=field, type=kind, default=default, metavar=metavar, help=text)

    add("--run-lock", "Local directory for the lock files; made if missing.", Path, "DIR")
    add("--redis-file", "File with the URL of a Redis, which has the locks of many machines.", Path, "FILE")
    add("--ttl", "Time after which Redis gives away the lock of a machine that is gone.", _duration)
    add("--name", "Name of the lock: another for each command in the same DIR.", str, "NAME")
    add("--max-procs", "Maximum number of commands at once.", int, "K")
    add("--standbys", "Maximum number of standbys, which wait for a free lock.", int, "M")
    made.add_argument("--standby", action="store_true", help="One standby at least: the same as --standbys 1.")
    add("--standby-for", "Maximum time that a standby waits, S; 0: for ever.", _duration)
    add("--every", "Time between two starts of this program, as by cron, C.", _duration)
    add(
        "--lifetime",
        "Age at which the command is ended, L, or up to a tenth sooner, so that not all end together; 0: never.",
        _duration,
    )
    add("--lifetime-max", "Maximum age of a command that is busy; 0: as others.", _duration)
    add("--busy-command", "The command is busy while WORDS exit 0, as in: 'test -e FILE'.", _words, "WORDS")
    add("--grace", "Time between SIGTERM and SIGKILL.", _duration)
    kept = "Free the lock with this program, even if something that the command started still runs."
    made.add_argument("--no-inherit-lock", dest="inherit_lock", action="store_false", help=kept)
    return made


def options_of(words: Sequence[str], program: str = PROGRAM) -> ExecOptions:
    """Read a command line. Raises SystemExit once argparse has printed the help, or what is wrong with the words."""
    end = words.index("--") if "--" in words else len(words)
    reader = parser(program)
    given = vars(reader.parse_args(words[:end]))
    if not words[end + 1 :]:
        reader.error("the command is missing: give it behind --, as in: -- /usr/bin/worker --fast")
    if given.pop("standby"):
        given["standbys"] = max(1, given["standbys"])
    return ExecOptions(words[end + 1 :], **given)


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


# -- contradictions -----------------------------------------------------------------------------------------------


def contradictions(options: ExecOptions) -> list[str]:
    """Return a sentence for each contradiction, with the options as the command line writes them."""
    lifetime_s, lifetime_max_s, busy = options.lifetime_s, options.lifetime_max_s, options.busy_command
    ends_s = options.grace_s + _NOTICE_S
    is_free_early = options.redis_file and options.ttl_s * 3 / 5 <= ends_s
    too_short = f"--ttl {write(options.ttl_s)}: others get a lost lock after 3/5 of it, and the command"
    rows = (
        (bool(options.run_lock) == bool(options.redis_file), "give either --run-lock or --redis-file"),
        (options.every_s == 0, "--every must be more than 0"),
        (options.max_procs < 1, "--max-procs must be at least 1"),
        (options.standbys < 0, "--standbys must not be negative"),
        (options.standby_for_s and not options.standbys, "--standby-for needs --standby"),
        (is_free_early, f"{too_short} may go on for {write(ends_s)} (--grace and 6s)"),
        (lifetime_max_s and not lifetime_s, "--lifetime-max needs a --lifetime"),
        (bool(lifetime_max_s) != bool(busy), "--lifetime-max and --busy-command need one another"),
        (0 < lifetime_max_s <= lifetime_s, "--lifetime-max must be more than --lifetime"),
    )
    return [sentence for is_so, sentence in rows if is_so] or _gaps(options)


def _gaps(options: ExecOptions) -> list[str]:
    """Return a sentence with the numbers for each relation that does not hold."""
    k, lifetime_s, wait_s = options.max_procs, options.lifetime_s, options.standby_for_s
    starts = f"the next is started only every C = {write(options.every_s)}"
    waits = f"a standby waits S = {write(wait_s)}, and"
    ends = f"L/k = {write(lifetime_s)} / {k} = {write(lifetime_s / k)}" if k > 1 else f"L = {write(lifetime_s)}"
    relation = "S/k > L/k > C" if k > 1 else "S > L > C"
    sentences = []
    if 0 < lifetime_s <= k * options.every_s:
        sentences.append(f"a main ends every {ends}, and {starts}")
    if lifetime_s and 0 < wait_s <= options.longest_wait_s:
        sentences.append(f"{waits} the last one waits up to L = {write(options.longest_wait_s)} for a main to end")
    elif 0 < wait_s <= k * options.every_s:
        sentences.append(f"{waits} {starts}, for k = {k}")
    return [f"{relation} does not hold: {sentence}" for sentence in sentences]
