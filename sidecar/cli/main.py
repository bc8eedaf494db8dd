"""The entry point of ``health-arbiter``. This module has only ``run``; click handles all other commands.

``run`` forks. The child reads the command line with click, validates the settings with pydantic, writes them to a pipe
and ends; meanwhile the parent imports the daemon, reads the pipe and serves. So the two libraries cost the daemon
neither their 11 MiB for life nor their 110 ms at start, and nothing that the parent runs may import them.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NoReturn

from sidecar.cli.exit_codes import EXIT_BUG
from sidecar.cli.terminal import COMPLETE, complain

if TYPE_CHECKING:
    from sidecar.config.settings_model import Settings
    from sidecar.config.slices import Config

SHARED: Final = (
    *("asyncio", "dataclasses", "hashlib", "importlib.metadata", "platform", "typing_extensions", "uuid"),
    *("sidecar.core.types", "sidecar.config.redis_urls", "sidecar.config.slices"),
)
"""Modules that both processes of a run need: before the fork an import costs once."""

_ANSWERED: Final = ("-h", "--help", "--version")


def main(argv: Sequence[str] | None = None, serve: Callable[[Config], int] | None = None) -> int:
    """Run the command line ``argv`` (without the program's name) and return the exit code.

    ``serve`` gets the configuration and returns the exit code; without it, it is that of ``sidecar.app.daemon``.
    """
    arguments = sys.argv[1:] if argv is None else list(argv)
    if not arguments or (arguments[0].startswith("-") and arguments[0] not in _ANSWERED):
        arguments.insert(0, "run")
    try:
        if arguments[0] == "run" and COMPLETE not in os.environ and not {*_ANSWERED} & {*arguments}:
            return _run(arguments, serve)
        from sidecar.cli import application  # noqa: PLC0415 - click, which the parent of a run must not load

        return application.run(arguments, os.environ)
    except KeyboardInterrupt:
        return 0  # nothing was running yet


def _run(arguments: list[str], serve: Callable[[Config], int] | None) -> int:
    # If the parent process ignores SIGCHLD, so does this one, and then the child's exit code is lost. As process 1 of a
    # container this process would ignore a SIGTERM without a handler.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    gc.disable()  # until the daemon serves: nothing of what is imported will ever be garbage
    for name in SHARED:
        importlib.import_module(name)
    source, sink = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(source)
        _run_child(arguments, sink)
    os.close(sink)
    serve = serve or _app()
    with os.fdopen(source, "rb") as pipe:
        answer = pipe.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code < 0 or (code == 0 and not answer):
        complain(f"the process that reads the settings ended early (exit code {code})")
        return EXIT_BUG
    from sidecar.config.slices import config_of  # noqa: PLC0415 - only the parent of a run needs it

    return code or serve(config_of(json.loads(answer)))


def _app() -> Callable[[Config], int]:
    from sidecar.app import lean_import  # noqa: PLC0415 - aiohttp, to be loaded while the child validates

    lean_import.import_aiohttp()
    from sidecar.app.daemon import main as serve  # noqa: PLC0415 - as above

    return serve


def _run_child(arguments: list[str], sink: int) -> NoReturn:
    """Write the settings to ``sink`` and exit in any case: none of the parent's code may run here."""
    code = EXIT_BUG
    try:
        for number in (signal.SIGINT, signal.SIGTERM):  # both processes may get it, and the parent handles it
            signal.signal(number, signal.SIG_DFL)
        code = _hand_over(arguments, sink)
    except BrokenPipeError:
        pass  # the parent was stopped meanwhile
    except Exception:  # noqa: BLE001 - a bug of ours
        # Without the exception's text, which may repeat a password.
        kind, _, trace = sys.exc_info()
        traceback.print_tb(trace)
        complain(f"reading the settings failed: {kind.__name__ if kind else ''}")
    finally:
        os._exit(code)


def _hand_over(arguments: list[str], sink: int) -> int:
    from sidecar.cli import application  # noqa: PLC0415 - click and pydantic, for the child alone

    def written(settings: Settings) -> int:
        with os.fdopen(sink, "w") as pipe:
            json.dump(settings.model_dump(), pipe)
        return 0

    return application.run(arguments, os.environ, written)
