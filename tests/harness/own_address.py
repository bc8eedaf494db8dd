"""An address of this machine that is not loopback. Traffic between addresses of one machine never leaves it."""

from __future__ import annotations

import os
import socket
from contextlib import suppress

import pytest

_ELSEWHERE = ("203.0.113.1", 9)
"""An address for documentation (RFC 5737). A datagram socket that is connected sends nothing."""


def own_address() -> str:
    """An IPv4 address of this machine. Without a network the test is skipped, and under ``CI=true`` it fails."""
    found: list[str] = []
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(_ELSEWHERE)
        found.append(probe.getsockname()[0])
    with suppress(OSError):
        found += [str(row[4][0]) for row in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)]
    address = next((each for each in found if not each.startswith("127.")), None)
    if address is not None:
        return address
    message = "this machine has no address but loopback"
    if os.environ.get("CI") == "true":
        pytest.fail(f"{message}, and under CI=true that is a failure", pytrace=False)
    pytest.skip(message)
