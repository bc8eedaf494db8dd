"""Runs programs of the operator, an action and the hook: with bounds on time and output, and without secrets."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from sidecar.actions.actuator import ActionError
from sidecar.client.redaction import redacted
from sidecar.core.claims import Claim

HEAD: Final = 16 * 1024
"""Number of bytes of the program's output that are kept."""

PAUSE_S: Final = 0.05
"""Pause between reads of output that is discarded. A flood must not take the processor from the health check, and a
pipe that stays full would block the program."""

LINGER_S: Final = 0.2
"""How long output is read after the program has ended: a child may hold the pipe open for ever."""

REAP_S: Final = 1.0


class Ended(NamedTuple):
    """How a program ended."""

    text: str  # says it, with the head of the redacted output
    code: int | None = None  # None: not known
    error: Exception | None = None  # it could not be run, or took too long


class CommandAction:
    """Runs ``words`` without a shell, with ``env``, and kills it after ``timeout_s`` seconds."""

    def __init__(self, words: Sequence[str], timeout_s: float, env: Mapping[str, str]) -> None:
        self._words = words
        self._timeout_s = timeout_s
        self._env = env

    async def __call__(self) -> str:
        """Run it; ActionError if it cannot be run, ends with an exit code other than 0, or takes longer."""
        ended = await run("the command", self._words, self._timeout_s, self._env)
        if ended.code or ended.error:
            raise ActionError(ended.text)
        return ended.text


class Hook:
    """Examines a container between the grant and the drain, while it is sick.

    It runs the operator's program ``path`` for at most ``timeout_s`` seconds, and then kills it.

    ``on_failure`` is called if the program cannot be run, or takes longer. Its environment has the facts of the cull.
    """

    def __init__(self, path: str, timeout_s: float, service: str, on_failure: Callable[[Exception], None]) -> None:
        self._path = path
        self._timeout_s = timeout_s
        self._service = service
        self._on_failure = on_failure

    async def __call__(self, claim: Claim, reason: str) -> str:
        """Return how the program ended and, redacted, the head of its output on both streams."""
        facts = {
            "ARBITER_SERVICE": self._service,
            "ARBITER_INSTANCE": claim.instance,
            "ARBITER_INCARNATION": claim.incarnation,
            "ARBITER_KIND": claim.cause,
            "ARBITER_REASON": reason.replace("\0", ""),
        }
        ended = await run("the hook", [self._path], self._timeout_s, facts)
        if ended.error:
            self._on_failure(ended.error)
        return ended.text


async def run(name: str, words: Sequence[str], timeout_s: float, env: Mapping[str, str]) -> Ended:
    """Run the program ``words`` for at most ``timeout_s`` seconds, and then kill its whole process group.

    ``name`` is the program's name in the text (``the hook``). ``env``: what it gets beside the path.
    """
    loop = asyncio.get_running_loop()
    began = loop.time()
    try:
        transport, output = await loop.subprocess_exec(
            lambda: _Output(loop),
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            # The environment of the sidecar may hold passwords.
            env={"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8", **env},
            cwd="/",
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        return Ended(f"{name} could not be run: {error}", error=error)
    try:
        is_late = not await _within(output.ended, timeout_s)
        if not is_late:
            await _within(output.closed, LINGER_S)
    finally:
        await _end(transport, output)
    code = transport.get_returncode()
    late = TimeoutError(f"{name} took longer than {timeout_s:g} s") if is_late else None
    return Ended(output.text(name, code, loop.time() - began, is_late=is_late), code, late)


class _Output(asyncio.SubprocessProtocol):
    """Keeps the head of the output, and the ends of the program and of its output."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.ended: asyncio.Future[None] = loop.create_future()
        self.closed: asyncio.Future[None] = loop.create_future()
        self._loop = loop
        self._head = bytearray()
        self._is_cut = False
        self._pipe: asyncio.BaseTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.SubprocessTransport)  # noqa: S101 - asyncio guarantees it
        self._pipe = transport.get_pipe_transport(1)

    def pipe_data_received(self, _fd: int, data: bytes) -> None:
        left = HEAD - len(self._head)
        self._head += data[:left]
        if len(data) > left and isinstance(self._pipe, asyncio.ReadTransport):
            self._is_cut = True
            self._pipe.pause_reading()
            self._loop.call_later(PAUSE_S, self._read_on)

    def _read_on(self) -> None:
        if isinstance(self._pipe, asyncio.ReadTransport) and not self._pipe.is_closing():
            self._pipe.resume_reading()

    def pipe_connection_lost(self, _fd: int, _error: Exception | None) -> None:
        self.closed.set_result(None)

    def process_exited(self) -> None:
        self.ended.set_result(None)

    def text(self, name: str, code: int | None, took_s: float, *, is_late: bool) -> str:
        """Return the result as text: how the program ended, and its output."""
        how = "was ended, its time was up," if is_late else _ending(code)
        text = self._head.decode(errors="replace")
        shown = redacted(text, len(text) - self._is_cut)  # a cut last word may be half a secret: leave it out
        cut = f"\n(the rest of more than {HEAD} bytes is left out)" if self._is_cut else ""
        return f"{name} {how} after {took_s:.1f} s\n{shown.rstrip()}{cut}".rstrip()


def _ending(code: int | None) -> str:
    if code is not None and code < 0:
        return f"was ended by signal {-code}"
    return "ended" if code is None else f"ended with exit code {code}"


async def _within(future: asyncio.Future[None], seconds: float) -> bool:
    """Whether ``future`` is done within ``seconds``; otherwise it goes on."""
    done, _ = await asyncio.wait((future,), timeout=seconds)
    return bool(done)


async def _end(transport: asyncio.SubprocessTransport, output: _Output) -> None:
    """Kill the whole process group, unless the program has ended and all of its output is closed."""
    try:
        if not (output.ended.done() and output.closed.done()):
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(transport.get_pid(), signal.SIGKILL)
            await _within(output.ended, REAP_S)
    finally:
        transport.close()
