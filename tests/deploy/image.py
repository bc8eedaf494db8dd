"""A Dockerfile as instructions by stage, and the patterns of a .dockerignore."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath


@dataclass(frozen=True)
class Instruction:
    """One instruction: its name in capitals, and the rest with continued lines joined."""

    name: str
    rest: str

    @property
    def words(self) -> list[str]:
        """The operands, without flags."""
        return [word for word in self.rest.split() if not word.startswith("--")]

    @property
    def exec_form(self) -> list[str] | None:
        """The command as a list, also behind flags; None for the shell form."""
        match = re.search(r"\[.*\]$", self.rest)
        return [str(word) for word in json.loads(match.group())] if match else None


Stage = list[Instruction]


def stages(text: str) -> list[Stage]:
    """Return the instructions of each stage, its FROM first."""
    found: list[Stage] = []
    for instruction in _instructions(text):
        if instruction.name == "FROM":
            found.append([])
        found[-1].append(instruction)
    return found


def every(name: str, stage: Iterable[Instruction]) -> list[Instruction]:
    """Return the instructions of that name, in order."""
    return [instruction for instruction in stage if instruction.name == name]


def copied(instructions: Iterable[Instruction]) -> list[str]:
    """Return the sources that are copied from the project."""
    local = (instruction for instruction in every("COPY", instructions) if "--from=" not in instruction.rest)
    return [source for instruction in local for source in instruction.words[:-1]]


def is_ignored(path: str, patterns: Iterable[str]) -> bool:
    """Return whether a .dockerignore with these lines keeps the file out: the last line that matches decides."""
    ignored = False
    for pattern in patterns:
        if pattern and not pattern.startswith("#") and _matches(path, pattern.removeprefix("!")):
            ignored = not pattern.startswith("!")
    return ignored


def _instructions(text: str) -> list[Instruction]:
    said = "\n".join(line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#"))
    joined = re.sub(r"\\\n\s*", " ", said)
    return [
        Instruction(name.upper(), rest.strip())
        for name, _, rest in (line.partition(" ") for line in joined.splitlines())
    ]


def _matches(path: str, pattern: str) -> bool:
    """Whether a pattern means the path or a directory above it."""
    parts = {"**/": "(?:.*/)?", "*": "[^/]*", "?": "[^/]"}
    pieces = re.split(r"(\*\*/|\*|\?|\[[^\]]*\])", pattern.rstrip("/"))
    expression = re.compile(
        "".join(parts.get(piece, piece if piece[:1] == "[" else re.escape(piece)) for piece in pieces)
    )
    whole = PurePosixPath(path)
    return any(expression.fullmatch(str(each)) for each in (whole, *whole.parents) if str(each) != ".")
