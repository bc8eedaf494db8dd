"""A datagram socket in place of the sidecar, which adds up the lines of the clients that arrive."""

from __future__ import annotations

import socket
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Self

_PACKETS = 100_000


class Receiver:
    """A bound datagram socket, on a unix path or on a UDP port of loopback (``path`` is None; port 0: any)."""

    def __init__(self, path: Path | None = None, port: int = 0) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_INET if path is None else socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", port) if path is None else str(path))
        self._socket.settimeout(0)
        self.packets: list[bytes] = []

    @property
    def port(self) -> int:
        return int(self._socket.getsockname()[1])

    @property
    def listen(self) -> str:
        return f"127.0.0.1:{self.port}"

    def read(self) -> list[bytes]:
        """All lines that have come so far."""
        with suppress(BlockingIOError):
            for _ in range(_PACKETS):
                self.packets.append(self._socket.recv(65_536))
        return [line for packet in self.packets for line in packet.split(b"\n")]

    def totals(self) -> dict[str, int]:
        """What has come so far: ``name|tags`` without messages, and its sum, or the last value of a gauge, rounded.

        Names alone for what has no tags.
        """
        totals: Counter[str] = Counter()
        for line in self.read():
            name, _, rest = line.decode().partition(":")
            number, _, tags = rest.partition("|c")
            tags = tags.partition(",message:")[0].removeprefix("|#")
            if number.endswith("|g"):
                totals[name] = round(float(number.removesuffix("|g")))
            else:
                totals[f"{name}|{tags}" if tags else name] += int(number)
        return dict(totals)

    def close(self) -> None:
        self._socket.close()
        if self.path is not None:
            self.path.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
