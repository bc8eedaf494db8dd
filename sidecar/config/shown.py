"""Settings as text for people: the effective settings, the table of all, and the problems with a value.

No text contains a secret.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from sidecar.config import redis_urls, urls
from sidecar.config.bound import bound
from sidecar.config.model import declared
from sidecar.config.settings import parts_of
from sidecar.config.sources import variable
from sidecar.runlock import durations

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic_core import ErrorDetails

    from sidecar.config.model import Setting
    from sidecar.config.sources import Sources

# Messages by pydantic's type of error. The error's context fills the braces.
_COMPLAINTS = {
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "extra_forbidden": "is for a setting that does not exist",
    "finite_number": "must be finite",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "greater_than_equal": "must be at least {ge}",
    "int_from_float": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_type": "must be a whole number",
    "less_than_equal": "must be at most {le}",
    "literal_error": "must be {expected}",
    "multiple_of": "must be whole seconds",
    "string_pattern_mismatch": "must be letters, digits and _ . : - and not empty",
    "string_too_long": "must be at most {max_length} characters long",
    "string_type": "must be text",
    "value_error": "{error}",
}

FIRST = (
    *("redis_url", "service", "instance", "mode", "error_limit"),
    *("error_ratio", "budget", "budget_window", "grace", "drain"),
)
"""The ten settings that matter, which help, ``check-config`` and the page of settings show first."""

ADVANCED = (
    *("namespace", "budget_strategy", "probation", "beat_interval", "after_data_loss"),
    *("redis_timeout", "stop_drain"),
)
"""The settings that hardly anybody changes, which all of them show last."""

_MAX_SHOWN = 256
_NUMBER = re.compile("[0-9.]+")
_BARE = "; a bare number is in seconds"
_SECRET_PATHS = ("webhook_url", "scrape_url")
"""The settings of a URL whose path is often its only secret."""
_URL = re.compile(r"""[A-Za-z0-9+.-]+://[^\s"'{}]*""")


def effective(values: Mapping[str, Any], origins: Mapping[str, str], *, is_changed_only: bool = False) -> str:
    """Return a line for every setting with its value and origin, without secrets.

    ``is_changed_only``: leave out settings with the value that they have without any source.
    """
    meant = {"ARBITER_BUDGET": f": {bound(parts_of(values).budget)}"}
    return "\n".join(
        f"{name}={entry['value']}  # from {entry['from']}{meant.get(name, '')}"
        for name, entry in _entries(values, origins, is_changed_only=is_changed_only).items()
    )


def as_json(values: Mapping[str, Any], origins: Mapping[str, str], *, is_changed_only: bool = False) -> str:
    """Return the result of ``effective`` as JSON."""
    return json.dumps(_entries(values, origins, is_changed_only=is_changed_only), indent=2)


def table() -> list[tuple[str, str, str]]:
    """Return name, default as a user would write it, and sentence of every setting."""
    defaults = {each.name: _written(each, each.default) for each in declared().values()} | {"instance": "the host name"}
    return [(variable(each.name), defaults[each.name], each.sentence) for each in declared().values()]


def problem(detail: ErrorDetails, given: Sources) -> str:
    """Return one line about what pydantic found: the variable, where the value is from, and what it must be."""
    name = str(detail["loc"][0])
    setting = declared().get(name)
    value = given.merged().get(name)
    # A URL may hold a password, even in a setting that takes no URL.
    hidden = setting is None or "_url" in name or "://" in str(value)
    shown = "the value" if hidden or len(repr(value)) > _MAX_SHOWN else repr(value)
    bounds, hint = detail.get("ctx", {}), ""
    if setting is not None and setting.is_duration:
        bounds = {key: durations.write(each) if key in ("ge", "le") else each for key, each in bounds.items()}
        hint = _BARE * bool(_NUMBER.fullmatch(str(value).strip()))
    complaint = _COMPLAINTS.get(detail["type"], detail["msg"]).format(**bounds)
    return f"{variable(name)}: {shown} from {given.origin(name)} {complaint}{hint}"


def _entries(
    values: Mapping[str, Any], origins: Mapping[str, str], *, is_changed_only: bool
) -> dict[str, dict[str, str]]:
    others = [name for name in declared() if name not in (*FIRST, *ADVANCED)]
    settings = [declared()[name] for name in (*FIRST, *others, *ADVANCED)]
    return {
        variable(each.name): {"value": _written(each, values[each.name]), "from": origins[each.name]}
        for each in settings
        if not is_changed_only or (origins[each.name] != "default" and values[each.name] != each.default)
    }


def _written(setting: Setting, value: Any) -> str:
    """Return a valid value as a user would write it, without secrets."""
    if setting.name == "redis_url":
        return redis_urls.masked(value)
    if setting.name.endswith("_url"):
        return value and urls.masked(value, hides_path=setting.name in _SECRET_PATHS)
    if isinstance(value, bool):
        return str(value).lower()
    if setting.is_duration:
        return durations.write(value)
    return _URL.sub(lambda match: urls.masked(match[0]), str(value))  # such as the URL in a command
