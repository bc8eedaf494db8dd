"""The flags of a command line, and its help. ``argparse`` and pydantic are for who reads them, not for who serves."""

from __future__ import annotations

import argparse
import re
from typing import NoReturn

from sidecar import __version__
from sidecar.cli.main import COMMANDS, PROGRAM
from sidecar.config.settings import table
from sidecar.config.sources import former, nearest

_SWITCHES = ("Default: true.", "Default: false.")
_EPILOG = """\
run           serve, which is what happens without a command
check-config  print the effective settings, with --json for a program, and exit
exec          run a command under a lock, with a planned end and a standby
doctor        look at the Redis servers, the sidecar on this machine and what is round it, and tell what is wrong
fleet         show the fleet, live with --watch
why           tell why this container, or another, stands as it does
hold          freeze culls, of the service or of one container
release       end that
cull          cull the container here, if the fleet allows it
revive        have a culled container up again
events        print what happened, and with --follow what happens
report        add up what happened, as text, JSON or a page
message       try the messages for people
completion    print what makes a shell complete all this

Each of them explains itself: health-arbiter hold --help.

Every flag is also an environment variable (--error-limit is ARBITER_ERROR_LIMIT) and a key of the TOML file
(error_limit). Flags win over the environment, the environment over the file, the file over the preset.
A switch such as --standby needs no value. Beside --run-lock, --lifetime is that of the sidecar (--run-lifetime);
without, it is the age at which the app is retired.
Durations: 10s, 500ms, 5m, 1h; a bare number is seconds."""


class UsageError(Exception):
    """The command line cannot be read."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def read(arguments: list[str]) -> dict[str, str]:
    """Return the flags by setting name, all as text."""
    if arguments[:1] and arguments[0] in COMMANDS:
        arguments = arguments[1:]
    flags, rest = _parser().parse_known_args(arguments)
    if rest:
        raise UsageError(_stray(rest))
    return _own_lifetime(vars(flags))


def _own_lifetime(flags: dict[str, str]) -> dict[str, str]:
    """Beside a run lock a lifetime is that of the sidecar, as in any command under a lock; else it is the app's."""
    if "run_lock" in flags and "lifetime" in flags and "run_lifetime" not in flags:
        flags["run_lifetime"] = flags.pop("lifetime")
    return flags


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        PROGRAM,
        usage=f"{PROGRAM} [{' | '.join(COMMANDS)}] [flags]",
        description="Run the sidecar, or one of the commands round it.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    for flag, help_text in flag_table():
        is_switch = help_text.endswith(_SWITCHES)
        how: dict[str, str] = {"nargs": "?", "const": "true"} if is_switch else {}
        parser.add_argument(flag, metavar="VALUE", help=help_text.replace("%", "%%"), **how)  # type: ignore[arg-type]
    return parser


def flag_table() -> list[tuple[str, str]]:
    """Every setting as a flag, and what it is for."""
    return [
        (
            _flag(variable.removeprefix("ARBITER_").lower()),
            f"{description} Default: {default}." if default else description,
        )
        for variable, default, description in table()
    ]


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _stray(rest: list[str]) -> str:
    """Say what cannot be used, but never a value: it may be a password behind a misspelt flag."""
    for word in rest:
        if match := re.match(r"--[A-Za-z0-9_-]+", word):
            known = ["--help", "--version", *(flag for flag, _ in flag_table())]
            moved = former(match[0].removeprefix("--").replace("-", "_"), _flag)
            return f"{match[0]}: {moved or f'unknown flag{nearest(match[0], known)}'}"
    hint = nearest(rest[0], () if rest[0] in COMMANDS else COMMANDS)
    return f"a word that is no flag{hint or '; first comes the command, then --name value'}"
