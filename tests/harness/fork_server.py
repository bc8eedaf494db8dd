"""Starts processes of the sidecar without their imports, which take 0.3 s of each: for tests that start hundreds.

A server process has imported the sidecar once. It forks for each start, and the child becomes ``health-arbiter`` with
the arguments, the environment, the directory and the files that a new process would have. The child is a child of the
tests, as others are: the server forks twice, and the kernel gives the orphan to them (prctl(2), CHILD_SUBREAPER).

Tests marked ``fresh`` start every process anew: what a start costs, what it loads, and what /proc shows of it differs
here.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_SUBREAPER: Final = 36
_MESSAGE: Final = 1 << 17
_OF_THE_INTERPRETER: Final = ("PYTHON", "LD_", "LC_", "LANG", "MALLOC_", "GLIBC_")
"""Variables that only a new process reads."""


class ForkedProcess:
    """The part of ``subprocess.Popen`` that the tests use."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.poll() is None:
            ended = os.pidfd_open(self.pid)
            try:
                select.select([ended], [], [], timeout)
            finally:
                os.close(ended)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired("health-arbiter", timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class ForkServer:
    """The server, which begins with its first ``start`` and ends with this process."""

    def __init__(self) -> None:
        self.is_used = False
        """Whether the test that runs may start processes here."""
        self._control: socket.socket | None = None
        self._server: subprocess.Popen[bytes] | None = None

    def can_start(self, command: Sequence[str], env: Mapping[str, str]) -> bool:
        """Whether this is a process of the sidecar that differs in nothing that only a new process reads."""
        names = {name for name in (*env, *os.environ) if name.startswith(_OF_THE_INTERPRETER)}
        is_same = all(env.get(name) == os.environ.get(name) for name in names - {"PYTHONPATH"})
        return self.is_used and is_same and list(command[:3]) == [sys.executable, "-m", "sidecar"]

    def start(
        self, command: Sequence[str], *, env: Mapping[str, str], cwd: Path | None, stdout: int, stderr: int
    ) -> ForkedProcess:
        """As ``Popen``, with nothing to read."""
        control = self._started()
        prctl = ctypes.CDLL(None, use_errno=True).prctl
        order = {"arguments": [*command[3:]], "env": dict(env), "cwd": str(cwd or ".")}
        with Path(os.devnull).open("rb") as nothing:
            # Only now: orphans of other processes have to go to process 1, which waits for their ends.
            prctl(_SUBREAPER, 1, 0, 0, 0)
            try:
                socket.send_fds(control, [json.dumps(order).encode()], [nothing.fileno(), stdout, stderr])
                return ForkedProcess(int(control.recv(_MESSAGE)))
            finally:
                prctl(_SUBREAPER, 0, 0, 0, 0)

    def _started(self) -> socket.socket:
        from harness.child import python_env  # noqa: PLC0415 - which imports this module

        if self._control is None:
            self._control, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with its:
                command = [sys.executable, "-m", "harness.fork_server", str(its.fileno())]
                self._server = subprocess.Popen(command, pass_fds=[its.fileno()], env=python_env())
        return self._control


FORK_SERVER: Final = ForkServer()


# -- the server -------------------------------------------------------------------------------------------------------


def _import_all() -> None:
    from sidecar.cli.main import import_aiohttp  # noqa: PLC0415 - only the server

    import_aiohttp()
    import sidecar  # noqa: PLC0415 - as above

    for module in pkgutil.walk_packages(sidecar.__path__, "sidecar."):
        if module.name != "sidecar.__main__":
            with suppress(Exception):  # the process that needs it fails by itself
                importlib.import_module(module.name)


def _serve(control: socket.socket) -> tuple[list[str], Sequence[int]] | None:
    """Fork for each order. Returns the order in the child, and None at the end."""
    while True:
        message, files, _, _ = socket.recv_fds(control, _MESSAGE, 3)
        if not message:
            return None
        source, sink = os.pipe()
        between = os.fork()
        if between == 0:
            child = os.fork()
            if child == 0:
                order = json.loads(message)
                os.close(source)
                os.close(sink)
                return _become(order, files)
            os.write(sink, str(child).encode())
            os._exit(0)
        os.waitpid(between, 0)
        control.send(os.read(source, 20))
        for number in (source, sink, *files):
            os.close(number)


def _become(order: dict[str, Any], files: Sequence[int]) -> tuple[list[str], Sequence[int]]:
    for place, number in enumerate(files):
        os.dup2(number, place)
        os.close(number)
    os.environ.clear()
    os.environ.update(order["env"])
    os.chdir(order["cwd"])
    return order["arguments"], files


def main(number: int) -> NoReturn:
    """Serve orders from the socket ``number`` until the tests are over."""
    _import_all()
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=number) as control:
        order = _serve(control)
    if order is None:
        sys.exit(0)
    from sidecar.cli.main import main as health_arbiter  # noqa: PLC0415 - in the child

    sys.argv = ["health-arbiter", *order[0]]
    sys.exit(health_arbiter())


if __name__ == "__main__":
    main(int(sys.argv[1]))
