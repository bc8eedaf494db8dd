"""The rights of the Redis user of one service, by the line that ``deploy/redis/README.md`` tells operators to type."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Final

DIRECTORY: Final = Path(__file__).parents[2] / "deploy" / "redis"
PAGE: Final = (DIRECTORY / "README.md").read_text()


def rights_of(service: str) -> list[str]:
    """The words of ``ACL SETUSER`` for the user of a service in the namespace ``default``."""
    (line,) = re.findall(r"^    (sed .*)$", PAGE, re.MULTILINE)
    typed = ["sh", "-c", line.replace("{ha:default/shop}", f"{{ha:default/{service}}}")]
    printed = subprocess.run(typed, cwd=DIRECTORY, capture_output=True, text=True, timeout=30, check=True).stdout
    words = printed.split()
    assert words[:3] == ["user", "shop", "on"]
    return words[3:]
