"""Where listeners stand and where Redis lives: text as people write it, checked and normalised.

No message in here repeats what it was given of a Redis URL: a part that looks harmless may be the password.
"""

from __future__ import annotations

import os
import re
from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import SplitResult, unquote_plus, urlsplit

OFF = "off"
_MAX_PORT = 65535
_HOST = re.compile(r"[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?")
_LISTEN_HINT = "is not an address: write host:port or [v6]:port, with a port of 0 to 65535"
_MAX_SOCKET_PATH = 107  # sun_path of unix(7) holds 108 bytes with the final zero
_LOCALHOST = (IPv4Address("127.0.0.1"), IPv6Address("::1"))

_SCHEMES = ("redis", "rediss", "unix")
_SEVERAL = re.compile(rf",\s*(?:{'|'.join(_SCHEMES)})://", re.IGNORECASE)
_REDIS_HINT = (
    "is not a Redis URL: write redis://host:6379/0, rediss://... or unix:///path, "
    "with reserved characters of a password percent-encoded"
)
_MASK = "***"


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
    return host, int(port)


def listen(text: str) -> str:
    """Return a listen address in its one normal form, or raise ValueError."""
    host, port = split(text)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def listen_or_off(text: str) -> str:
    """Return a listen address in its one normal form or ``off``, or raise ValueError."""
    return OFF if text.strip().lower() == OFF else listen(text)


def loopback_or_off(text: str) -> str:
    """Like listen_or_off, and refuse what other machines could reach."""
    address = listen_or_off(text)
    if address != OFF and not all(_is_loopback(ip) for ip in _ips(split(address)[0])):
        raise ValueError("must be localhost, 127.0.0.0/8 or [::1]: only the app on this machine may send errors")
    return address


def overlap(one: str, other: str) -> bool:
    """Whether two listeners cannot both bind: same port, and the same host or one that stands for all.

    Port 0 lets the kernel choose and meets nobody. The two families never meet: asyncio binds v6 as v6 only.
    """
    if OFF in (one, other):
        return False
    (host, port), (other_host, other_port) = split(one), split(other)
    if port != other_port or port == 0:
        return False
    return any(_meet(a, b) for a in _ips(host) for b in _ips(other_host))


def path(text: str) -> str:
    """Return a path as it is, or raise ValueError for what no file system call would take."""
    if not text.isprintable():
        raise ValueError("must not have control characters")
    return text


def socket_path(text: str) -> str:
    """Return the path of a unix socket, or ``""`` for none, or raise ValueError."""
    if text and not text.startswith("/"):
        raise ValueError("must be an absolute path")
    if len(os.fsencode(text)) > _MAX_SOCKET_PATH:
        raise ValueError(f"must be at most {_MAX_SOCKET_PATH} bytes")
    return path(text)


def redis_url(text: str) -> str:
    """Return the URL when redis-py would read it as it was meant, ``""`` for none, or raise ValueError."""
    text = text.strip()
    if not text:
        return ""
    if _SEVERAL.search(text):
        raise ValueError("several servers are not supported yet: give one URL")
    if re.search(r"[\s\x00-\x1f]", text):
        raise ValueError(_REDIS_HINT)
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        # urllib repeats the piece it stumbled over, which may well be the password.
        raise ValueError(_REDIS_HINT) from None
    _check_place(parts, port)
    return text


def masked(url: str) -> str:
    """Return a checked Redis URL with ``***`` for its password, also for one in the query string."""
    head, question, query = url.partition("?")
    scheme, slashes, rest = head.partition("://")
    login, at, place = rest.rpartition("@")
    if login:
        # A name alone is most likely a password whose colon was forgotten.
        name, colon, _ = login.partition(":")
        login = f"{name}:{_MASK}" if colon else _MASK
    options = "&".join(_masked_option(option) for option in query.split("&"))
    return f"{scheme}{slashes}{login}{at}{place}{question}{options}"


def _check_place(parts: SplitResult, port: int | None) -> None:
    local = parts.scheme == "unix"
    stray = "@" in parts.path + parts.query or parts.fragment
    if parts.scheme not in _SCHEMES or stray or port == 0:
        raise ValueError(_REDIS_HINT)
    if local and (parts.hostname or parts.path in ("", "/")):
        raise ValueError("needs a path of three slashes: unix:///run/redis.sock")
    if not local and not (parts.hostname and re.fullmatch(r"(/[0-9]*)?", parts.path)):
        raise ValueError(_REDIS_HINT)
    for option in parts.query.split("&") if parts.query else ():
        if not re.fullmatch(r"db|username|password|ssl_[a-z_]+", _option_name(option)):
            # Time-outs and retries given in the URL would override those a claim relies on.
            raise ValueError("takes only the options db, username, password and ssl_... behind the question mark")


def _option_name(option: str) -> str:
    return unquote_plus(option.partition("=")[0])


def _masked_option(option: str) -> str:
    return f"{option.partition('=')[0]}={_MASK}" if "password" in _option_name(option) else option


def _checked(host: str, family: type[IPv4Address | IPv6Address]) -> str:
    try:
        return str(family(host))
    except ValueError:
        raise ValueError(_LISTEN_HINT) from None


def _ips(host: str) -> tuple[IPv4Address | IPv6Address | str, ...]:
    """Return what a host binds, as far as it can be known without asking the resolver."""
    if host == "localhost":
        return _LOCALHOST
    try:
        return (ip_address(host),)
    except ValueError:
        return (host,)


def _is_loopback(ip: IPv4Address | IPv6Address | str) -> bool:
    return not isinstance(ip, str) and ip.is_loopback


def _meet(one: IPv4Address | IPv6Address | str, other: IPv4Address | IPv6Address | str) -> bool:
    if isinstance(one, str) or isinstance(other, str):
        return one == other
    return one.version == other.version and (one == other or one.is_unspecified or other.is_unspecified)
