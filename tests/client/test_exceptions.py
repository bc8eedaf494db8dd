from __future__ import annotations

import re
import subprocess
from collections.abc import Callable

import pytest

from sidecar.client import exceptions


def _of(module: str, name: str = "ConnectionError") -> type[Exception]:
    """A class as another package would define it."""
    return type(name, (Exception,), {"__module__": module})


def _raised(raising: Callable[[], object]) -> BaseException:
    try:
        raising()
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is what was asked for
        return error
    raise AssertionError("nothing was raised")


def _caused(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


def _in_context(error: BaseException, context: BaseException, *, suppressed: bool = False) -> BaseException:
    error.__context__ = context
    error.__suppress_context__ = suppressed
    return error


def _original(error: BaseException, orig: object) -> BaseException:
    error.orig = orig  # type: ignore[attr-defined]  # as SQLAlchemy does it
    return error


REDIS = _of("redis.exceptions")()


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (REDIS, "redis"),
        (_of("pymysql.err")(), "mysql"),
        (_of("MySQLdb")(), "mysql"),
        (_of("redistribution.errors", "Oops")(), "Oops"),
        (KeyError("a"), "KeyError"),
        (_of("shop", "X" * 100)(), "X" * 64),
        (_caused(RuntimeError(), REDIS), "redis"),
        (_caused(RuntimeError(), _caused(ValueError(), REDIS)), "redis"),
        (_in_context(RuntimeError(), REDIS), "redis"),
        (_in_context(RuntimeError(), REDIS, suppressed=True), "RuntimeError"),
        (_original(_of("sqlalchemy.exc", "OperationalError")(), _of("pymysql.err")()), "mysql"),
        (_original(RuntimeError(), "a text"), "RuntimeError"),
        (ExceptionGroup("two", [REDIS, KeyError()]), "redis"),
    ],
    ids=lambda value: value if isinstance(value, str) else f"{type(value).__module__}.{type(value).__name__[:20]}",
)
def test_kind_names_the_driver_or_the_class(error: BaseException, kind: str) -> None:
    assert exceptions.kind(error) == kind


def test_text_is_class_and_message_or_the_class_alone() -> None:
    class UnspeakableError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    assert [exceptions.text(error) for error in (KeyError("a"), UnspeakableError())] == [
        "KeyError: 'a'",
        "UnspeakableError",
    ]


def test_circle_of_causes_ends() -> None:
    first, second = RuntimeError(), ValueError()
    first.__cause__, second.__cause__ = second, first
    assert exceptions.kind(first) == "RuntimeError"


def _own() -> None:
    raise LookupError("gone")


def _through_a_library() -> None:
    subprocess.run(["/nonexistent"], check=True)


def test_fingerprint_is_type_and_place() -> None:
    line = _own.__code__.co_firstlineno + 1
    assert exceptions.fingerprint(_raised(_own)) == f"LookupError@{__name__}:_own:{line}"[:64]


def test_place_is_in_the_code_of_the_app_not_of_a_library() -> None:
    line = _through_a_library.__code__.co_firstlineno + 1
    expected = exceptions.shortened(f"FileNotFoundError@{__name__}:_through_a_library:{line}")
    assert exceptions.fingerprint(_raised(_through_a_library)) == expected


def test_without_own_code_the_innermost_place_is_used() -> None:
    error = _raised(_through_a_library)
    assert error.__traceback__
    assert error.__traceback__.tb_next
    library_only = error.with_traceback(error.__traceback__.tb_next.tb_next)
    place = exceptions.fingerprint(library_only)
    assert re.fullmatch(r"FileNotFoundError@subprocess:(_execute_child|_posix_spawn):\d+", place), place


@pytest.mark.parametrize("text", ["x" * 65, "x" * 1_000, "\u00e9" * 70, "\ud800" * 70], ids=["65", "1000", "e", "half"])
def test_long_fingerprint_is_shortened_and_stays_distinct(text: str) -> None:
    short, other = exceptions.shortened(text), exceptions.shortened(text + "y")
    assert len(short) == len(other) == 64
    assert short != other


def test_exception_is_first_report_once_and_again_when_it_is_raised_later() -> None:
    error = KeyError("a")
    assert [exceptions.is_first_report(error) for _ in range(3)] == [True, False, False]
    assert exceptions.is_first_report(KeyError("a"))
    error._arbiter_reported_at -= exceptions.SAME_S  # type: ignore[attr-defined]  # long ago
    assert exceptions.is_first_report(error)


def test_exception_that_takes_no_mark_is_always_news() -> None:
    class Stubborn(Exception):  # noqa: N818 - short
        def __setattr__(self, name: str, value: object) -> None:
            raise TypeError(name)

    error = Stubborn()
    assert exceptions.is_first_report(error)
    assert exceptions.is_first_report(error)
