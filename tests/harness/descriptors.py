"""A process without a free descriptor."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_free_descriptor() -> Iterator[None]:
    """Let this process open nothing more while the context lasts. With a limit of 0 no thread could poll, either."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    least_free = os.dup(0)
    os.close(least_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (least_free, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
