"""Settings as text for people: the effective settings, the table of all, and the problems with a value.

No text contains a secret.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from sidecar.config import addresses, redis_urls
from sidecar.config.load import Setting, declared
from sidecar.config.settings import parts_of
from sidecar.config.sources import variable
from sidecar.runlock import durations

if TYPE_CHECKING:
    from collections.abc import Mapping

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

_SECRET_PATHS = ("webhook_url", "scrape_url")
"""The settings of a URL whose path is often its only secret."""
_URL = re.compile(r"""[A-Za-z0-9+.-]+://[^\s"'{}]*""")


def effective(values: Mapping[str, Any], origins: Mapping[str, str], *, is_changed_only: bool = False) -> str:
    """Return a line for every setting with its value and origin, without secrets.

    ``is_changed_only``: leave out settings with the value that they have without any source.
    """
    meant = {"ARBITER_BUDGET": f": {parts_of(values).budget.bound()}"}
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
        return value and addresses.masked(value, hides_path=setting.name in _SECRET_PATHS)
    if isinstance(value, bool):
        return str(value).lower()
    if setting.is_duration:
        return durations.write(value)
    return _URL.sub(lambda match: addresses.masked(match[0]), str(value))  # such as the URL in a command
