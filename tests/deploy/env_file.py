"""Environment files as systemd's EnvironmentFile= and Docker's --env-file both read them: lines of NAME=value."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

EXAMPLE: Final = Path(__file__).parents[2] / "deploy" / "arbiter.env.example"


def given(text: str) -> dict[str, str]:
    """Return what the file sets."""
    return dict(re.findall(r"^([A-Z_]+)=(.*)$", text, re.MULTILINE))


def commented_out(text: str) -> dict[str, str]:
    """Return what it would set if a ``#`` directly before a name were taken away."""
    return dict(re.findall(r"^#([A-Z_]+)=(.*)$", text, re.MULTILINE))
