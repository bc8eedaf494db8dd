"""How many connections the limit of file descriptors leaves room for."""

from __future__ import annotations

import resource
from typing import Final

RESERVED: Final = 40
"""For everything else: log, state file, sockets that listen, Redis, a scrape, a message, the standby's link."""

LEAST: Final = 4


def allowed(wanted: int) -> int:
    """Raise our own limit as far as is of use and may be; the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return wanted
    if soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return soft


def share(most: int, of_all: int, limit: int) -> int:
    """How many connections a door may have that wants ``most`` of ``of_all``, when so many files may be open."""
    return max(LEAST, min(most, most * (limit - RESERVED) // of_all))
