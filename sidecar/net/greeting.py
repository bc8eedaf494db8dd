"""The first look at a new connection: most polls are answered before they cost a transport."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress

from sidecar.net.connection import READ_BYTES
from sidecar.net.crowd import Ready
from sidecar.net.heads import END, BadHeadError, Heads, refusal, refuse_hopeless


class Greeting:
    """Answers who brings a plain request for what is ``ready``, or no request at all."""

    def __init__(self, heads: Heads, ready: Ready | None, refused: Callable[[str], None]) -> None:
        self._heads = heads
        self._ready = ready
        self._refused = refused

    def meet(self, opened: socket.socket) -> bytes | None:
        """Look whether a new connection has brought a request already. What has come of it, to be dealt with.

        None if that was all: it was answered, and the client wants no more. So most polls need no transport.
        """
        try:
            came = opened.recv(READ_BYTES)
        except BlockingIOError:
            return b""
        except OSError:
            came = b""
        if came:
            answer, keeps = self._answer_to(came)
            if answer is None:
                return came
            with suppress(OSError):
                if opened.send(answer) == len(answer) and keeps:
                    return b""
        opened.close()
        return None

    def _answer_to(self, came: bytes) -> tuple[bytes | None, bool]:
        """The answer to a single plain request, or to what is none, and whether the client keeps its connection."""
        end = came.find(END) + len(END)
        try:
            if end < len(END):
                refuse_hopeless(came)
                return None, False
            head = self._heads.read(came[:end])
        except BadHeadError as error:
            self._refused(error.word)
            return refusal(error), False
        if self._ready is None or not head.is_plain or end < len(came):
            return None, False
        return self._ready(head), head.keeps
