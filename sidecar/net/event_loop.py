"""An event loop that looks at the public door first, and takes few other events a turn.

A plain loop handles all that is ready before it looks again: with 256 busy connections at the local door a health poll
would wait for all of them. Here it waits for ``OTHERS_A_TURN``, however many are ready.
"""

from __future__ import annotations

import asyncio
import contextvars
import select
import selectors
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

FIRST_A_TURN: Final = 256
"""All of them: each costs little, and the next poll waits for them in any case."""

OTHERS_A_TURN: Final = 8
"""Each costs some 50 us. With fewer a poll waits less, and the local door takes fewer reports a second."""

LOOKED_AT_FIRST: Final = contextvars.ContextVar("looked_at_first", default=False)
"""What is registered in a context where this is true is looked at first: a socket that listens, and by inheritance of
the context every connection that it accepts."""


def context(*, is_first: bool) -> contextvars.Context:
    """A context to listen in."""
    made = contextvars.copy_context()
    made.run(LOOKED_AT_FIRST.set, is_first)
    return made


def new_loop() -> asyncio.SelectorEventLoop:
    """The loop of a daemon, to be given to ``asyncio.Runner``."""
    return asyncio.SelectorEventLoop(TurnSelector())


class TurnSelector(selectors.BaseSelector):
    """Two sets of files, of which the first is itself a file of the other: so one system call waits for both."""

    def __init__(self) -> None:
        self._first = select.epoll()
        self._others = select.epoll()
        self._others.register(self._first.fileno(), select.EPOLLIN)
        self._keys: dict[int, selectors.SelectorKey] = {}
        self._set_of: dict[int, select.epoll] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        """Watch a file; by the context it belongs to the first or to the others."""
        fd = _number(fileobj)
        if fd in self._keys:
            raise KeyError(f"{fileobj!r} (FD {fd}) is already registered")
        chosen = self._first if LOOKED_AT_FIRST.get() else self._others
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
        """What is ready, the first ones first."""
        ready = self._first.poll(0, FIRST_A_TURN)
        wait_s = 0.0 if ready else -1 if timeout is None else max(0.0, timeout)
        others = self._others.poll(wait_s, OTHERS_A_TURN + 1)
        nested = self._first.fileno()
        if not ready and any(fd == nested for fd, _ in others):
            ready = self._first.poll(0, FIRST_A_TURN)
        ready += [pair for pair in others if pair[0] != nested]
        keys = self._keys
        return [(keys[fd], _events(seen) & keys[fd].events) for fd, seen in ready if fd in keys]

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        """What is watched, by file."""
        return _ByFile(self._keys)

    def get_key(self, fileobj: Any) -> selectors.SelectorKey:
        """The key of a file; KeyError if it is not watched."""
        return self._keys[_number(fileobj)]

    def close(self) -> None:
        """Watch nothing any more."""
        self._keys.clear()
        self._set_of.clear()
        self._first.close()
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
    """An error is told to whoever reads or writes."""
    events = selectors.EVENT_WRITE if seen & ~select.EPOLLIN else 0
    return events | (selectors.EVENT_READ if seen & ~select.EPOLLOUT else 0)
