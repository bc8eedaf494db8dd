"""The URL of Redis: checks, compares, splits and masks it.

A comma separates the hosts of a Sentinel or a Cluster.
No message repeats a part of a URL: what looks harmless may be the password.
"""

from __future__ import annotations

import re
from ipaddress import IPv6Address
from typing import Final, NamedTuple
from urllib.parse import SplitResult, parse_qs, unquote, unquote_plus, urlsplit

from sidecar.config.addresses import check_host, socket_path
from sidecar.config.urls import check_text
from sidecar.config.urls import masked as masked_url

IN_PROCESS: Final = "in this process"
"""The name of a store without Redis."""

_PLAIN_PORT: Final = 6379
_MAX_PORT: Final = 65535
_NEXT: Final = re.compile(r",\s*(?=(?:unix|rediss?(?:\+sentinel|\+cluster)?)://)", re.IGNORECASE)
_NOT_PLAIN: Final = re.compile(r"[\s\x00-\x1f\x7f#]")
_HOST: Final = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9_](?:[a-z0-9_.-]*[a-z0-9_])?))(?::([0-9]{1,5}))?")
_ENCODED: Final = "with reserved characters of a password percent-encoded"
_HINT: Final = f"is not a Redis URL: write redis://host:6379/0, rediss://... or unix:///path, {_ENCODED}"
_ONE_SERVER: Final = (
    "names several servers, but the budget is kept on one: where one machine is not enough, use Redis Sentinel, "
    "redis+sentinel://host,host/name-of-the-master, or Redis Cluster, redis+cluster://host,host"
)
_PLAIN_OPTIONS: Final = re.compile(r"db|username|password|ssl_[a-z_]+")
_PLAIN_OPTIONS_HINT: Final = "takes only the options db, username, password and ssl_... behind the question mark"


class _Kind(NamedTuple):
    port: int
    path: re.Pattern[str]
    options: re.Pattern[str]
    hint: str
    options_hint: str


_KINDS: Final = {
    "sentinel": _Kind(
        26379,
        re.compile(r"/[A-Za-z0-9_.-]+(?:/[0-9]{0,9})?"),
        re.compile(r"db|username|password|sentinel_username|sentinel_password|ssl_[a-z_]+"),
        f"is not the URL of a Sentinel: write redis+sentinel://host:26379,host:26379/name-of-the-master, {_ENCODED}",
        "takes only the options db, username, password, sentinel_username, sentinel_password and ssl_... "
        "behind the question mark",
    ),
    "cluster": _Kind(
        _PLAIN_PORT,
        re.compile(r"(?:/0?)?"),
        re.compile(r"username|password|ssl_[a-z_]+"),
        f"is not the URL of a Cluster: write redis+cluster://host:6379,host:6379, {_ENCODED}",
        "takes only the options username, password and ssl_... behind the question mark",
    ),
}


class HostList(NamedTuple):
    """The URL of a Sentinel or a Cluster in its parts; ``login`` and ``query`` as they were written."""

    kind: str
    scheme: str
    login: str
    hosts: tuple[tuple[str, int], ...]
    path: tuple[str, ...]
    query: str


def redis_url(text: str) -> str:
    """Return the checked URL, or ``""`` for blank text.

    Raises ValueError for a URL that libraries could read in another way, and for several URLs.
    """
    url = text.strip()
    if _NEXT.search(url):
        raise ValueError(_ONE_SERVER)
    return _checked(url) if url else ""


def masked(url: str) -> str:
    """Return a checked URL with ``***`` for each password, also for one in the query string."""
    return masked_url(url, is_secret=_is_password)


def shown(url: str) -> str:
    """Return the name of the store for the log and the page: a checked URL without secrets, or ``IN_PROCESS``."""
    return masked(url) if url else IN_PROCESS


def has_password(url: str) -> bool:
    """Whether a checked URL holds the password of a data node itself."""
    head, _, query = url.partition("?")
    login = head.partition("://")[2].rpartition("@")[0]
    return ":" in login or any(_option_name(option) == "password" for option in query.split("&"))


def is_cluster(url: str) -> bool:
    """Whether a checked URL leads to a Cluster."""
    return url.partition("://")[0].lower().endswith("+cluster")


def host_list(url: str) -> HostList:
    """Split the URL of a Sentinel or a Cluster, or raise ValueError."""
    scheme, _, rest = url.partition("://")
    name, _, kind_name = scheme.lower().partition("+")
    if name not in ("redis", "rediss") or kind_name not in _KINDS:
        raise ValueError(_HINT)
    kind = _KINDS[kind_name]
    head, _, query = rest.partition("?")
    place, slash, path = head.partition("/")
    login, _, hosts = place.rpartition("@")
    if "@" in path + query or not kind.path.fullmatch(slash + path):
        raise ValueError(kind.hint)
    _check_options(query, kind.options, kind.options_hint)
    pairs = tuple(_host(host, kind) for host in hosts.lower().split(","))
    if len(set(pairs)) < len(pairs):
        raise ValueError("names a host twice")
    return HostList(kind_name, name, login, pairs, tuple(filter(None, path.split("/"))), query)


def _checked(url: str) -> str:
    if _NOT_PLAIN.search(url):
        raise ValueError(_HINT)
    check_text(url)
    if _has_kind(url):
        host_list(url)
        return url
    try:
        parts = urlsplit(url)
        hosts = parts.netloc.rpartition("@")[2]
        port = None if "," in hosts else parts.port
    except ValueError:
        # the error of urllib repeats a part of the URL, which may be the password.
        raise ValueError(_HINT) from None
    _check_place(parts, port)
    if "," in hosts:
        raise ValueError(_ONE_SERVER)
    return url


def _has_kind(url: str) -> bool:
    return "+" in url.partition("://")[0]


def _check_place(parts: SplitResult, port: int | None) -> None:
    local = parts.scheme == "unix"
    stray = "@" in parts.path + parts.query
    if parts.scheme not in ("redis", "rediss", "unix") or stray or port == 0:
        raise ValueError(_HINT)
    if local and (parts.hostname or parts.path in ("", "/")):
        raise ValueError("needs a path of three slashes: unix:///run/redis.sock")
    if local:
        _check_socket(unquote(parts.path))  # redis-py unquotes it as well
    elif not (parts.hostname and re.fullmatch(r"(/[0-9]{0,9})?", parts.path)):
        raise ValueError(_HINT)
    else:
        check_host(parts.hostname)
    _check_options(parts.query, _PLAIN_OPTIONS, _PLAIN_OPTIONS_HINT)


def _check_socket(path: str) -> None:
    try:
        socket_path(path)
    except ValueError as error:
        raise ValueError(f"names a socket whose path {error}") from None


def _check_options(query: str, allowed: re.Pattern[str], hint: str) -> None:
    """Refuse other options: time-outs and retries in the URL would override those that a claim relies on."""
    if not all(allowed.fullmatch(_option_name(option)) for option in query.split("&") if query):
        raise ValueError(hint)


def _host(text: str, kind: _Kind) -> tuple[str, int]:
    match = _HOST.fullmatch(text)
    port = int(match[3] or kind.port) if match else 0
    if not match or not 0 < port <= _MAX_PORT:
        raise ValueError(kind.hint)
    check_host(match[2] or "")
    try:
        return str(IPv6Address(match[1])) if match[1] else match[2], port
    except ValueError:
        raise ValueError(kind.hint) from None


def place(url: str) -> tuple[object, ...]:
    """Return what identifies the server of a checked URL: two URLs of one server give the same value.

    Its text is the same in every process.
    """
    if _has_kind(url):
        several = host_list(url)
        return (several.kind, tuple(sorted(several.hosts)), *several.path[:1], _db(several.path[1:], several.query))
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return (parts.path, _db((), parts.query))
    return (parts.hostname, parts.port or _PLAIN_PORT, _db((parts.path.strip("/"),), parts.query))


def _db(path: tuple[str, ...], query: str) -> str:
    """Return the database as text, because it may not be a number."""
    return parse_qs(query).get("db", [*path, ""])[0].lstrip("0")


def _option_name(option: str) -> str:
    return unquote_plus(option.partition("=")[0])


def _is_password(name: str) -> bool:
    return "password" in unquote_plus(name)
