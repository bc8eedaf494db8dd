"""The URL of Redis: checks, splits, compares and masks it.

A comma separates the hosts of a Sentinel or a Cluster.
No message repeats a part of a URL: what looks harmless may be the password.
"""

from __future__ import annotations

import re
from ipaddress import IPv6Address
from typing import Final, NamedTuple
from urllib.parse import parse_qs, unquote, unquote_plus

from sidecar.config.addresses import check_host, check_socket, check_text
from sidecar.config.addresses import masked as masked_url

IN_PROCESS: Final = "in this process"
"""The name of a store without Redis."""

TLS_FILES: Final = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
"""The options that name PEM files: the authorities of Redis, the sidecar's certificate, and its key."""

_MAX_PORT: Final = 65535
_URL: Final = re.compile(
    r"(?P<scheme>rediss?|unix)(?:\+(?P<kind>sentinel|cluster))?://"
    r"(?:(?P<login>[^/?]*)@)?(?P<hosts>[^/?]*)(?P<path>[^?]*)(?:\?(?P<query>.*))?",
    re.IGNORECASE,
)
_SEVERAL: Final = re.compile(r",\s*(?:unix|rediss?)(?:\+sentinel|\+cluster)?://", re.IGNORECASE)
_NOT_PLAIN: Final = re.compile(r"[\s\x00-\x1f\x7f#]")
_HOST: Final = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9_](?:[a-z0-9_.-]*[a-z0-9_.])?))(?::([0-9]{1,5}))?")
_ENCODED: Final = "with reserved characters of a password percent-encoded"
_HINT: Final = f"is not a Redis URL: write redis://host:6379/0, rediss://... or unix:///path, {_ENCODED}"
_ONE_SERVER: Final = (
    "names several servers, but the budget is kept on one: where one machine is not enough, use Redis Sentinel, "
    "redis+sentinel://host,host/name-of-the-master, or Redis Cluster, redis+cluster://host,host"
)


class _Kind(NamedTuple):
    port: int
    path: re.Pattern[str]
    options: tuple[str, ...]
    hint: str


_KINDS: Final = {
    "server": _Kind(6379, re.compile(r"(?:/[0-9]{0,9})?"), ("db", "username", "password"), _HINT),
    "socket": _Kind(
        0,
        re.compile(r"/.+"),
        ("db", "username", "password"),
        "needs a path of three slashes: unix:///run/redis.sock",
    ),
    "sentinel": _Kind(
        26379,
        re.compile(r"/[A-Za-z0-9_.-]+(?:/[0-9]{0,9})?"),
        ("db", "username", "password", "sentinel_username", "sentinel_password"),
        f"is not the URL of a Sentinel: write redis+sentinel://host:26379,host:26379/name-of-the-master, {_ENCODED}",
    ),
    "cluster": _Kind(
        6379,
        re.compile(r"(?:/0?)?"),
        ("username", "password"),
        f"is not the URL of a Cluster: write redis+cluster://host:6379,host:6379, {_ENCODED}",
    ),
}


class RedisUrl(NamedTuple):
    """A URL in its parts; ``login`` and ``query`` as they were written."""

    kind: str  # server, socket, sentinel or cluster
    scheme: str  # redis, rediss or unix
    login: str
    hosts: tuple[tuple[str, int], ...]  # none for a socket
    path: tuple[str, ...]  # the socket's path, or the name of a Sentinel's master; then the database, if it is there
    query: str


def redis_url(text: str) -> str:
    """Return the checked URL, or ``""`` for blank text.

    Raises ValueError for a URL that libraries could read in another way, and for several URLs.
    """
    url = text.strip()
    if url:
        split(url)
    return url


def split(url: str) -> RedisUrl:
    """Split a URL, or raise ValueError."""
    if _SEVERAL.search(url):
        raise ValueError(_ONE_SERVER)
    if _NOT_PLAIN.search(url):
        raise ValueError(_HINT)
    check_text(url)
    match = _URL.fullmatch(url)
    if not match:
        raise ValueError(_HINT)
    scheme, path, query = match["scheme"].lower(), match["path"], match["query"] or ""
    name = (match["kind"] or ("socket" if scheme == "unix" else "server")).lower()
    kind = _KINDS[name]
    if (name == "socket") is not (scheme == "unix"):
        raise ValueError(_HINT)
    if "@" in path + query or not kind.path.fullmatch(path):
        raise ValueError(kind.hint)
    hosts = _hosts(name, match["hosts"].lower())
    if name == "socket":
        check_socket(unquote(path))  # redis-py unquotes it as well
    _check_options(query, kind.options, has_tls=scheme == "rediss")
    parts = (path,) if name == "socket" else tuple(filter(None, path.split("/")))
    return RedisUrl(name, scheme, match["login"] or "", hosts, parts, query)


def masked(url: str) -> str:
    """Return a checked URL with ``***`` for each password, also for one in the query string."""
    return masked_url(url, is_secret=lambda name: "password" in unquote_plus(name))


def shown(url: str) -> str:
    """Return the name of the store for the log and the page: a checked URL without secrets, or ``IN_PROCESS``."""
    return masked(url) if url else IN_PROCESS


def has_password(url: str) -> bool:
    """Whether a checked URL holds the password of a data node itself."""
    parts = split(url)
    return ":" in parts.login or "password" in parse_qs(parts.query)


def tls_files(url: str) -> dict[str, str]:
    """Return the paths of the PEM files that a checked URL names, by option."""
    options = parse_qs(split(url).query)
    return {name: options[name][0] for name in TLS_FILES if name in options}


def is_cluster(url: str) -> bool:
    """Whether a checked URL leads to a Cluster."""
    return url.partition("://")[0].lower().endswith("+cluster")


def place(url: str) -> tuple[object, ...]:
    """Return what identifies the server of a checked URL: two URLs of one server give the same value.

    Its text is the same in every process.
    """
    parts = split(url)
    options = parse_qs(parts.query)
    if parts.kind == "server":
        return (*parts.hosts[0], _db(parts.path, options))
    if parts.kind == "socket":
        return (*parts.path, _db((), options))
    master, database = (parts.path[:1], parts.path[1:]) if parts.kind == "sentinel" else ((), ())  # a Cluster has one
    return (parts.kind, tuple(sorted(parts.hosts)), *master, _db(database, options))


def _db(path: tuple[str, ...], options: dict[str, list[str]]) -> str:
    """Return the database as text, because it may not be a number."""
    return options.get("db", [*path, ""])[0].lstrip("0")


def _hosts(name: str, text: str) -> tuple[tuple[str, int], ...]:
    kind = _KINDS[name]
    if name == "socket":
        if text:
            raise ValueError(kind.hint)
        return ()
    if name == "server" and "," in text:
        raise ValueError(_ONE_SERVER)
    hosts = tuple(_host(host, kind) for host in text.split(","))
    if len(set(hosts)) < len(hosts):
        raise ValueError("names a host twice")
    return hosts


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


def _check_options(query: str, allowed: tuple[str, ...], *, has_tls: bool) -> None:
    """Refuse other options: time-outs and retries in the URL would override those that a claim relies on."""
    for option in query.split("&") if query else ():
        name = unquote_plus(option.partition("=")[0])
        if name not in allowed and not re.fullmatch(r"ssl_[a-z_]+", name):
            raise ValueError(f"takes only the options {', '.join(allowed)} and ssl_... behind the question mark")
        if name not in allowed and not has_tls:
            raise ValueError("takes the options ssl_... only with rediss://")
