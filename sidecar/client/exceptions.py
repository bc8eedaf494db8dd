"""The kind, the fingerprint and the text of an exception, and whether it has been reported already."""

from __future__ import annotations

import re
import time
from binascii import crc32
from collections.abc import Iterator, Mapping
from functools import lru_cache
from types import CodeType, MappingProxyType, TracebackType
from typing import Any, Final

from .sums import WORD_LIMIT

KINDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        package: kind
        for kind, packages in {
            "redis": ("redis", "aioredis", "rediscluster", "coredis"),
            "mysql": ("pymysql", "MySQLdb", "_mysql", "aiomysql", "asyncmy", "mysql"),
            "mongodb": ("pymongo", "motor", "mongoengine"),
            "rabbitmq": ("pika", "aio_pika", "aiormq", "amqp", "kombu"),
            "postgres": ("psycopg", "psycopg2", "asyncpg", "pg8000"),
            "kafka": ("kafka", "aiokafka", "confluent_kafka"),
            "memcached": ("pymemcache", "memcache", "pylibmc", "aiomcache"),
            "elasticsearch": ("elasticsearch", "elastic_transport", "opensearchpy"),
        }.items()
        for package in packages
    }
)
"""Kind by the top package of the exception's class. For other packages the kind is the name of the class."""

SAME_S: Final = 1.0
"""A second report within this time is the same exception on its way up the stack; a later one was raised again."""

_CHAIN: Final = 8
_FRAMES: Final = 500
_LIBRARY: Final = re.compile(r"/(site|dist)-packages/|/lib/python[0-9]|/(sidecar/client|health_arbiter_client)/|^<")
_MARK: Final = "_arbiter_reported_at"


def kind(error: BaseException) -> str:
    """Return the driver that raised the exception or one of its causes, else the name of its class."""
    for cause in _causes(error):
        driver = KINDS.get(type(cause).__module__.partition(".")[0])
        if driver is not None:
            return driver
    return type(error).__name__[:WORD_LIMIT]


def is_answer(error: BaseException) -> bool:
    """Whether this only sends a status, as Starlette's ``HTTPException`` does, without a failure of a driver."""
    is_http = any(base.__name__ == "HTTPException" for base in type(error).__mro__)
    return is_http and kind(error) == type(error).__name__[:WORD_LIMIT]


def fingerprint(error: BaseException) -> str:
    """Return ``type@module:function:line`` of the innermost frame of the app's own code, at most 64 characters.

    Without such a frame it takes the innermost frame. A long text ends in a checksum, the same in every process.
    """
    name, location = type(error).__name__, _location(error.__traceback__)
    return shortened(f"{name}@{location}" if location else name)


def text(error: BaseException) -> str:
    """Return class and text, or the class alone if the text cannot be had: a ``__str__`` may raise."""
    name = type(error).__name__
    try:
        return f"{name}: {error}"
    except Exception:  # noqa: BLE001 - the report itself matters more
        return name


def shortened(text: str) -> str:
    """Cut a text to 64 characters, with a checksum so that different texts stay different."""
    if len(text) <= WORD_LIMIT:
        return text
    return f"{text[: WORD_LIMIT - 9]}~{crc32(text.encode(errors='replace')):08x}"


def is_first_report(error: BaseException) -> bool:
    """Whether this exception has not been reported yet; marks it as reported.

    An exception that is logged, raised again, answered with a 500 and logged by the server is one error.
    """
    now = time.monotonic()
    reported_at = getattr(error, _MARK, None)
    try:
        setattr(error, _MARK, now)
    except Exception:  # noqa: BLE001 - a class may refuse attributes; then each report counts
        return True
    return reported_at is None or now - reported_at >= SAME_S


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: Any = error
    for _ in range(_CHAIN):
        if not isinstance(cause, BaseException):
            return
        yield cause
        if isinstance(cause, BaseExceptionGroup):
            cause = cause.exceptions[0]
        else:
            # SQLAlchemy keeps the driver's exception in ``orig``.
            implicit = None if cause.__suppress_context__ else cause.__context__
            cause = getattr(cause, "orig", None) or cause.__cause__ or implicit


def _location(traceback: TracebackType | None) -> str:
    own = innermost = None
    for _ in range(_FRAMES):
        if traceback is None:
            break
        innermost = traceback
        if _is_own(traceback.tb_frame.f_code.co_filename):
            own = traceback
        traceback = traceback.tb_next
    last = own or innermost
    if last is None:
        return ""
    code: CodeType = last.tb_frame.f_code
    return f"{last.tb_frame.f_globals.get('__name__', '?')}:{code.co_name}:{last.tb_lineno}"


@lru_cache(maxsize=1024)
def _is_own(filename: str) -> bool:
    return not _LIBRARY.search(filename)
