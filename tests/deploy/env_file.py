"""Environment files for systemd's EnvironmentFile= and Docker's --env-file: lines of NAME=value."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

EXAMPLE: Final = Path(__file__).parents[2] / "deploy" / "arbiter.env.example"


def given(text: str) -> dict[str, str]:
    """The variables of the file."""
    return dict(re.findall(r"^([A-Z_]+)=(.*)$", text, re.MULTILINE))


def commented_out(text: str) -> dict[str, str]:
    """The variables in comments: lines with ``#`` directly before the name."""
    return dict(re.findall(r"^#([A-Z_]+)=(.*)$", text, re.MULTILINE))
