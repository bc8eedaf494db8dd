"""One HTTP request to a loopback server."""

from __future__ import annotations

import http.client
from contextlib import closing


def request(port: int, path: str, method: str = "GET", timeout_s: float = 5) -> tuple[int, str]:
    """Status and body of the response; OSError without a server."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_s)) as connection:
        connection.request(method, path, headers={"Connection": "close"})
        response = connection.getresponse()
        return response.status, response.read().decode()
