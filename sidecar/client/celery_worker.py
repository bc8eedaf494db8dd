"""Reporting for Celery: a task that fails or is retried is an error, every task is a result."""

from __future__ import annotations

from typing import Any

from celery import signals

from .exchange import report_exception
from .reporting import announce_start, results


def arbiter_celery() -> None:
    """Report the tasks of this worker. Call it where the Celery app is made, before the worker starts its processes.

    A retry is an error too: a task that finds its database gone is retried again and again, and never fails.
    """
    signals.task_success.connect(_succeeded, weak=False, dispatch_uid="health-arbiter-success")
    signals.task_failure.connect(_failed, weak=False, dispatch_uid="health-arbiter-failure")
    signals.task_retry.connect(_retried, weak=False, dispatch_uid="health-arbiter-retry")
    announce_start()


def _succeeded(**_: object) -> None:
    results(ok=1)


def _failed(exception: BaseException | None = None, **_: object) -> None:
    if exception is not None:
        report_exception(exception)
    results(failed=1)


def _retried(reason: Any = None, **_: object) -> None:
    """``reason`` is Celery's exception ``Retry``, which keeps that of the task."""
    _failed(getattr(reason, "exc", None) or reason)
