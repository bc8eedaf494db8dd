"""``exec``: any command under a run lock. It has to start quickly: cron starts it every minute on every machine."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from sidecar.cli.parameters import DURATION, Command
from sidecar.runlock.execute import ExecOptions, execute

F = TypeVar("F", bound=Callable[..., Any])

_EPILOG: Final = """\
\b
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

The command finds its slot, from 1, in HEALTH_ARBITER_SLOT, and K in HEALTH_ARBITER_SLOTS. It is ended with SIGTERM, and
with SIGKILL after the grace.
Durations: 10s, 500ms, 5m, 1h; a bare number is seconds."""


class _ExecCommand(Command):
    """A command whose own options end at ``--``; the rest is what it runs."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        place = args.index("--") if "--" in args else len(args)
        command = args[place + 1 :]
        rest = super().parse_args(ctx, args[:place])
        if not command and not ctx.resilient_parsing:
            raise click.UsageError("the command is missing: give it behind --, as in: -- /usr/bin/worker --fast")
        ctx.params["command"] = command
        return rest


def _words(_ctx: click.Context, param: click.Parameter, value: str) -> list[str]:
    try:
        return shlex.split(value)
    except ValueError as error:
        raise click.BadParameter(str(error).lower(), param=param) from None


def _time(flag: str, default: str, text: str) -> Callable[[F], F]:
    """An option with a duration, whose value is ``FLAG_s``."""
    name = f"{flag.removeprefix('--').replace('-', '_')}_s"
    return click.option(flag, name, type=DURATION, default=default, metavar="TIME", help=text)


@click.command("exec", cls=_ExecCommand, options_metavar="--run-lock DIR [OPTIONS] -- COMMAND...", epilog=_EPILOG)
@click.option(
    "--run-lock", type=Path, metavar="DIR", default=None, help="Local directory for the lock files; made if missing."
)
@click.option(
    "--redis-file",
    type=Path,
    metavar="FILE",
    default=None,
    help="File with the URL of a Redis, in which the locks of many machines are, instead of --run-lock.",
)
@_time("--ttl", "30s", "Time after which Redis gives away the lock of a machine that is gone.")
@click.option("--name", default="exec", help="Name of the lock: another for each command in the same DIR.")
@click.option("--max-procs", type=int, default=1, metavar="K", help="Maximum number of commands at once.")
@click.option("--standby", is_flag=True, help="If all locks are taken, wait as standby, unless another one waits.")
@click.option("--standbys", type=int, default=0, metavar="M", help="Maximum number of standbys; --standby is one.")
@_time("--standby-for", "0", "Maximum time that a standby waits, S; 0: for ever.")
@_time("--interval", "200ms", "Time between two attempts of a standby.")
@_time("--every", "60s", "Time between two starts of this program, as by cron, C.")
@_time("--lifetime", "0", "Age at which the command is ended, L; 0: never.")
@click.option(
    "--lifetime-jitter",
    type=float,
    default=0.1,
    metavar="PART",
    help="Part of the lifetime by which it is shorter at random, so that not all end together.",
)
@_time("--lifetime-max", "0", "Maximum age of a command that is busy; 0: as others.")
@click.option("--busy-file", type=Path, default=None, metavar="FILE", help="The command is busy while FILE exists.")
@click.option(
    "--busy-command",
    default="",
    show_default=False,
    callback=_words,
    metavar="WORDS",
    help="... while WORDS, without a shell, exit 0.",
)
@_time("--grace", "10s", "Time between SIGTERM and SIGKILL.")
@click.option(
    "--no-inherit-lock",
    "inherit_lock",
    is_flag=True,
    default=True,
    flag_value=False,
    show_default=False,
    help="Free the lock with this program, even if something that the command started still runs.",
)
def exec(**options: Any) -> int:  # noqa: A001 - the name of the command
    """Run a command under a lock, with a planned end and standbys.

    One command runs at a time, or K; without a free lock there is nothing to do.
    """
    return execute(ExecOptions(**options))
