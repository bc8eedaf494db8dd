"""A small app that fails as told: python failing_app.py NAME PORT [RESULTS_PORT].

``POST /share/0.5`` makes it fail every second request from then on, evenly. ``GET /`` is its own health and always
well, ``GET /counts`` tells how many requests it has served and failed, anything else is work of 2 ms. What became of
it goes to ``POST /results`` of the sidecar at RESULTS_PORT, four times a second; what cannot be told is forgotten.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys

WORK_S = 0.002
TELL_EVERY_S = 0.25


class App:
    """How many requests fail, and how many have."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.counts = {"ok": 0, "failed": 0}
        self.share = 0.0
        self._owed = 0.0

    def work(self) -> int:
        """Return the status of one request. A failure is owed, and not a matter of chance: shares are then exact."""
        self._owed += self.share
        failed = self._owed >= 1 - 1e-9
        self._owed -= failed
        self.counts["failed" if failed else "ok"] += 1
        return 500 if failed else 200

    def fail(self, share: float) -> None:
        self.share, self._owed = share, 0.0


class Connection(asyncio.Protocol):
    """One client, one request at a time; none has a body."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        if self._received.endswith(b"\r\n\r\n"):
            method, path, _ = self._received.decode().split(" ", 2)
            self._received = b""
            self._serve(method, path)

    def _serve(self, method: str, path: str) -> None:
        if path == "/":
            self._answer(200, "well")
        elif path == "/counts":
            self._answer(200, json.dumps(self._app.counts))
        elif method == "POST" and path.startswith("/share/"):
            self._app.fail(float(path.removeprefix("/share/")))
            self._answer(200, "so be it")
        else:
            asyncio.get_running_loop().call_later(WORK_S, lambda: self._answer(self._app.work(), self._app.name))

    def _answer(self, status: int, body: str) -> None:
        self._transport.write(f"HTTP/1.1 {status} So\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())


async def tell(port: int, results: dict[str, int]) -> None:
    body = json.dumps(results)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST /results HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {len(body)}\r\n"
    writer.write(f"{head}Content-Type: application/json\r\n\r\n{body}".encode())
    answer = await reader.read()
    writer.close()
    if answer and not answer.startswith(b"HTTP/1.1 202 "):
        sys.exit(f"the sidecar refuses the results: {answer!r}")


async def tell_all(app: App, port: int) -> None:
    told = dict(app.counts)
    while True:
        await asyncio.sleep(TELL_EVERY_S)
        now = dict(app.counts)
        with contextlib.suppress(OSError, TimeoutError):
            await asyncio.wait_for(tell(port, {key: now[key] - told[key] for key in now}), 1)
        told = now


async def main(name: str, port: int, results_port: int | None) -> None:
    app = App(name)
    server = await asyncio.get_running_loop().create_server(lambda: Connection(app), "127.0.0.1", port)
    async with server:
        await (tell_all(app, results_port) if results_port else server.serve_forever())


asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else None))
