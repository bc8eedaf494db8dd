"""Where the real servers are, and what happens to a test without its server."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

# The PATH of a plain user often lacks these; haproxy is there.
_SBIN = ("/usr/local/sbin", "/usr/sbin", "/sbin")
_FAKETIME = "libfaketimeMT.so.1"


def find(binary: str) -> str | None:
    """Path of a program, or of libfaketime for ``faketime``; None when it is not installed."""
    if binary == "faketime":
        libraries = sorted(Path("/usr").glob(f"lib*/faketime/{_FAKETIME}"))
        libraries += sorted(Path("/usr/lib").glob(f"*/faketime/{_FAKETIME}"))
        return str(libraries[0]) if libraries else None
    return shutil.which(binary, path=os.pathsep.join((os.environ.get("PATH", os.defpath), *_SBIN)))


def require(binary: str) -> str:
    """The path of the program. Without it the test is skipped, and under ``CI=true`` it fails."""
    path = find(binary)
    if path is not None:
        return path
    message = f"{binary} is not installed (as root, tests/run installs it)"
    if os.environ.get("CI") == "true":
        pytest.fail(f"{message}, and under CI=true that is a failure", pytrace=False)
    pytest.skip(message)
