from __future__ import annotations

import logging
import threading

import pytest

from client.conftest import Listener, Totals
from sidecar.client import ArbiterHandler, report_exception
from sidecar.client.exceptions import shortened
from sidecar.client.exchange import CURRENT, Exchange


@pytest.fixture
def logger() -> logging.Logger:
    """A logger of the app without other handlers."""
    logger = logging.Logger("shop.cart")  # noqa: LOG001 - not one that stays
    logger.addHandler(ArbiterHandler())
    return logger


def _driver_error(text: str) -> Exception:
    error: Exception = type("ConnectionError", (Exception,), {"__module__": "redis.exceptions"})(text)
    return error


def _fail(logger: logging.Logger, error: Exception, text: str = "no cart") -> None:
    try:
        raise error  # noqa: TRY301 - one frame is enough for a traceback
    except Exception:
        logger.exception(text)


@pytest.mark.parametrize(
    ("handler", "level", "sidecar_level"),
    [
        (ArbiterHandler(), logging.CRITICAL, "server_error"),
        (ArbiterHandler(), logging.ERROR, "server_error"),
        (ArbiterHandler(), 35, "investigation"),
        (ArbiterHandler(), logging.WARNING, "investigation"),
        (ArbiterHandler(), logging.INFO, None),
        (ArbiterHandler(logging.INFO), logging.INFO, "investigation"),
        (ArbiterHandler(logging.ERROR), logging.WARNING, None),
    ],
)
def test_level_of_the_log_becomes_a_level_of_the_sidecar(
    handler: ArbiterHandler, level: int, sidecar_level: str | None, totals: Totals, listener: Listener
) -> None:
    logger = logging.Logger("shop")  # noqa: LOG001 - not one that stays
    logger.addHandler(handler)
    logger.log(level, "oops")
    totals()
    assert [(error.level, error.fatal) for error in listener.errors] == [(sidecar_level, False)] * bool(sidecar_level)


def test_exception_gives_kind_fingerprint_and_redacted_message(
    logger: logging.Logger, totals: Totals, listener: Listener
) -> None:
    _fail(logger, _driver_error("bob@example.org"), "password=hunter2")
    assert totals() == {"server_error redis": 1}
    (error,) = listener.errors
    assert error.message == "password=*** ConnectionError: ***"
    line = _fail.__code__.co_firstlineno + 2
    assert error.fingerprint == shortened(f"ConnectionError@{__name__}:_fail:{line}")


def test_record_without_exception_is_known_by_logger_and_place(
    logger: logging.Logger, totals: Totals, listener: Listener
) -> None:
    logger.error("no stock of %s", "tea")
    logging.Logger.error(logger, "gone", exc_info=(None, None, None))
    assert totals() == {"server_error log": 2}
    place = test_record_without_exception_is_known_by_logger_and_place.__code__
    expected = f"log@shop.cart:{place.co_name}:{place.co_firstlineno + 3}"
    assert listener.errors[0].fingerprint == shortened(expected)


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
    assert sum(totals().values()) == 1


class Broken:
    def __str__(self) -> str:
        raise RuntimeError("cannot be shown")


@pytest.mark.parametrize("arguments", [("%d", "x"), ("%s %s", 1), ("%s", Broken())], ids=["type", "number", "str"])
def test_record_that_cannot_be_formatted_counts_and_makes_no_noise(
    arguments: tuple[object, ...], logger: logging.Logger, totals: Totals, capfd: pytest.CaptureFixture[str]
) -> None:
    logger.error(*arguments)
    assert totals() == {"server_error log": 1}
    assert capfd.readouterr() == ("", "")


def test_exception_that_breaks_the_report_counts_all_the_same(logger: logging.Logger, totals: Totals) -> None:
    class HostileError(Exception):
        @property
        def orig(self) -> object:
            raise RuntimeError("no cause")

    _fail(logger, HostileError())
    assert totals() == {"server_error log": 1}


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
    assert sum(totals().values()) == 1


def test_error_in_the_log_stands_for_the_failed_request(logger: logging.Logger) -> None:
    exchange = Exchange()
    token = CURRENT.set(exchange)
    logger.warning("odd")
    assert not exchange.is_reported
    logger.error("bad")
    assert exchange.is_reported
    CURRENT.reset(token)
