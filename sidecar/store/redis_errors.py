"""Maps a failure of Redis to one word, the same in metrics, in the log and in answers."""

from __future__ import annotations

import os
import re
from socket import gaierror
from ssl import SSLEOFError, SSLError, SSLZeroReturnError
from typing import Final

from redis import exceptions as theirs
from redis.asyncio.sentinel import MasterNotFoundError

from sidecar.store.credentials import SecretError

# In this order, because redis-py derives some of these from others.
_WORDS: Final[tuple[tuple[type[BaseException], str], ...]] = (
    (TimeoutError, "timeout"),
    (theirs.TimeoutError, "timeout"),
    (SecretError, "secret"),
    (theirs.AuthenticationError, "auth"),
    (theirs.AuthenticationWrongNumberOfArgsError, "auth"),
    (theirs.AuthorizationError, "auth"),
    (theirs.NoPermissionError, "permission"),
    (theirs.ReadOnlyError, "readonly"),
    (theirs.MasterDownError, "readonly"),
    (theirs.OutOfMemoryError, "oom"),
    (theirs.BusyLoadingError, "loading"),
    (theirs.ClusterError, "cluster"),
    (theirs.RedisClusterException, "cluster"),
    (theirs.TryAgainError, "cluster"),
    (theirs.AskError, "cluster"),
    (MasterNotFoundError, "sentinel"),
    (theirs.ConnectionError, "connection"),
    (theirs.RedisError, "response"),
    (SSLEOFError, "connection"),
    (SSLZeroReturnError, "connection"),
    (SSLError, "tls"),
    (OSError, "connection"),
)
_WRAPPERS: Final = (theirs.ConnectionError, theirs.RedisClusterException)
"""redis-py wraps in these the failures of a connection attempt, or of a question about a Cluster or a master."""
# Errors without a class in redis-py, or errors that servers before 7 wrap with their place in the script. A permission
# that a script lacks has three texts: those of Redis 6.2, of 7.0, and since 7.2 "ACL failure in script".
# A client that has not logged in may send ten words at a time; more of them are a "Protocol error".
_MESSAGE: Final = re.compile(
    r"(?:^|: -?)(?:(?P<busy>BUSY)|(?P<oom>OOM)|(?P<readonly>READONLY)|(?P<permission>NOPERM|The user executing"
    r"|ACL failure in script)|(?P<auth>unauthenticated))\b"
)
# Sentinel collects in a text why no Sentinel named the master.
_OF_SENTINELS: Final = re.compile(r"(?P<auth>Authentication\w*Error)|(?P<tls>\[SSL: )")


_ARGUMENTS: Final = re.compile(r",? with args beginning with.*")
"""A server that does not know AUTH repeats the password."""

_MOST_SAID: Final = 200


def error_word(error: BaseException) -> str:
    """The word for what ``RedisClient.ask`` raised; ``internal`` when it did not come from Redis."""
    inner = error.__cause__ or error.__context__
    if type(error) in _WRAPPERS and inner is not None and (word := error_word(inner)) != "internal":
        return word
    if type(error) is theirs.ResponseError and (said := _MESSAGE.search(str(error))):
        return str(said.lastgroup)
    if isinstance(error, MasterNotFoundError) and (said := _OF_SENTINELS.search(str(error))):
        return str(said.lastgroup)
    return next((word for kind, word in _WORDS if isinstance(error, kind)), "internal")


def message(error: BaseException) -> str:
    """What Redis or the network said, in one line, without redis-py's frame and without arguments of a command."""
    inner = error.__cause__ or error.__context__
    if type(error) in _WRAPPERS and inner is not None and error_word(inner) != "internal":
        return message(inner)
    if isinstance(error, gaierror):
        return str(error.strerror)
    if isinstance(error, OSError) and not isinstance(error, SSLError) and error.errno:
        return os.strerror(error.errno)
    text = _ARGUMENTS.sub("", " ".join(str(error).split()))
    return text[:_MOST_SAID] or type(error).__name__
