"""The URL of Redis: checks, splits, compares and masks it.

A comma separates the hosts of a Sentinel or a Cluster. A URL that redis-py could read in another way is refused. No
message repeats a part of a URL: what looks harmless may be the password.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from urllib.parse import parse_qs, unquote, unquote_plus

from sidecar.config import addresses

IN_PROCESS: Final = "in this process"
"""The name of a store without Redis."""

TLS_FILES: Final = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
"""The options that name PEM files: the authorities of Redis, the sidecar's certificate, and its key."""

_ENCODED: Final = "with reserved characters of a password percent-encoded"
_HINT: Final = f"is not a Redis URL: write redis://host:6379/0, rediss://... or unix:///path, {_ENCODED}"
_ONE_SERVER: Final = (
    "names several servers, but the budget is kept on one: where one machine is not enough, use Redis Sentinel, "
    "redis+sentinel://host,host/name-of-the-master, or Redis Cluster, redis+cluster://host,host"
)


class _Kind(NamedTuple):
    name: str
    port: int  # of a host without one
    path: re.Pattern[str]  # the socket, or the name of a Sentinel's master; and the database
    options: tuple[str, ...]  # those behind the question mark, besides ssl_...
    hint: str


_SERVER: Final = _Kind("server", 6379, re.compile(r"()/?([0-9]{0,9})"), ("db", "username", "password"), _HINT)
_SOCKET: Final = _Kind(
    "socket",
    0,
    re.compile(r"(/.+)()"),
    ("db", "username", "password"),
    "needs a path of three slashes: unix:///run/redis.sock",
)
_SENTINEL: Final = _Kind(
    "sentinel",
    26379,
    re.compile(r"/([A-Za-z0-9_.-]+)(?:/([0-9]{0,9}))?"),
    ("db", "username", "password", "sentinel_username", "sentinel_password"),
    f"is not the URL of a Sentinel: write redis+sentinel://host:26379,host:26379/name-of-the-master, {_ENCODED}",
)
_CLUSTER: Final = _Kind(
    "cluster",
    6379,
    re.compile(r"()/?(0?)"),
    ("username", "password"),
    f"is not the URL of a Cluster: write redis+cluster://host:6379,host:6379, {_ENCODED}",
)
_SCHEMES: Final = {
    "unix": _SOCKET,
    **{
        redis + suffix: kind
        for redis in ("redis", "rediss")
        for suffix, kind in (("", _SERVER), ("+sentinel", _SENTINEL), ("+cluster", _CLUSTER))
    },
}


class RedisUrl(NamedTuple):
    """A checked URL in its parts; ``login`` and ``query`` as they were written."""

    kind: str  # server, socket, sentinel or cluster
    scheme: str  # redis, rediss or unix
    login: str
    hosts: tuple[tuple[str, int], ...]  # none for a socket
    name: str  # the socket's path, or the name of a Sentinel's master
    database: str  # "" if the path has none
    query: str

    @property
    def options(self) -> dict[str, str]:
        """The options behind the question mark; of two with one name redis-py takes the first."""
        return {name: values[0] for name, values in parse_qs(self.query).items()}

    @property
    def has_password(self) -> bool:
        """Whether it holds the password of a data node itself."""
        return ":" in self.login or "password" in self.options

    @property
    def tls_files(self) -> dict[str, str]:
        """The paths of the PEM files that it names, by option."""
        return {name: path for name, path in self.options.items() if name in TLS_FILES}

    @property
    def address(self) -> tuple[object, ...]:
        """What identifies the server: two URLs of one server give the same, which is the same text in every process."""
        database = self.options.get("db", self.database).lstrip("0")  # as text, because it may not be a number
        if self.kind == "server":
            return (*self.hosts[0], database)
        if self.kind == "socket":
            return (self.name, database)
        return (self.kind, tuple(sorted(self.hosts)), *filter(None, (self.name,)), database)


def redis_url(text: str) -> str:
    """Return the checked URL, or ``""`` for blank text. Raises ValueError as ``split``."""
    url = text.strip()
    if url:
        split(url)
    return url


def split(url: str) -> RedisUrl:
    """Split a URL, or raise ValueError."""
    if url.count("://") > 1:
        raise ValueError(_ONE_SERVER)
    addresses.check_text(url)
    scheme, _, rest = url.partition("://")
    kind = _SCHEMES.get(scheme.lower())
    if kind is None or "#" in rest:
        raise ValueError(_HINT)
    head, _, query = rest.partition("?")
    login, _, location = head.rpartition("@")
    hosts, slash, behind = location.partition("/")
    path = kind.path.fullmatch(slash + behind)
    if not path or "/" in login or "@" in query:
        raise ValueError(kind.hint)
    if kind is _SOCKET:
        addresses.check_socket(unquote(path[1]))  # redis-py unquotes it as well
    redis = scheme.lower().partition("+")[0]
    _check_options(query, kind.options, has_tls=redis == "rediss")
    return RedisUrl(kind.name, redis, login, _hosts(hosts, kind), path[1], path[2] or "", query)


def is_cluster(url: str) -> bool:
    """Whether a checked URL, if there is one, leads to a Cluster."""
    return bool(url) and split(url).kind == "cluster"


def masked(url: str) -> str:
    """Return a checked URL with ``***`` for each password, also for one in the query string."""
    return addresses.masked(url, is_secret=lambda name: "password" in unquote_plus(name))


def shown(url: str) -> str:
    """Return the name of the store for the log and the page: a checked URL without secrets, or ``IN_PROCESS``."""
    return masked(url) if url else IN_PROCESS


def _hosts(text: str, kind: _Kind) -> tuple[tuple[str, int], ...]:
    if kind is _SOCKET:
        if text:
            raise ValueError(kind.hint)
        return ()
    if kind is _SERVER and "," in text:
        raise ValueError(_ONE_SERVER)
    hosts = tuple(_host(host, kind) for host in text.split(","))
    if len(set(hosts)) < len(hosts):
        raise ValueError("names a host twice")
    return hosts


def _host(text: str, kind: _Kind) -> tuple[str, int]:
    has_port = re.search(r":[0-9]+$", text)
    try:
        host, port = addresses.split(text if has_port else f"{text}:{kind.port}")
    except ValueError:
        raise ValueError(kind.hint) from None
    if not port:
        raise ValueError(kind.hint)
    return host, port


def _check_options(query: str, allowed: tuple[str, ...], *, has_tls: bool) -> None:
    """Refuse other options: time-outs and retries in the URL would contradict those that a claim relies on."""
    for option in query.split("&") if query else ():
        name = unquote_plus(option.partition("=")[0])
        if name not in allowed and not re.fullmatch(r"ssl_[a-z_]+", name):
            raise ValueError(f"takes only the options {', '.join(allowed)} and ssl_... behind the question mark")
        if name not in allowed and not has_tls:
            raise ValueError("takes the options ssl_... only with rediss://")
