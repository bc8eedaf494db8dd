"""Reads and validates the settings: in a short-lived child process of the daemon, and in the commands.

Flags win over the environment, the environment over the TOML file, the file over the preset, the preset over
what Nomad says, and that over the defaults. The daemon gets the values and never imports pydantic, which is why each
value is a plain scalar. No problem reported here repeats a secret.
"""

from __future__ import annotations

import re
import types
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, get_type_hints

from pydantic import Field, ValidationError, create_model
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from sidecar.config import field_types, settings, sources
from sidecar.config.contradictions import contradictions
from sidecar.config.settings import ENFORCE, SHADOW, Config, config_of, parts_of, setting_names
from sidecar.runlock import durations

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


class Setting(NamedTuple):
    """One declaration."""

    name: str
    annotation: Any
    default: object
    sentence: str

    @property
    def is_duration(self) -> bool:
        """Whether the value is in seconds, which a user reads and writes as ``10s``."""
        return any(part in field_types.DURATIONS for part in self.annotation.__metadata__)


@cache
def declared() -> Mapping[str, Setting]:
    """All declarations by name, part by part."""
    words, settings_by_name = {**vars(settings), **vars(field_types), "Field": Field}, {}
    for part in Config():
        for name, annotation in get_type_hints(type(part), words, include_extras=True).items():
            settings_by_name[name] = Setting(name, annotation, part._field_defaults[name], annotation.__metadata__[-1])
    return types.MappingProxyType(settings_by_name)


class _Validated(BaseSettings):
    """All settings, from the layers of ``sources``: the strongest that has a setting gives its value."""

    model_config = SettingsConfigDict(extra="forbid", hide_input_in_errors=True, str_strip_whitespace=True)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        *others: PydanticBaseSettingsSource,  # noqa: ARG003 - the signature is pydantic's
        **more: PydanticBaseSettingsSource,  # noqa: ARG003 - as above
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return tuple(InitSettingsSource(settings_cls, dict(layer)) for layer in init_settings()["layers"])


@cache
def _model() -> type[_Validated]:
    fields: dict[str, Any] = {name: (each.annotation, each.default) for name, each in declared().items()}
    return create_model("Settings", __base__=_Validated, **fields)


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
        valid = _model()(layers=given.layers.values()).model_dump()  # type: ignore[call-arg]  # for its sources
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)
        raise SettingsError([*problems, *(_problem(detail, given) for detail in details)]) from None
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
    return sources.read(setting_names(), flags, environ)


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

_MAX_SHOWN = 256
_NUMBER = re.compile("[0-9.]+")
_QUOTED_URL = re.compile(r"""(['"]).*://.*\1""")  # in a complaint about a part of the value
_BARE = "; a bare number is in seconds"


def _problem(detail: ErrorDetails, given: sources.Sources) -> str:
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
    complaint = _QUOTED_URL.sub("a URL", _COMPLAINTS.get(detail["type"], detail["msg"]).format(**bounds))
    return f"{sources.variable(name)}: {shown} from {given.origin(name)} {complaint}{hint}"
