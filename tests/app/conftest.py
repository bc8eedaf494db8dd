"""The daemon in the loop of a test."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial

import pytest

from harness.composition import Serving, serving

Start = Callable[..., AbstractAsyncContextManager[Serving]]


@pytest.fixture
def start(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Serves with the settings that it is called with."""
    return partial(serving, caplog, monkeypatch)
