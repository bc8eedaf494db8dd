"""Runs of the simulation side by side, one process for each core, with a progress bar on a terminal.

A run is a function without arguments that a child process calls after a fork, so that what it plays is not copied.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from types import FrameType
from typing import Any, Final, Generic, NoReturn, TypeVar

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

T = TypeVar("T")

OnPart = Callable[[float], None]
"""Gets the part that is done, from 0 to 1."""

Run = Callable[[OnPart], T]
_STEP: Final = 0.01
_FORK: Final = "fork"
_NO_MEMORY: Final = "a process of the simulation ended early, perhaps for lack of memory; fewer --cores need less"


@contextmanager
def progress(words: str) -> Iterator[OnPart]:
    """A bar on standard error while something runs; nothing if that is no terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    # Without a thread of its own: a fork must not meet one.
    bar = Progress(*columns, console=Console(stderr=True), transient=True, auto_refresh=False)
    if not sys.stderr.isatty():
        yield lambda _part: None
        return
    with bar:
        task, last = bar.add_task(words, total=1.0), 0.0

        def on_part(part: float) -> None:
            nonlocal last
            if part - last >= _STEP or part >= 1:
                last = part
                bar.update(task, completed=part, refresh=True)

        yield on_part


def run_all(runs: Sequence[Run[T]], on_part: OnPart, cores: int = 0) -> list[T]:
    """The results of all runs in their order, on so many cores, 0 for all.

    Raises what a run raised, and ClickException if its process ended without a result. SIGTERM meanwhile raises
    KeyboardInterrupt, so that the child processes are ended.
    """
    cores = min(cores or len(os.sched_getaffinity(0)), len(runs))
    if cores <= 1:
        return [run(_share(on_part, number, len(runs))) for number, run in enumerate(runs)]
    with _terminated_as_interrupted():
        return _Children(runs, on_part, cores).results()


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """Let SIGTERM raise KeyboardInterrupt, as Ctrl-C does. Only the main thread can have that."""

    def interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _share(on_part: OnPart, number: int, total: int) -> OnPart:
    return lambda part: on_part((number + part) / total)


class _Children(Generic[T]):
    """One child process for each run, at most ``cores`` at once."""

    def __init__(self, runs: Sequence[Run[T]], on_part: OnPart, cores: int) -> None:
        self._waiting = list(enumerate(runs))
        self._parts = [0.0] * len(runs)
        self._results: dict[int, T] = {}
        self._on_part = on_part
        self._cores = cores
        self._running: dict[Connection, tuple[int, multiprocessing.process.BaseProcess]] = {}

    def results(self) -> list[T]:
        """All results, once all children have ended."""
        try:
            while self._waiting or self._running:
                while self._waiting and len(self._running) < self._cores:
                    self._start(*self._waiting.pop(0))
                for connection in wait(list(self._running)):
                    self._take(connection)  # type: ignore[arg-type]  # nothing else was given
        finally:
            for _, child in self._running.values():
                child.terminate()
        return [self._results[number] for number in range(len(self._parts))]

    def _start(self, number: int, run: Run[T]) -> None:
        ours, theirs = multiprocessing.Pipe(duplex=False)
        child = multiprocessing.get_context(_FORK).Process(target=_run, args=(run, theirs), daemon=True)
        child.start()
        theirs.close()
        self._running[ours] = number, child

    def _take(self, connection: Connection) -> None:
        number, child = self._running[connection]
        try:
            word, value = connection.recv()
        except EOFError:
            word, value = "error", click.ClickException(_NO_MEMORY)
        if word == "part":
            self._parts[number] = value
            self._on_part(sum(self._parts) / len(self._parts))
            return
        del self._running[connection]
        child.join()
        if word == "error":
            raise value
        self._results[number] = value


def _run(run: Run[Any], sink: Connection) -> None:
    """Run it in a child process, and send its parts, and then its result or its error."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the parent, which ends its children
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    last = 0.0

    def on_part(part: float) -> None:
        nonlocal last
        if part - last >= _STEP:
            last = part
            sink.send(("part", part))

    try:
        sink.send(("result", run(on_part)))
    except MemoryError:
        sink.send(("error", click.ClickException(_NO_MEMORY)))
    except Exception as error:  # noqa: BLE001 - the parent raises it
        sink.send(("error", _sendable(error)))


def _end_with_parent() -> None:
    """End this child process when its parent is gone, also if that was killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _sendable(error: Exception) -> Exception:
    text = "".join(traceback.format_exception(error))
    return ValueError(str(error)) if isinstance(error, ValueError) else RuntimeError(text)
