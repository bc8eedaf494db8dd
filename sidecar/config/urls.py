"""Rules for the URLs in settings: what a URL may have, and how it is shown without its secrets.

Every URL that the sidecar shows passes through ``masked``: in ``check-config``, in ``doctor``, in the log and in JSON.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple
from urllib.parse import SplitResult, urlsplit

from sidecar.config.addresses import check_host, socket_path

MASK: Final = "***"
MAX_BYTES: Final = 4096

_PAGE_HINT: Final = "takes http://, https:// or unix:///path/of.sock:/metrics"


def masked(url: str, *, is_secret: Callable[[str], bool] = lambda _: True, hides_path: bool = False) -> str:
    """Return a checked URL with ``***`` for the password, for what is behind ``#``, and for values in the query.

    ``is_secret`` tells by the name of an option in the query, as it was written, whether to hide its value. With
    ``hides_path`` everything behind the host is hidden, for URLs whose path is the secret.
    """
    rest, sharp, _ = url.partition("#")
    head, question, query = rest.partition("?")
    scheme, slashes, place = head.partition("://")
    if hides_path:
        place, question, query, sharp = f"{place.partition('/')[0]}/{MASK}", "", "", ""
    login, at, place = place.rpartition("@")
    if login:
        # A name alone is most likely a token, or a password whose colon was forgotten.
        name, colon, _ = login.partition(":")
        login = f"{name}:{MASK}" if colon else MASK
    options = "&".join(_masked_option(option, is_secret) for option in query.split("&"))
    return f"{scheme}{slashes}{login}{at}{place}{question}{options}{sharp}{MASK * bool(sharp)}"


def web_parts(url: str, hint: str) -> SplitResult:
    """Return the parts of an ``http://`` or ``https://`` URL, or raise ValueError, which repeats no part of it.

    ``hint`` is the sentence for a text that is no such URL.
    """
    check_text(url)
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        raise ValueError(hint) from None
    if parts.scheme not in {"http", "https"} or not host:
        raise ValueError(hint)
    check_host(host)
    try:
        port = parts.port
    except ValueError:
        port = 0
    if port == 0:
        raise ValueError("has a bad port: it must be a number from 1 to 65535")
    return parts


def check_text(url: str) -> None:
    """Raise ValueError for a URL that is too long, or has blanks or control characters."""
    if len(url.encode(errors="surrogateescape")) > MAX_BYTES:
        raise ValueError(f"must be at most {MAX_BYTES} bytes long")
    if not url.isprintable() or " " in url:
        raise ValueError("must not have blanks or control characters")


def check_socket(path: str) -> None:
    """Raise ValueError for a path that no unix socket can have."""
    try:
        socket_path(path)
    except ValueError as error:
        raise ValueError(f"names a socket whose path {error}") from None


class Target(NamedTuple):
    """The address of the app's metrics page: its HTTP URL, and the path of the unix socket that serves it, if any."""

    url: str
    socket: str | None = None


def parse_target(url: str) -> Target:
    """Read ``http[s]://host[:port]/path`` or ``unix:///path/of.sock[:/path]``; ValueError repeats no part of it."""
    scheme, _, rest = url.strip().partition("://")
    if scheme.lower() == "unix":
        socket, colon, path = rest.partition(":/")
        if not socket.startswith("/"):
            raise ValueError(_PAGE_HINT)
        check_text(url.strip())
        check_socket(socket)
        return Target(f"http://localhost/{path}" if colon else "http://localhost/metrics", socket)
    web_parts(url.strip(), _PAGE_HINT)
    return Target(url.strip())


def _masked_option(option: str, is_secret: Callable[[str], bool]) -> str:
    name, _, value = option.partition("=")
    if not option or not is_secret(name):
        return option
    return f"{name}={MASK}" if value.strip("=") else MASK  # base64 may end in equals signs
