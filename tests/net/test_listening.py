"""How the sockets of listeners are bound."""

from __future__ import annotations

import socket
import time
from types import SimpleNamespace

import pytest

from sidecar.net import listening


def test_address_that_is_in_use_for_a_moment_is_bound_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """As that of a killed main, whose lock the kernel frees first."""
    taken = socket.create_server(("127.0.0.1", 0))
    place = taken.getsockname()
    monkeypatch.setattr(listening, "time", SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: taken.close()))
    monkeypatch.setattr(listening, "IN_USE_S", 60)
    (opened,) = listening.bind_tcp(*place)
    assert opened.getsockname() == place
    opened.close()


def test_address_that_stays_in_use_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="in use"):
        listening.bind_tcp(*taken.getsockname())
