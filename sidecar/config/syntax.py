"""The syntax of values that are neither addresses nor durations: shares of the fleet, limits of kinds, templates.

A share is a count or a part of the fleet: ``10``, ``12.5%``. Limits of kinds: ``redis:3,cache:off``. The template is
the operator's JSON of a webhook.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Final

from sidecar.config.addresses import OFF, listed

# -- shares of the fleet -----------------------------------------------------------------------------------------------

_SHARE: Final = re.compile(r"(?P<count>[0-9]+)|(?P<percent>[0-9]{1,3}(?:[.][0-9])?)[ ]?%")
_FULL: Final = 1000
_DIGITS: Final = 6


def parse_share(value: object) -> tuple[int, bool]:
    """Read a share: a count and False, or thousandths of the fleet and True.

    Raises ValueError for what is neither a whole number nor a percentage up to 100 % with one decimal at most.
    """
    match = _SHARE.fullmatch(str(value).strip())
    if match is None:
        raise ValueError("must be a whole number, or a percentage such as 5% or 12.5%")
    if match["count"]:
        if len(match["count"]) > _DIGITS:
            raise ValueError("must be at most 999999")
        return int(match["count"]), False
    thousandths = round(float(match["percent"]) * 10)
    if thousandths > _FULL:
        raise ValueError("must be at most 100%")
    return thousandths, True


def write_share(amount: int, *, is_part: bool) -> str:
    """Write a share as a user would."""
    return f"{amount / 10:g}%" if is_part else str(amount)


def checked_share(value: object) -> str:
    """Return the share as ``write_share`` writes it; ValueError as in ``parse_share``."""
    amount, is_part = parse_share(value)
    return write_share(amount, is_part=is_part)


# -- limits of kinds ---------------------------------------------------------------------------------------------------

KIND: Final = re.compile(r"[A-Za-z0-9_.:/-]{1,64}", re.ASCII)
_KIND_LIMIT: Final = re.compile(rf"({KIND.pattern}):([0-9]{{1,6}}|{OFF})", re.ASCII)
_LIMITS_HINT: Final = "write kind:limit with a limit of at least 1, or kind:off, as in redis:3,cache:off"


def kind_limits(text: str) -> tuple[tuple[str, int], ...]:
    """Return the kinds of ``redis:3,cache:off`` that have a limit, each with it, or raise ValueError."""
    return tuple((kind, limit) for kind, limit in _limits_by_kind(text).items() if limit is not None)


def ignored_kinds(text: str) -> tuple[str, ...]:
    """Return the kinds of ``redis:3,cache:off`` whose limit is off, or raise ValueError."""
    return tuple(kind for kind, limit in _limits_by_kind(text).items() if limit is None)


def checked_kind_limits(text: str) -> str:
    """Return the text in its one normal form, or raise ValueError."""
    return ",".join(f"{kind}:{OFF if limit is None else limit}" for kind, limit in _limits_by_kind(text).items())


def _limits_by_kind(text: str) -> dict[str, int | None]:
    limits: dict[str, int | None] = {}
    for part in listed(text):
        match = _KIND_LIMIT.fullmatch(part)
        limit = None if match and match[2] == OFF else int(match[2]) if match else 0
        if not match or limit == 0:
            raise ValueError(f"has {part[:80]!r}: {_LIMITS_HINT}")
        if match[1] in limits:
            raise ValueError(f"has two limits for {match[1]}")
        limits[match[1]] = limit
    return limits


# -- the template of a webhook -----------------------------------------------------------------------------------------

TEMPLATE_FIELDS: Final = (
    *("text", "severity", "word", "sentence", "service", "namespace", "instance", "sender", "mode", "at", "key"),
    *("runbook", "containers", "cause", "sample", "command"),
)
"""The fields of a message that a template may name."""

_MAX_TEMPLATE: Final = 64 << 10
_HOSTILE: Final = 'a "quote", a \\ and a\nline'


def read_template(path: str) -> str:
    """Return the template in the file ``path``. Raises ValueError with its problem."""
    try:
        with Path(path).open(encoding="utf-8") as file:
            template = file.read(_MAX_TEMPLATE)
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError("cannot be read: not UTF-8") from None
    if problem := template_problem(template):
        raise ValueError(problem)
    return template


def fill_template(template: str, values: Mapping[str, str]) -> str:
    """Fill in a template. Every value is escaped as within a JSON string, so that text stays text."""
    return Template(template).substitute({name: json.dumps(value)[1:-1] for name, value in values.items()})


def template_problem(template: str) -> str:
    """Return why a template is unusable; ``""`` if it gives JSON for every message."""
    try:
        json.loads(fill_template(template, dict.fromkeys(TEMPLATE_FIELDS, _HOSTILE)))
    except KeyError as unknown:
        return f"knows no field {unknown}, only {', '.join(sorted(TEMPLATE_FIELDS))}"
    except ValueError as error:
        return f"is no JSON once it is filled in, fields belong within quotes: {error}"
    return ""
