"""The URL of the app's metrics page: over HTTP, or over HTTP on a unix socket."""

from __future__ import annotations

from typing import Final, NamedTuple
from urllib.parse import urlsplit

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
        return Target(f"http://localhost/{path}" if colon else "http://localhost/metrics", socket)
    try:
        parts = urlsplit(url.strip())
        valid = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid:
        raise ValueError(_HINT)
    return Target(url.strip())
