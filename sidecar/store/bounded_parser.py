"""The parser of replies: hiredis, with two bounds that it lacks.

Hiredis makes a list as long as its header announces before any item has arrived, and needs two seconds to free a list
of a thousand million: with ``*1000000000`` a server could stop the event loop, and with it the health answers.
"""

from __future__ import annotations

import re
from typing import Any, Final

from redis.asyncio.connection import DefaultParser
from redis.exceptions import ConnectionError as ConnectionLostError
from redis.exceptions import InvalidResponse

MAX_BYTES: Final = 16 * 1024 * 1024
"""Maximum size of a reply."""
_MAX_CHECKED: Final = 1024 * 1024
"""Maximum size of a reply that may have a suspicious line in a text."""
_HUGE: Final = tuple(re.compile(rb"\%c[0-9]{7,}\r\n" % kind) for kind in b"*~>|")
"""The headers of a million items or more. A text may read the same, so a line like this is only suspicious."""
_MAX_HEADER: Final = 32
_LINE: Final = re.compile(rb"(.)([^\r]*)\r\n", re.DOTALL)


class BoundedParser(DefaultParser):  # type: ignore[misc, valid-type]  # a variable of redis-py
    """Raises InvalidResponse for a reply that is longer than ``MAX_BYTES``, or announces a million items or more."""

    def __init__(self, socket_read_size: int) -> None:
        super().__init__(socket_read_size)
        self._reply = bytearray()
        self._checked = 0

    async def read_response(self, *args: Any, **options: Any) -> Any:
        """The next reply."""
        self._reply.clear()
        self._checked = 0
        return await super().read_response(*args, **options)

    async def read_from_socket(self) -> bool:
        """Give hiredis what has arrived."""
        data = await self._stream.read(self._read_size)
        if not data:
            raise ConnectionLostError("Connection closed by server.")
        start = max(0, len(self._reply) - _MAX_HEADER)
        self._reply += data
        if len(self._reply) > MAX_BYTES or (self._is_suspicious(start) and self._announces_huge_list()):
            raise InvalidResponse("a reply that is too long")
        self._reader.feed(data)
        return True

    def _is_suspicious(self, start: int) -> bool:
        return any(header.search(self._reply, start) for header in _HUGE)

    def _announces_huge_list(self) -> bool:
        """Whether the suspicious line is a header: follows the reply line by line, and passes over texts."""
        if len(self._reply) > _MAX_CHECKED:
            return True
        while line := _LINE.match(self._reply, self._checked):
            if any(header.match(self._reply, self._checked) for header in _HUGE):
                return True
            is_text = line[1] in (b"$", b"=", b"!") and line[2].isdigit()
            self._checked = line.end() + (int(line[2]) + 2 if is_text else 0)
        return False
