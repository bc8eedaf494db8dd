"""Apps behind a balancer or beside a sidecar: in this process, failing on request, or with a real Redis client."""

from __future__ import annotations

import http.client
import json
import sys
import threading
from collections import Counter
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final, Self

from harness.binaries import require
from harness.child import Child, python_env
from harness.http_request import request
from harness.ports import free_port

PROGRAMS: Final = Path(__file__).parents[1] / "apps"
_WORK_S: Final = 0.02


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Nothing: a balancer resets the connections of its checks."""


class App:
    """An HTTP app in this process that answers every GET with its name after 20 ms of work."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.served = 0
        app, idle = self, threading.Event()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                idle.wait(_WORK_S)
                if self.path != "/":  # the check of HAProxy asks for /
                    app.served += 1
                body = name.encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Nothing: the tests have counters."""

        self._server = _Server(("127.0.0.1", 0), Handler)
        self.port = self._server.server_port

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop listening, as the end of the process does; a second call does nothing."""
        self._server.shutdown()
        self._server.server_close()


class Clients:
    """Clients that send ``GET /work`` to ``port``, one request after the other, and count the answers."""

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
        """The answers that came from no app, and how often each came."""
        return {answer: count for answer, count in self.answers.items() if not answer.startswith("app")}

    def _ask(self) -> None:
        while not self._over.is_set():
            try:
                status, body = request(self._port, "/work")
            except (OSError, http.client.HTTPException) as error:
                status, body = 0, type(error).__name__
            self.answers[body if status == 200 else f"{status} {body}"] += 1


class FailingApp(Child):
    """``apps/failing_app.py``; it sends its results to ``results_port``, the local listener of its sidecar."""

    def __init__(self, directory: Path, name: str, results_port: int | None = None) -> None:
        super().__init__(name, directory)
        self._results_port = results_port
        self.port = free_port()

    def fail(self, share: float) -> None:
        """Let this share of the requests fail from now on."""
        request(self.port, f"/share/{share}", "POST")

    def counts(self) -> dict[str, int]:
        """The number of requests served, ``ok`` and ``failed``."""
        counts: dict[str, int] = json.loads(request(self.port, "/counts")[1])
        return counts

    def served(self) -> int:
        """The number of requests, without the checks of HAProxy."""
        return sum(self.counts().values())

    def _command(self) -> list[str]:
        results = [str(self._results_port)] if self._results_port else []
        return [sys.executable, str(PROGRAMS / "failing_app.py"), self.name, str(self.port), *results]

    def _is_ready(self) -> bool:
        return request(self.port, "/")[1] == "well"


def shares(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, float]:
    """The share of each app in the requests between two readings of ``served``."""
    served = {name: after[name] - before[name] for name in before}
    return {name: count / sum(served.values()) for name, count in served.items()}


class RealApp(Child):
    """The app ``aiohttp`` or ``express`` of ``apps``, which needs Redis for every request; ``environment`` is added."""

    def __init__(self, directory: Path, program: str, redis_port: int, environment: Mapping[str, str]) -> None:
        super().__init__(f"app-{program}", directory)
        self._program = program
        self._redis_port = redis_port
        self._environment = environment
        self.port = free_port()

    def work(self, times: int) -> list[int]:
        """The statuses of this many requests, one after the other."""
        return [request(self.port, "/work")[0] for _ in range(times)]

    def _command(self) -> list[str]:
        ports = [str(self.port), str(self._redis_port)]
        if self._program == "express":
            return [require("node"), str(PROGRAMS / "express_app.js"), *ports]
        return [sys.executable, str(PROGRAMS / "aiohttp_app.py"), *ports]

    def _env(self) -> dict[str, str]:
        return python_env(**{"ARBITER_LOCAL_LISTEN": "off", **self._environment})

    def _is_ready(self) -> bool:
        return request(self.port, "/metrics")[0] == 200
