"""The command line: ``health-arbiter [run] [flags]``, ``check-config``, and the commands of an engineer.

``run`` forks. The child validates the settings with pydantic, writes them to a pipe and is gone; meanwhile the
parent imports the daemon, reads the pipe and serves. So pydantic costs the daemon neither its 9 MiB for life nor its
100 ms at start, and nothing that the parent runs may import ``sidecar.config.settings``.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import sys
import traceback
from collections import namedtuple
from typing import TYPE_CHECKING, NoReturn, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sidecar.config.settings import Settings

EX_USAGE = 2  # argparse's, and what service managers know as "do not try again"
EX_SOFTWARE = os.EX_SOFTWARE

# What both processes of a run need: imported before the fork it is paid for once.
SHARED = (
    *("asyncio", "dataclasses", "hashlib", "importlib.metadata", "platform", "typing_extensions", "uuid"),
    *("sidecar.core.types", "sidecar.config.redis_urls"),
)

PROGRAM = "health-arbiter"
FOR_PEOPLE = (
    *("doctor", "fleet", "why", "hold", "release", "cull", "revive"),
    *("events", "report", "message", "completion"),
)
COMMANDS = ("run", "check-config", "exec", *FOR_PEOPLE)
_COMPLETE = "_HEALTH_ARBITER_COMPLETE"


def main(argv: Sequence[str] | None = None, serve: Callable[[Settings], int] | None = None) -> int:
    """Run the command line ``argv`` (without the program's name) and return the exit code.

    ``serve`` gets the frozen settings and returns the exit code; without it, it is that of ``sidecar.app.daemon``.
    """
    arguments = sys.argv[1:] if argv is None else list(argv)
    try:
        if arguments[:1] == ["exec"]:
            return _execute(arguments[1:])
        if (arguments and arguments[0] in FOR_PEOPLE) or _COMPLETE in os.environ:
            return _command(arguments)
        if arguments[:1] == ["check-config"] or {"-h", "--help", "--version"} & {*arguments}:
            return _answer(arguments)
        return _run(arguments, serve)
    except KeyboardInterrupt:
        return 0  # stopped before there was anything to stop


def _answer(arguments: list[str]) -> int:
    """Do what needs no daemon, in this process."""
    from sidecar.cli import flags  # noqa: PLC0415 - pydantic, which the parent of a run must not load
    from sidecar.config import settings, shown  # noqa: PLC0415 - as above

    is_json = arguments[0] == "check-config" and "--json" in arguments
    if is_json:
        arguments = [word for word in arguments if word != "--json"]

    def printed(effective: Settings) -> int:
        write = shown.as_json if is_json else shown.effective
        sys.stdout.write(write(effective, settings.origins(flags.read(arguments), os.environ)) + "\n")
        return 0

    return with_settings(arguments, printed)


def with_settings(arguments: list[str], use: Callable[[Settings], int]) -> int:
    """Read the settings of a command line and use them; the exit code, which is 2 for what cannot be used."""
    from sidecar.cli import flags  # noqa: PLC0415 - as in _answer
    from sidecar.config import settings  # noqa: PLC0415 - as in _answer

    try:
        effective = settings.load(flags.read(arguments), os.environ)
    except flags.UsageError as error:
        return _refuse([str(error)])
    except settings.SettingsError as error:
        return _refuse(error.problems)
    return use(effective)


def _command(arguments: list[str]) -> int:
    """Do what a person asks for."""
    from sidecar.cli import application  # noqa: PLC0415 - click and rich, and as in _answer

    return application.run(arguments, os.environ)


def _execute(arguments: list[str]) -> int:
    from sidecar.runlock import execute  # noqa: PLC0415 - no part of the daemon

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
    from sidecar.app import lean_import  # noqa: PLC0415 - aiohttp, to be loaded while the child validates

    lean_import.import_aiohttp()
    from sidecar.app.daemon import main as serve  # noqa: PLC0415 - as above

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


def _refuse(problems: list[str]) -> int:
    for problem in problems:
        _complain(problem)
    return EX_USAGE


def _complain(line: str) -> None:
    sys.stderr.write(f"{PROGRAM}: {line}\n")
