"""The operator's template of a webhook's JSON: the fields that it may name, and whether it can be used."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Final

FIELDS: Final = (
    *("text", "severity", "word", "sentence", "service", "namespace", "instance", "sender", "mode", "at", "key"),
    *("runbook", "containers", "cause", "sample", "command"),
)
"""The fields of a message that a template may name."""

_MAX_CHARACTERS: Final = 64 << 10
_HOSTILE: Final = 'a "quote", a \\ and a\nline'


def read(path: str) -> str:
    """Return the template in the file ``path``. Raises ValueError with its problem."""
    try:
        with Path(path).open(encoding="utf-8") as file:
            template = file.read(_MAX_CHARACTERS)
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError("cannot be read: not UTF-8") from None
    if found := problem(template):
        raise ValueError(found)
    return template


def filled(template: str, values: Mapping[str, str]) -> str:
    """Fill in a template. Every value is escaped as within a JSON string, so that text stays text."""
    return Template(template).substitute({name: json.dumps(value)[1:-1] for name, value in values.items()})


def problem(template: str) -> str:
    """Return why a template is unusable; ``""`` if it gives JSON for every message."""
    try:
        json.loads(filled(template, dict.fromkeys(FIELDS, _HOSTILE)))
    except KeyError as unknown:
        return f"knows no field {unknown}, only {', '.join(sorted(FIELDS))}"
    except ValueError as error:
        return f"is no JSON once it is filled in, fields belong within quotes: {error}"
    return ""
