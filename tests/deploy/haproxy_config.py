"""The shipped HAProxy configurations, and the options in them that other files depend on."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from sidecar.runlock import durations

DIRECTORY: Final = Path(__file__).parents[2] / "deploy" / "haproxy"
AGENT: Final = DIRECTORY / "agent.cfg"
PLAIN: Final = DIRECTORY / "plain.cfg"
CASCADE: Final = DIRECTORY / "cascade.cfg"
SHIPPED: Final = (AGENT, PLAIN, CASCADE)


def lines(text: str) -> list[str]:
    """The lines without comments, with single blanks."""
    return [line for raw in text.splitlines() if (line := " ".join(raw.partition("#")[0].split()))]


def server_words(text: str) -> list[str]:
    """The words of all ``default-server`` lines."""
    return [word for line in lines(text) if line.startswith("default-server ") for word in line.split()[1:]]


def server_option(text: str, name: str) -> str:
    """The value of an option of ``default-server``, or ``""``."""
    words = server_words(text)
    return words[words.index(name) + 1] if name in words else ""


def notice_s(text: str) -> float:
    """The longest time in seconds until HAProxy acts on an answer of the sidecar."""
    timeout = re.search(r"^timeout check (\S+)$", "\n".join(lines(text)), re.MULTILINE)
    answer = durations.parse(timeout.group(1)) if timeout else 0
    if "agent-check" in server_words(text):
        return durations.parse(server_option(text, "agent-inter")) + answer
    return durations.parse(server_option(text, "inter")) * int(server_option(text, "fall")) + answer
