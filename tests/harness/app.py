"""Small apps behind a balancer, and clients that keep them busy."""

from __future__ import annotations

import http.client
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

_WORK_S = 0.02


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Nothing: a balancer resets the connections of its checks."""


class App:
    """An HTTP app that answers every GET with its name after 20 ms of work."""

    def __init__(self, name: str, port: int) -> None:
        self.name = name
        self.port = port
        self.served = 0
        app, idle = self, threading.Event()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                idle.wait(_WORK_S)
                if self.path != "/":  # HAProxy's own check asks for /
                    app.served += 1
                body = name.encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Nothing: the tests count for themselves."""

        self._server = _Server(("127.0.0.1", port), Handler)

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Close the door, as a scheduler does that ends the process; a second call does nothing."""
        self._server.shutdown()
        self._server.server_close()


class Clients:
    """Clients that ask ``GET /work`` at ``port`` one request after the other, and count the answers."""

    def __init__(self, port: int, number: int = 4) -> None:
        self.number = number
        self._port = port
        self._over = threading.Event()
        self.answers: Counter[str] = Counter()
        self._threads = [threading.Thread(target=self._ask) for _ in range(number)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(10)

    @property
    def lost(self) -> dict[str, int]:
        """What came instead of an app's name, and how often."""
        return {answer: count for answer, count in self.answers.items() if not answer.startswith("app")}

    def _ask(self) -> None:
        while not self._over.is_set():
            connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=5)
            self.answers[_answer(connection)] += 1
            connection.close()


def _answer(connection: http.client.HTTPConnection) -> str:
    try:
        connection.request("GET", "/work")
        response = connection.getresponse()
        body = response.read().decode()
    except (OSError, http.client.HTTPException) as error:
        return f"error: {type(error).__name__}"
    return body if response.status == 200 else f"status {response.status}"
