"""The URL of the app's metrics page: over HTTP, or over HTTP on a unix socket."""

from __future__ import annotations

from typing import Final, NamedTuple

from sidecar.config.addresses import socket_path
from sidecar.config.urls import check_text, web_parts

_HINT: Final = "takes http://, https:// or unix:///path/of.sock:/metrics"


class Target(NamedTuple):
    """The address of the page: its HTTP URL, and the path of the unix socket that serves it, if any."""

    url: str
    socket: str | None = None


def parse_target(url: str) -> Target:
    """Read ``http[s]://host[:port]/path`` or ``unix:///path/of.sock[:/path]``; ValueError repeats no part of it."""
    scheme, _, rest = url.strip().partition("://")
    if scheme.lower() == "unix":
        socket, colon, path = rest.partition(":/")
        if not socket.startswith("/"):
            raise ValueError(_HINT)
        check_text(url.strip())
        try:
            socket_path(socket)
        except ValueError as error:
            raise ValueError(f"names a socket whose path {error}") from None
        return Target(f"http://localhost/{path}" if colon else "http://localhost/metrics", socket)
    web_parts(url.strip(), _HINT)
    return Target(url.strip())
