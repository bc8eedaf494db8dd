"""Reads and validates the settings: in a short-lived child process of the daemon, and in the commands.

Flags win over the environment, the environment over the TOML file, the file over the preset, the preset over
what Nomad says, and that over the defaults. The daemon gets the values and never imports pydantic, which is why each
value is a plain scalar. No problem reported here repeats a secret.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from sidecar.config import model, shown, sources
from sidecar.config.contradictions import contradictions
from sidecar.config.rollout import ENFORCE, SHADOW
from sidecar.config.settings import config_of, parts_of, setting_names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sidecar.config.settings import Config


class SettingsError(Exception):
    """The settings cannot be used. ``problems`` has one line each, beginning with the variable's name."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


def load(flags: Mapping[str, str], environ: Mapping[str, str]) -> Config:
    """Return the configuration of this container. Raises SettingsError as ``values``."""
    return config_of(values(flags, environ))


def values(flags: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the value of every setting, from ``flags`` (by setting name) and ``environ``.

    Raises SettingsError with all problems at once.
    """
    given = _given(flags, environ)
    problems = list(given.problems)
    try:
        valid = model.validated(given.merged())
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)
        raise SettingsError([*problems, *(shown.problem(detail, given) for detail in details)]) from None
    valid |= {name: value for name, value in _dependent(valid).items() if given.origin(name) == "default"}
    problems += contradictions(parts_of(valid))
    if problems:
        raise SettingsError(problems)
    return valid


def origins(flags: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the source of each effective value by setting: flag, env, file, preset, nomad or default."""
    given = _given(flags, environ)
    return {name: given.origin(name) for name in setting_names()}


def _dependent(valid: Mapping[str, Any]) -> dict[str, str]:
    """The defaults that depend on other settings: what cannot be had is off unless it is asked for.

    Without a shared budget every container of a fleet would cull itself, so it does not enforce.
    """
    return {
        "mode": ENFORCE if valid["redis_url"] or valid["alone"] else SHADOW,
        "refund": "on" if valid["budget_strategy"] == "log" else "off",
    }


def _given(flags: Mapping[str, str], environ: Mapping[str, str]) -> sources.Sources:
    return sources.read({*setting_names()}, flags, environ, model.in_environment(environ))
