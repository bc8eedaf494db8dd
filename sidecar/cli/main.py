"""The entry point of ``health-arbiter``. This module has only ``run``; click handles all other commands.

``run`` forks. The child reads the command line with click, validates the settings with pydantic, writes them to a pipe
and ends; meanwhile the parent imports the daemon. So the two libraries cost the daemon neither their 11 MiB for life
nor their 110 ms at start, and nothing that the parent runs may import them.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn

from sidecar.cli.terminal import COMPLETE, EXIT_BUG, EXIT_USAGE, PROGRAM, complain

if TYPE_CHECKING:
    from sidecar.config.settings import Config

    Serve = Callable[[Config], int]

SHARED: Final = (
    *("dataclasses", "email.message", "hashlib", "inspect", "pathlib", "platform", "shutil", "socket", "tempfile"),
    *("threading", "uuid", "sidecar.config.redis_urls", "sidecar.core.types"),
)
"""Modules that both processes of a run need: before the fork an import costs once."""

_AT_IMPORT: Final = {"SSL_CERT_FILE": os.devnull, "SSL_CERT_DIR": os.devnull, "FROZENLIST_NO_EXTENSIONS": "1"}
_ANSWERED: Final = ("-h", "--help", "--version")


def main(argv: Sequence[str] | None = None, serve: Serve | None = None) -> int:
    """Run the command line ``argv`` (without the program's name) and return the exit code.

    ``serve`` gets the configuration and returns the exit code; without it, it is that of ``sidecar.app.daemon``.
    """
    arguments = sys.argv[1:] if argv is None else list(argv)
    try:
        if arguments[:1] == ["run"] and COMPLETE not in os.environ and not {*_ANSWERED} & {*arguments}:
            return _run(arguments, serve)
        if arguments[:1] == ["exec"] and COMPLETE not in os.environ:
            from sidecar.runlock import execute  # noqa: PLC0415 - cron starts it every minute: it needs no click

            return execute.main(arguments[1:], f"{PROGRAM} exec")
        _hide_from_plugins()
        from sidecar.cli import application  # noqa: PLC0415 - click, which the parent of a run must not load

        return application.run(arguments, os.environ)
    except KeyboardInterrupt:
        return 0  # nothing was running yet


def _hide_from_plugins() -> None:
    """Let no other package see the settings; pydantic would look for its plugins in every installed distribution."""
    os.environ["PYDANTIC_DISABLE_PLUGINS"] = "__all__"


def _run(arguments: list[str], serve: Serve | None) -> int:
    # If the parent process ignores SIGCHLD, so does this one, and then the child's exit code is lost. As process 1 of a
    # container this process would ignore a SIGTERM without a handler.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # A core file would keep the secrets in memory on disk. Only the soft limit, which a hook may raise for itself.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
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
    return code or serve(_config(answer))


def _config(answer: bytes) -> Config:
    from sidecar.config.settings import config_of  # noqa: PLC0415 - not before the fork: the child has no use for it

    return config_of(json.loads(answer))


def _app() -> Serve:
    import_aiohttp()
    from sidecar.app.daemon import main as serve  # noqa: PLC0415 - not in the child, which loads other libraries

    return serve


def import_aiohttp() -> None:
    """Import aiohttp without what nobody here uses, 3 MiB in every sidecar; call it before anything else imports it.

    Its client builds two TLS contexts, and reads all certificates of the system into both: TLS connections of the
    sidecar use contexts of their own, so OpenSSL finds no certificates meanwhile. ``frozenlist`` is compiled C++, whose
    library alone is 1 MiB: aiohttp gets its version in Python.
    """
    before = {name: os.environ.get(name) for name in _AT_IMPORT}
    os.environ.update(_AT_IMPORT)
    try:
        importlib.import_module("aiohttp")
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _run_child(arguments: list[str], sink: int) -> NoReturn:
    """Write the settings to ``sink`` and exit in any case: none of the parent's code may run here."""
    code = EXIT_BUG
    try:
        for number in (signal.SIGINT, signal.SIGTERM):  # both processes may get it, and the parent handles it
            signal.signal(number, signal.SIG_DFL)
        _hide_from_plugins()
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
    def written(values: dict[str, Any]) -> int:
        with os.fdopen(sink, "w") as pipe:
            json.dump(values, pipe)
        return 0

    if arguments == ["run"]:
        return _load(written)
    from sidecar.cli import application  # noqa: PLC0415 - click and pydantic, for the child alone

    return application.run(arguments, os.environ, written)


def _load(written: Callable[[dict[str, Any]], int]) -> int:
    """Do as ``application.run`` does without options: click and the options would take 20 ms."""
    from sidecar.config.load import SettingsError, values  # noqa: PLC0415 - pydantic, for the child alone

    try:
        return written(values({}, os.environ))
    except SettingsError as error:
        for problem in error.problems:
            complain(problem)
        return EXIT_USAGE
