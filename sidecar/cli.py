"""The command line: ``health-arbiter [run] [flags]``, ``check-config``, and the commands of an engineer.

``run`` forks. The child validates the settings with pydantic, writes them to a pipe and is gone; meanwhile the
parent imports the daemon, reads the pipe and serves. So pydantic costs the daemon neither its 9 MiB for life nor its
100 ms at start, and nothing that the parent runs may import ``sidecar.settings``.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import os
import re
import signal
import sys
import traceback
from collections import namedtuple
from typing import TYPE_CHECKING, NoReturn, cast

from sidecar import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sidecar.settings import Settings

EX_USAGE = 2  # argparse's, and what service managers know as "do not try again"
EX_SOFTWARE = os.EX_SOFTWARE

# What both processes of a run need: imported before the fork it is paid for once.
SHARED = ("asyncio", "dataclasses", "importlib.metadata", "platform", "typing_extensions")

_PROGRAM = "health-arbiter"
_FOR_PEOPLE = (
    *("doctor", "fleet", "why", "hold", "release", "cull", "revive"),
    *("events", "report", "message", "completion"),
)
_COMMANDS = ("run", "check-config", "exec", *_FOR_PEOPLE)
_COMPLETE = "_HEALTH_ARBITER_COMPLETE"
_SWITCHES = ("Default: true.", "Default: false.")
_EPILOG = """\
run           serve, which is what happens without a command
check-config  print the effective settings, and exit
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


def main(argv: Sequence[str] | None = None, serve: Callable[[Settings], int] | None = None) -> int:
    """Run the command line ``argv`` (without the program's name) and return the exit code.

    ``serve`` gets the frozen settings and returns the exit code; without it, it is that of ``sidecar.app``.
    """
    arguments = sys.argv[1:] if argv is None else list(argv)
    try:
        if arguments[:1] == ["exec"]:
            return _execute(arguments[1:])
        if (arguments and arguments[0] in _FOR_PEOPLE) or _COMPLETE in os.environ:
            return _command(arguments)
        if arguments[:1] == ["check-config"] or {"-h", "--help", "--version"} & {*arguments}:
            return _answer(arguments)
        return _run(arguments, serve)
    except KeyboardInterrupt:
        return 0  # stopped before there was anything to stop


class _UsageError(Exception):
    """The command line cannot be read."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _UsageError(message)


def _answer(arguments: list[str]) -> int:
    """Do what needs no daemon, in this process."""
    from sidecar import settings  # noqa: PLC0415 - pydantic, which the parent of a run must not load
    from sidecar.settings import shown  # noqa: PLC0415 - pydantic, which the parent of a run must not load

    def printed(effective: Settings) -> int:
        origins = settings.origins(_flags(arguments), os.environ)
        sys.stdout.write(shown.effective(effective, origins) + "\n")
        return 0

    return with_settings(arguments, printed)


def with_settings(arguments: list[str], use: Callable[[Settings], int]) -> int:
    """Read the settings of a command line and use them; the exit code, which is 2 for what cannot be used."""
    from sidecar import settings  # noqa: PLC0415 - as in _answer

    try:
        effective = settings.load(_flags(arguments), os.environ)
    except _UsageError as error:
        return _refuse([str(error)])
    except settings.SettingsError as error:
        return _refuse(error.problems)
    return use(effective)


def _command(arguments: list[str]) -> int:
    """Do what a person asks for."""
    from sidecar.commands import root  # noqa: PLC0415 - click and rich, and as in _answer

    return root.run(arguments, os.environ)


def _execute(arguments: list[str]) -> int:
    from sidecar.standby import execute  # noqa: PLC0415 - no part of the daemon

    return execute.main(arguments)


def _run(arguments: list[str], serve: Callable[[Settings], int] | None) -> int:
    # Whoever started us may ignore SIGCHLD, and then the child's exit code could not be had; and as process 1
    # of a container a SIGTERM without a handler would not stop us while starting.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    gc.disable()  # until the daemon serves: nothing of what is imported will ever be garbage
    for name in SHARED:
        importlib.import_module(name)
    source, sink = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(source)
        _be_the_child(arguments, sink)
    os.close(sink)
    serve = serve or _app()
    with os.fdopen(source, "rb") as pipe:
        answer = pipe.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code < 0 or (code == 0 and not answer):
        _complain(f"the process that reads the settings ended early (exit code {code})")
        return EX_SOFTWARE
    return code or serve(_frozen(answer))


def _app() -> Callable[[Settings], int]:
    from sidecar import slim  # noqa: PLC0415 - aiohttp, to be loaded while the child validates

    slim.import_aiohttp()
    from sidecar.app import main as serve  # noqa: PLC0415 - as above

    return serve


def _be_the_child(arguments: list[str], sink: int) -> NoReturn:
    """Write the settings to ``sink`` and exit, whatever happens: nothing of the parent may run here."""
    code = EX_SOFTWARE
    try:
        code = _hand_over(arguments, sink)
    except BrokenPipeError:
        pass  # the parent was stopped meanwhile
    except Exception:  # noqa: BLE001 - a bug of ours
        # Without the exception's text, which may repeat a password.
        kind, _, trace = sys.exc_info()
        traceback.print_tb(trace)
        _complain(f"reading the settings failed: {kind.__name__ if kind else ''}")
    finally:
        os._exit(code)


def _hand_over(arguments: list[str], sink: int) -> int:
    def written(effective: Settings) -> int:
        with os.fdopen(sink, "w") as pipe:
            json.dump(effective.model_dump(), pipe)
        return 0

    return with_settings(arguments, written)


def _frozen(answer: bytes) -> Settings:
    """Rebuild the child's settings without its class, which would bring pydantic in: same names, same values."""
    values = json.loads(answer)
    return cast("Settings", namedtuple("Settings", values)(**values))  # noqa: PYI024 - the names come in at run time


def _flags(arguments: list[str]) -> dict[str, str]:
    """Return the flags by setting name, all as text."""
    if arguments[:1] and arguments[0] in _COMMANDS:
        arguments = arguments[1:]
    flags, rest = _parser().parse_known_args(arguments)
    if rest:
        raise _UsageError(_stray(rest))
    return _own_lifetime(vars(flags))


def _own_lifetime(flags: dict[str, str]) -> dict[str, str]:
    """Beside a run lock a lifetime is that of the sidecar, as in any command under a lock; else it is the app's."""
    if "run_lock" in flags and "lifetime" in flags and "run_lifetime" not in flags:
        flags["run_lifetime"] = flags.pop("lifetime")
    return flags


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        _PROGRAM,
        usage=f"{_PROGRAM} [{' | '.join(_COMMANDS)}] [flags]",
        description="Run the sidecar, or one of the commands round it.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    parser.add_argument("--version", action="version", version=f"{_PROGRAM} {__version__}")
    for flag, help_text in flag_table():
        is_switch = help_text.endswith(_SWITCHES)
        how: dict[str, str] = {"nargs": "?", "const": "true"} if is_switch else {}
        parser.add_argument(flag, metavar="VALUE", help=help_text.replace("%", "%%"), **how)  # type: ignore[arg-type]
    return parser


def flag_table() -> list[tuple[str, str]]:
    """Every setting as a flag, and what it is for."""
    from sidecar.settings import table  # noqa: PLC0415 - as in _answer

    return [
        (
            "--" + variable.removeprefix("ARBITER_").lower().replace("_", "-"),
            f"{description} Default: {default}." if default else description,
        )
        for variable, default, description in table()
    ]


def _stray(rest: list[str]) -> str:
    """Say what cannot be used, but never a value: it may be a password behind a misspelt flag."""
    from sidecar.settings.sources import nearest  # noqa: PLC0415 - as in _answer

    for word in rest:
        if match := re.match(r"--[A-Za-z0-9_-]+", word):
            known = ["--help", "--version", *(flag for flag, _ in flag_table())]
            return f"{match[0]}: unknown flag{nearest(match[0], known)}"
    hint = nearest(rest[0], () if rest[0] in _COMMANDS else _COMMANDS)
    return f"a word that is no flag{hint or '; first comes the command, then --name value'}"


def _refuse(problems: list[str]) -> int:
    for problem in problems:
        _complain(problem)
    return EX_USAGE


def _complain(line: str) -> None:
    sys.stderr.write(f"{_PROGRAM}: {line}\n")
