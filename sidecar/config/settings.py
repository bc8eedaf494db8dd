"""Reads and validates the settings: in a short-lived child process of the daemon, and in the commands.

Flags win over the environment, the environment over the TOML file, the file over the preset, the preset over
what Nomad says, and that over the defaults. The daemon gets the values and never imports pydantic, which is why each
value is a plain scalar. No problem reported here repeats a secret.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import ValidationError

from sidecar.config import shown, sources
from sidecar.config.contradictions import contradictions
from sidecar.config.settings_model import Settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sidecar.config.slices import Config


class SettingsError(Exception):
    """The settings cannot be used. ``problems`` has one line each, beginning with the variable's name."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


def load(flags: Mapping[str, str], environ: Mapping[str, str]) -> Settings:
    """Return the effective settings of ``flags`` (by setting name) and ``environ``.

    Raises SettingsError with all problems at once.
    """
    given = _given(flags, environ)
    problems = list(given.problems)
    try:
        settings = Settings(**given.merged())
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)
        # pydantic makes no default that depends on other values if any value is bad. The bad value has its own line.
        bad = [detail for detail in details if detail["type"] != "default_factory_not_called"]
        problems += [shown.problem(detail, Settings.model_fields, given) for detail in bad]
        raise SettingsError(problems) from None
    problems += contradictions(settings)
    if problems:
        raise SettingsError(problems)
    return settings


def load_config(flags: Mapping[str, str], environ: Mapping[str, str]) -> Config:
    """Return the effective settings as slices. Raises SettingsError."""
    from sidecar.config.slices import config_of  # noqa: PLC0415 - not needed in the child of a run

    return config_of(load(flags, environ).model_dump())


def origins(flags: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the source of each effective value by setting: flag, env, file, preset, nomad or default."""
    given = _given(flags, environ)
    return {name: given.origin(name) for name in Settings.model_fields}


def table() -> list[tuple[str, str, str]]:
    """Return name, default as a user would write it, and description of every setting."""
    return shown.rows(Settings.model_fields)


def _given(flags: Mapping[str, str], environ: Mapping[str, str]) -> sources.Sources:
    # Job files and units leave a setting out with an empty variable.
    lowered = {name.lower(): value for name, value in environ.items() if value}
    variables = {name: sources.variable(name).lower() for name in Settings.model_fields}
    env = {name: lowered[variable] for name, variable in variables.items() if variable in lowered}
    return sources.read(Settings.model_fields, flags, env, environ)
