"""The declarations of ``settings`` as pydantic reads them: a model that validates, and what pages and help say."""

from __future__ import annotations

import types
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model

from sidecar.config import field_types
from sidecar.config.rollout import Mode
from sidecar.config.settings import Config

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


@cache
def _model() -> type[BaseModel]:
    config = ConfigDict(extra="forbid", hide_input_in_errors=True, str_strip_whitespace=True, validate_default=True)
    fields: dict[str, Any] = {name: (each.annotation, each.default) for name, each in declared().items()}
    return create_model("Settings", __config__=config, **fields)


def validated(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the value of every setting. Raises pydantic's ValidationError with all that is wrong."""
    return _model()(**given).model_dump()
