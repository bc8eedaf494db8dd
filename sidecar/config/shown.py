"""Settings as text for people: the effective settings, the table of all, and the problems with a value.

No text contains a secret.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from sidecar.config import redis_urls, sources, urls
from sidecar.config.addresses import listed
from sidecar.config.bound import bound
from sidecar.config.field_types import is_duration
from sidecar.config.slices import config_of
from sidecar.runlock import durations

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic.fields import FieldInfo
    from pydantic_core import ErrorDetails

    from sidecar.config.settings_model import Settings

# Messages by pydantic's type of error. The error's context fills the braces.
_COMPLAINTS = {
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "extra_forbidden": "is for a setting that does not exist",
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
    *("namespace",),
    *("budget_strategy", "probation", "beat_interval", "after_data_loss"),
    *("redis_timeout", "stop_drain", "down_status", "soft_drain"),
    *("scrape_interval",),
    *("action_timeout", "cull_hook_timeout"),
)
"""The settings that hardly anybody changes, which all of them show last."""

_MAX_SHOWN = 256
_URL = re.compile(r"""[A-Za-z0-9+.-]+://[^\s"'{}]*""")

# Defaults that depend on the machine or on other settings.
_DEFAULTS = {"instance": "the host name", "mode": "shadow", "refund": "on", "soft_drain": "on"}


def effective(settings: Settings, origins: Mapping[str, str], *, is_changed_only: bool = False) -> str:
    """Return a line for every setting with its value and origin, without secrets.

    ``is_changed_only``: leave out settings with the value that they have without any source.
    """
    shown = _shown(settings, origins, is_changed_only=is_changed_only)
    meant = {"ARBITER_BUDGET": f": {bound(config_of(settings.model_dump()).budget)}"}
    return "\n".join(
        f"{variable}={entry['value']}  # from {entry['from']}{meant.get(variable, '')}"
        for variable, entry in shown.items()
    )


def as_json(settings: Settings, origins: Mapping[str, str], *, is_changed_only: bool = False) -> str:
    """Return the result of ``effective`` as JSON."""
    return json.dumps(_shown(settings, origins, is_changed_only=is_changed_only), indent=2)


def _shown(settings: Settings, origins: Mapping[str, str], *, is_changed_only: bool) -> dict[str, dict[str, str]]:
    fields = type(settings).model_fields
    others = [name for name in fields if name not in (*FIRST, *ADVANCED)]
    return {
        sources.variable(name): {"value": _written(name, fields[name], getattr(settings, name)), "from": origins[name]}
        for name in (*FIRST, *others, *ADVANCED)
        if not is_changed_only or (origins[name] != "default" and getattr(settings, name) != fields[name].default)
    }


def rows(fields: Mapping[str, FieldInfo]) -> list[tuple[str, str, str]]:
    """Return name, default as a user would write it, and description of every field."""
    return [
        (
            sources.variable(name),
            _DEFAULTS.get(name) or _written(name, field, field.default),
            field.description or "",
        )
        for name, field in fields.items()
    ]


def problem(detail: ErrorDetails, fields: Mapping[str, FieldInfo], given: sources.Sources) -> str:
    """Return one line about what pydantic found: the variable, where the value is from, and what it must be."""
    name = str(detail["loc"][0])
    field = fields.get(name)
    value = given.merged().get(name)
    # A URL may hold a password, even in a setting that takes no URL.
    hidden = field is None or "_url" in name or "://" in str(value)
    shown = "the value" if hidden or len(repr(value)) > _MAX_SHOWN else repr(value)
    context = {key: _bound(field, bound) for key, bound in detail.get("ctx", {}).items()}
    complaint = _COMPLAINTS.get(detail["type"], detail["msg"]).format(**context)
    return f"{sources.variable(name)}: {shown} from {given.origin(name)} {complaint}"


def _bound(field: FieldInfo | None, bound: object) -> object:
    if field is not None and is_duration(field) and isinstance(bound, (int, float)):
        return durations.write(bound)
    return bound


def _written(name: str, field: FieldInfo, value: object) -> str:
    """Return a valid value as a user would write it, without secrets."""
    if name == "redis_url":
        return redis_urls.masked(str(value))
    if name == "scrape_url":
        return urls.masked(str(value))  # it may have a comma
    if name.endswith("_url"):
        # The path of a webhook is often its only secret.
        return ",".join(urls.masked(url, hides_path=name == "webhook_url") for url in listed(str(value)))
    if isinstance(value, bool):
        return str(value).lower()
    if is_duration(field):
        return durations.write(float(str(value)))
    return _URL.sub(lambda found: urls.masked(found[0]), str(value))  # such as the URL in a command
