"""Addresses, URLs, paths and lists as people write them in settings: checked, normalised, and shown without secrets.

Every URL that the sidecar shows passes through ``masked``: in ``check-config``, in ``doctor``, in the log and in JSON.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final, NamedTuple
from urllib.parse import SplitResult, urlsplit

OFF = "off"
_MAX_PORT = 65535
_HOST = re.compile(r"[a-z0-9_]([a-z0-9_.-]*[a-z0-9_.])?")
_LISTEN_HINT = "is not an address: write host:port or [v6]:port, with a port of 0 to 65535"
MAX_SOCKET_PATH = 107  # sun_path of unix(7) holds 108 bytes with the final zero
_MAX_PATH = 3800  # PATH_MAX of limits.h is 4096, and a state file in a directory has a name of up to 255 bytes
_MAX_FILE_NAME = 255
_MAX_HOST = 253  # RFC 1035, section 2.3.4, as text
_MAX_LABEL = 63
MASK: Final = "***"
MAX_BYTES: Final = 4096
_PAGE_HINT: Final = "takes http://, https:// or unix:///path/of.sock:/metrics"


def listed(text: str) -> tuple[str, ...]:
    """Split a list at its commas, and drop blanks around its parts and empty parts."""
    return tuple(part for raw in text.split(",") if (part := raw.strip()))


def split(address: str) -> tuple[str, int]:
    """Return host and port of ``host:port`` or ``[v6]:port`` (the host without brackets), or raise ValueError."""
    host, colon, port = address.strip().lower().rpartition(":")
    if not colon or not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > _MAX_PORT:
        raise ValueError(_LISTEN_HINT)
    if host.startswith("[") and host.endswith("]"):
        return _checked(host[1:-1], IPv6Address), int(port)
    if re.fullmatch(r"[0-9.]+", host):
        return _checked(host, IPv4Address), int(port)
    if not _HOST.fullmatch(host):
        raise ValueError(_LISTEN_HINT)
    check_host(host)
    return host, int(port)


def check_host(host: str) -> None:
    """Raise ValueError for a name of a host that is too long for DNS (RFC 1035, section 2.3.4)."""
    if len(host) > _MAX_HOST or any(len(label) > _MAX_LABEL for label in host.split(".")):
        raise ValueError(f"names a host of more than {_MAX_HOST} characters, or of {_MAX_LABEL} between two dots")


def port_or_address(text: str) -> str:
    """Return a port, or a host and a port, in its one normal form; ``""`` for none; or raise ValueError."""
    if not text.strip():
        return ""
    host, port = port_of(text)
    if not port:
        raise ValueError("must not be port 0")
    return str(port) if host is None else listen(text)


def port_of(text: str) -> tuple[str | None, int]:
    """Split a port, or a host and a port: ``8080`` has the host None."""
    if re.fullmatch(r"\s*[0-9]+\s*", text):
        return None, split(f"localhost:{text.strip()}")[1]
    return split(text)


def listen(text: str) -> str:
    """Return a listen address in its one normal form, or raise ValueError."""
    host, port = split(text)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def listen_or_off(text: str) -> str:
    """Return a listen address in its one normal form or ``off``, or raise ValueError."""
    return OFF if text.strip().lower() == OFF else listen(text)


def loopback_or_off(text: str) -> str:
    """Like ``listen_or_off``, but raise ValueError for an address that other machines could reach."""
    address = listen_or_off(text)
    if address != OFF and not _is_loopback(split(address)[0]):
        raise ValueError("must be localhost, 127.0.0.0/8 or [::1]: only the app on this machine may send errors")
    return address


def path(text: str) -> str:
    """Return the path unchanged, or raise ValueError if no file can have it."""
    if not text.isprintable():
        raise ValueError("must not have control characters")
    if "://" in text:
        raise ValueError("must be a path, not a URL")
    if len(os.fsencode(text)) > _MAX_PATH:
        raise ValueError(f"must be at most {_MAX_PATH} bytes")
    if any(len(os.fsencode(name)) > _MAX_FILE_NAME for name in text.split("/")):
        raise ValueError(f"must have names of at most {_MAX_FILE_NAME} bytes between its slashes")
    return text


def socket_path(text: str) -> str:
    """Return the path of a unix socket, or ``""`` for none, or raise ValueError."""
    if text and not text.startswith("/"):
        raise ValueError("must be an absolute path")
    path(text)
    if len(os.fsencode(text)) > MAX_SOCKET_PATH:
        raise ValueError(f"must be at most {MAX_SOCKET_PATH} bytes")
    return text


def _checked(host: str, family: type[IPv4Address | IPv6Address]) -> str:
    try:
        return str(family(host))
    except ValueError:
        raise ValueError(_LISTEN_HINT) from None


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:  # a name that only the resolver knows
        return False


# -- URLs --------------------------------------------------------------------------------------------------------------


def masked(url: str, *, is_secret: Callable[[str], bool] = lambda _: True, hides_path: bool = False) -> str:
    """Return a checked URL with ``***`` for the password, for what is behind ``#``, and for values in the query.

    ``is_secret`` tells by the name of an option in the query, as it was written, whether to hide its value. With
    ``hides_path`` everything behind the host is hidden, for URLs whose path is the secret.
    """
    rest, sharp, _ = url.partition("#")
    head, question, query = rest.partition("?")
    scheme, slashes, location = head.partition("://")
    if hides_path:
        location, question, query, sharp = f"{location.partition('/')[0]}/{MASK}", "", "", ""
    login, at, location = location.rpartition("@")
    if login:
        # A name alone is most likely a token, or a password whose colon was forgotten.
        name, colon, _ = login.partition(":")
        login = f"{name}:{MASK}" if colon else MASK
    options = "&".join(_masked_option(option, is_secret) for option in query.split("&"))
    return f"{scheme}{slashes}{login}{at}{location}{question}{options}{sharp}{MASK * bool(sharp)}"


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
