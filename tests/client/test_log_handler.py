from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

from client.statsd_receiver import Receiver, Totals
from sidecar.client import ArbiterHandler, report_exception
from sidecar.client.exchange import CURRENT, Exchange

HERE = __name__
PACKAGE = HERE.partition(".")[0]


@pytest.fixture
def logger() -> logging.Logger:
    """A logger of the app without other handlers."""
    logger = logging.Logger("shop.cart")  # noqa: LOG001 - not one that stays
    logger.addHandler(ArbiterHandler())
    return logger


def _line(function: Callable[..., object], offset: int) -> int:
    return function.__code__.co_firstlineno + offset


def _fail(logger: logging.Logger, error: Exception, text: str = "no cart") -> None:
    try:
        raise error  # noqa: TRY301 - one frame is enough for a traceback
    except Exception:
        logger.exception(text)


@pytest.mark.parametrize(
    ("level", "sidecar_level"),
    [
        (logging.CRITICAL, "server_error"),
        (logging.ERROR, "server_error"),
        (35, "investigation"),
        (logging.WARNING, "investigation"),
        (logging.INFO, None),
        (logging.DEBUG, None),
    ],
)
def test_level_of_the_log_becomes_a_level_of_the_sidecar(
    level: int, sidecar_level: str | None, logger: logging.Logger, totals: Totals
) -> None:
    logger.log(level, "oops")
    levels = {tag for line in totals() for tag in line.partition("|")[2].split(",")}
    assert f"level:{sidecar_level}" in levels if sidecar_level else not levels
    assert "fatal:true" not in levels


def test_levels_can_be_chosen(totals: Totals) -> None:
    logger = logging.Logger("shop")  # noqa: LOG001 - not one that stays
    logger.addHandler(ArbiterHandler(levels={logging.ERROR: "investigation", logging.CRITICAL: "server_error"}))
    for level in (logging.WARNING, logging.ERROR, logging.CRITICAL):
        logger.log(level, "oops")
    assert sorted(line.split(",")[0] for line in totals()) == [
        "errors|level:investigation",
        "errors|level:server_error",
    ]


def test_exception_gives_kind_and_fingerprint(logger: logging.Logger, totals: Totals) -> None:
    error = type("ConnectionError", (Exception,), {"__module__": "redis.exceptions"})("refused")
    _fail(logger, error)
    (line,) = totals()
    assert line.startswith("errors|level:server_error,kind:redis,fingerprint:ConnectionError@")
    assert f":_fail:{_line(_fail, 2)}" in line


def test_record_without_exception_is_known_by_logger_and_place(logger: logging.Logger, totals: Totals) -> None:
    logger.error("no stock of %s", "tea")
    here = _line(test_record_without_exception_is_known_by_logger_and_place, 1)
    place = "log@shop.cart:test_record_without_exception_is_known_by_logger_and_place"
    (line,) = totals()
    assert line.startswith("errors|level:server_error,kind:log,fingerprint:log@shop.cart:test_record")
    assert len(f"{place}:{here}") > 64  # and so it ends in a checksum
    assert "~" in line


def test_message_is_redacted(logger: logging.Logger, totals: Totals, receiver: Receiver) -> None:
    _fail(logger, ValueError("bob@example.org"), "password=hunter2")
    totals()
    assert receiver.read()[0].endswith(b",message:password=*** ValueError: ***")


def test_exception_that_is_logged_twice_is_one_error(logger: logging.Logger, totals: Totals) -> None:
    error = KeyError("tea")
    _fail(logger, error)
    _fail(logger, error)
    report_exception(error)
    assert sum(totals().values()) == 1


class Noisy:
    """Logs an error whenever it is shown."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger

    def __str__(self) -> str:
        self._logger.error("shown")
        return "noisy"


def test_handler_does_not_run_into_itself(logger: logging.Logger, totals: Totals) -> None:
    logger.error("%s", Noisy(logger))
    assert sum(totals().values()) == 1
    logger.error("and again")
    assert sum(totals().values()) == 2


class Broken:
    def __str__(self) -> str:
        raise RuntimeError("cannot be shown")


@pytest.mark.parametrize("arguments", [("%d", "x"), ("%s %s", 1), ("%s", Broken())], ids=["type", "number", "str"])
def test_record_that_cannot_be_formatted_counts_and_makes_no_noise(
    arguments: tuple[object, ...], logger: logging.Logger, totals: Totals, capfd: pytest.CaptureFixture[str]
) -> None:
    logger.error(*arguments)
    (line,) = totals()
    assert line.startswith("errors|level:server_error,kind:log,fingerprint:log@shop.cart:test_record")
    assert capfd.readouterr() == ("", "")


def test_exception_that_breaks_the_report_counts_all_the_same(logger: logging.Logger, totals: Totals) -> None:
    class HostileError(Exception):
        @property
        def orig(self) -> object:
            raise RuntimeError("no cause")

    _fail(logger, HostileError())
    assert totals() == {"errors|level:server_error,kind:log": 1}


@pytest.mark.parametrize("exc_info", [True, (None, None, None)], ids=["outside of except", "empty"])
def test_exc_info_without_an_exception_is_a_plain_record(exc_info: Any, logger: logging.Logger, totals: Totals) -> None:
    logger.error("oops", exc_info=exc_info)
    assert [line.split(",")[1] for line in totals()] == ["kind:log"]


def test_thread_that_logs_waits_for_no_other(logger: logging.Logger, totals: Totals) -> None:
    inside, go_on = threading.Event(), threading.Event()

    class Slow:
        def __str__(self) -> str:
            inside.set()
            go_on.wait(60)
            return "slow"

    slow = threading.Thread(target=logger.error, args=("%s", Slow()))
    slow.start()
    assert inside.wait(60)
    logger.error("quick")
    assert sum(totals().values()) == 1
    go_on.set()
    slow.join(60)
    assert sum(totals().values()) == 2


def test_error_in_the_log_stands_for_the_failed_request(logger: logging.Logger) -> None:
    exchange = Exchange()
    token = CURRENT.set(exchange)
    logger.warning("odd")
    assert not exchange.is_reported
    logger.error("bad")
    assert exchange.is_reported
    CURRENT.reset(token)
