"""An event loop that handles the public listener first, and few other events in each turn.

A plain loop handles everything that is ready before it polls again: with 256 busy connections at the local listener a
health poll would wait for all of them. Here it waits for at most ``OTHER_EVENTS``.
"""

from __future__ import annotations

import asyncio
import contextvars
import select
import selectors
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

PRIORITY_EVENTS: Final = 256
"""Priority events in a turn: all of them, because each costs little."""

OTHER_EVENTS: Final = 8
"""Other events in a turn; each costs about 50 us. With fewer a poll waits less, but the loop takes fewer reports."""

IS_PRIORITY: Final = contextvars.ContextVar("is_priority", default=False)
"""A file registered in a context where this is true has priority. Connections inherit the context of their listening
socket."""


def context(*, is_priority: bool) -> contextvars.Context:
    """A context for a listening socket and its connections."""
    made = contextvars.copy_context()
    made.run(IS_PRIORITY.set, is_priority)
    return made


def new_loop() -> asyncio.SelectorEventLoop:
    """The loop of a daemon, for ``asyncio.Runner``."""
    return asyncio.SelectorEventLoop(PrioritySelector())


class PrioritySelector(selectors.BaseSelector):
    """Two epoll sets. The priority set is a file of the other set, so that one system call waits for both."""

    def __init__(self) -> None:
        self._priority = select.epoll()
        self._others = select.epoll()
        self._others.register(self._priority.fileno(), select.EPOLLIN)
        self._keys: dict[int, selectors.SelectorKey] = {}
        self._set_of: dict[int, select.epoll] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        """Watch a file; the context says whether it has priority."""
        fd = _number(fileobj)
        if fd in self._keys:
            raise KeyError(f"{fileobj!r} (FD {fd}) is already registered")
        chosen = self._priority if IS_PRIORITY.get() else self._others
        chosen.register(fd, _epoll_events(events))
        self._set_of[fd] = chosen
        key = self._keys[fd] = selectors.SelectorKey(fileobj, fd, events, data)
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        """Watch a file no longer; KeyError if it was not watched."""
        key = self._keys.pop(_number(fileobj))
        with suppress(OSError):  # it was closed before
            self._set_of.pop(key.fd).unregister(key.fd)
        return key

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        """Watch a file for other events, or with other data."""
        key = self._keys[_number(fileobj)]
        if events != key.events:
            self._set_of[key.fd].modify(key.fd, _epoll_events(events))
        key = self._keys[key.fd] = key._replace(events=events, data=data)
        return key

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """The files that are ready, those with priority first."""
        ready = self._priority.poll(0, PRIORITY_EVENTS)
        wait_s = 0.0 if ready else -1 if timeout is None else max(0.0, timeout)
        others = self._others.poll(wait_s, OTHER_EVENTS + 1)
        nested = self._priority.fileno()
        if not ready and any(fd == nested for fd, _ in others):
            ready = self._priority.poll(0, PRIORITY_EVENTS)
        ready += [pair for pair in others if pair[0] != nested]
        keys = self._keys
        return [(keys[fd], _events(seen) & keys[fd].events) for fd, seen in ready if fd in keys]

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        """The watched files."""
        return _ByFile(self._keys)

    def get_key(self, fileobj: Any) -> selectors.SelectorKey:
        """The key of a file; KeyError if it is not watched."""
        return self._keys[_number(fileobj)]

    def close(self) -> None:
        """Stop watching."""
        self._keys.clear()
        self._set_of.clear()
        self._priority.close()
        self._others.close()


class _ByFile(dict[Any, selectors.SelectorKey]):
    """The keys by descriptor, or by an object that has one."""

    def __missing__(self, fileobj: Any) -> selectors.SelectorKey:
        number = _number(fileobj)
        if number is fileobj:
            raise KeyError(fileobj)
        return self[number]


def _number(fileobj: Any) -> int:
    number: int = fileobj if isinstance(fileobj, int) else fileobj.fileno()
    return number


def _epoll_events(events: int) -> int:
    wanted = select.EPOLLIN if events & selectors.EVENT_READ else 0
    return wanted | (select.EPOLLOUT if events & selectors.EVENT_WRITE else 0)


def _events(seen: int) -> int:
    """An error counts as readable and as writable."""
    events = selectors.EVENT_WRITE if seen & ~select.EPOLLIN else 0
    return events | (selectors.EVENT_READ if seen & ~select.EPOLLOUT else 0)
