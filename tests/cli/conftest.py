"""Sidecars in threads of the tests, for the commands beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.sidecar_thread import SidecarThread

StartThread = Callable[..., SidecarThread]
"""Starts a sidecar; the name is the instance, and the settings are those of the daemon in lower case."""


@pytest.fixture
def start_thread(run_dir: Path) -> Iterator[StartThread]:
    started: list[SidecarThread] = []

    def start(name: str = "a", **settings: str | float | Path) -> SidecarThread:
        started.append(SidecarThread(run_dir, name, **settings))
        return started[-1].start()

    yield start
    for sidecar in started:
        sidecar.stop()
