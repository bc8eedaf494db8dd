"""The declarations of ``settings`` as pydantic reads them: a model that validates, and what pages and help say."""

from __future__ import annotations

import types
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple, get_type_hints

from pydantic import Field, create_model
from pydantic_settings import BaseSettings, EnvSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from sidecar.config import field_types
from sidecar.config.rollout import Mode
from sidecar.config.settings import PREFIX, Config

if TYPE_CHECKING:
    from collections.abc import Mapping

_WORDS: Final = {
    **vars(field_types),
    "Annotated": Annotated,
    "Literal": Literal,
    "Field": Field,
    "Mode": Mode,
}
"""The names that the text of an annotation may use."""


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
    found = {}
    for part in Config():
        for name, annotation in get_type_hints(type(part), _WORDS, include_extras=True).items():
            found[name] = Setting(name, annotation, part._field_defaults[name], annotation.__metadata__[-1])
    return types.MappingProxyType(found)


class _Validated(BaseSettings):
    """Settings with values from ``load`` only, which passes what all sources together have."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, extra="forbid", hide_input_in_errors=True, str_strip_whitespace=True
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - the signature is pydantic's
        init_settings: PydanticBaseSettingsSource,
        *others: PydanticBaseSettingsSource,  # noqa: ARG003 - as above
        **more: PydanticBaseSettingsSource,  # noqa: ARG003 - as above
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings,)


@cache
def _model() -> type[_Validated]:
    fields: dict[str, Any] = {name: (each.annotation, each.default) for name, each in declared().items()}
    return create_model("Settings", __base__=_Validated, **fields)


def in_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings that these variables give. Job files and units leave one out with an empty variable."""
    source = EnvSettingsSource(_model())
    source.env_vars = {name.lower(): value for name, value in environ.items() if value}
    return source()


def validated(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the value of every setting. Raises pydantic's ValidationError with all that is wrong."""
    return _model()(**given).model_dump()
