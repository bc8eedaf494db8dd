"""Every setting: its default and what it may be.

Flags win over the environment, the environment over the TOML file, the file over the preset, the preset over
what Nomad says, and that over the defaults. A short-lived child process reads this; the daemon gets the values and
never imports pydantic, which is why each value is a plain scalar. No problem reported here repeats a secret.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError
from pydantic_settings import BaseSettings, EnvSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from sidecar import addresses, durations, kinds, sources
from sidecar.contradictions import contradictions
from sidecar.intake.scrape import parse_target
from sidecar.intake.selectors import parse_selectors

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic_core import ErrorDetails

_DAY_S = 86400  # beyond any use, and within what the event loop's timers can hold

# By pydantic's type of error, what is said of the value; the braces are filled from the error's context.
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


class SettingsError(Exception):
    """The settings cannot be used. ``problems`` has one line each, beginning with the variable's name."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


def _no_bool(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("must be a number")  # noqa: TRY004 - to pydantic a TypeError would be a bug
    return value


def _seconds(value: object) -> float:
    seconds = durations.parse(value)
    if seconds > _DAY_S:
        raise ValueError("must be at most 24h")
    return seconds


# A bound stands at the field or in here, never in both: pydantic lets one of the two win.
def _scrape_url(url: str) -> str:
    if url:
        parse_target(url)
    return url.strip()


def _selectors(text: str) -> str:
    parse_selectors(text)
    return text.strip()


Count = Annotated[int, BeforeValidator(_no_bool)]
Fraction = Annotated[float, BeforeValidator(_no_bool)]
Seconds = Annotated[float, BeforeValidator(_seconds)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:-]+$")]


class Settings(BaseSettings):
    """The effective settings. Durations are seconds; ``""`` is a text that was not set."""

    model_config = SettingsConfigDict(
        env_prefix=sources.PREFIX,
        frozen=True,
        hide_input_in_errors=True,
        str_strip_whitespace=True,
    )

    config: str = Field("", description="TOML file with settings, in lower case and without the prefix.")
    preset: Literal["", "classdojo"] = Field(
        "", description="`classdojo` sets what the article did, to the letter, where nothing else is given."
    )
    mode: Literal["enforce", "shadow"] = Field(
        "enforce", description="`shadow` only says what `enforce` would do: health stays up."
    )
    service: Name = Field(
        "app",
        max_length=128,
        description="Whose budget is shared; under Nomad the names of job and group with a dot between.",
    )
    namespace: Name = Field(
        "default", max_length=128, description="Where the service's name is unique; under Nomad its namespace."
    )
    instance: Name = Field(
        default_factory=lambda: sources.fit(os.uname().nodename),
        max_length=128,
        description="This container's name; under Nomad the allocation's id.",
    )
    error_limit: Count = Field(5, ge=1, description="So many server errors within the window are too many.")
    error_window: Seconds = Field(
        60, ge=1, le=3600, multiple_of=1, description="How long an error counts: whole seconds, 1s to 1h."
    )
    kind_limits: Annotated[str, AfterValidator(kinds.checked_limits)] = Field(
        "", description="So many of one kind are too many as well: `redis:3,mysql:5`."
    )
    ignore_kinds: Annotated[str, AfterValidator(kinds.checked_names)] = Field(
        "", description="Kinds that are shown and never count: `cache,search`."
    )
    error_ratio: Fraction = Field(
        0.5,
        ge=0,
        le=1,
        description="So large a part of the requests failing is too much, where results come; 0: off.",
    )
    ratio_min_requests: Count = Field(20, ge=1, description="So many requests the ratio needs before it is judged.")
    consecutive_limit: Count = Field(0, ge=0, description="So many requests failing in a row are too many; 0: off.")
    heartbeat_timeout: Seconds = Field(
        0, description="A heart that has been heard and then is silent for so long is too much; 0: off."
    )
    scrape_down_after: Count = Field(0, ge=0, description="So many failed scrapes in a row are too many; 0: off.")
    confirm: Count = Field(1, ge=1, le=1000, description="So many bad checks in a row it takes before a claim.")
    min_age: Seconds = Field(0, description="An app younger than this is not culled, though it is judged.")
    check_interval: Seconds = Field(10, ge=0.1, description="How often the window is judged.")
    check_jitter: Fraction = Field(
        0.1, ge=0, le=0.5, description="The part of the interval by which a check comes earlier or later."
    )
    check_on_ping: bool = Field(default=True, description="Judge at once when a ping crosses the limit.")
    budget: Count = Field(10, ge=1, le=1000, description="So many culls the whole service may have per window.")
    budget_window: Seconds = Field(600, ge=1, description="How long a token stays spent: 1s to 24h.")
    budget_strategy: Literal["log", "previous", "fixed"] = Field(
        "log", description="How the window is counted: `log` is exact, `previous` weighs, `fixed` is the article's."
    )
    budget_key: Name = Field(
        "errorWatcher", max_length=64, description="Prefix of the key in Redis that strategy `fixed` counts in."
    )
    settle: Seconds = Field(3, description="Pause between too many errors and the claim, then judged again.")
    drain: Seconds = Field(10, description="How long HAProxy is told before Nomad is.")
    grace: Seconds = Field(0, description="How long after its start the app is not judged.")
    stop_drain: Seconds = Field(5, description="How long health is down before the sidecar stops.")
    down_status: Count = Field(503, ge=400, le=599, description="HTTP status of health when down.")
    redis_url: Annotated[str, AfterValidator(addresses.redis_url)] = Field(
        "",
        description="Redis that holds the shared bucket, `redis://`, `rediss://` or `unix://`, else a bucket in "
        "memory; one with a password belongs in the environment or the file, not in a flag.",
    )
    redis_timeout: Seconds = Field(1, ge=0.01, le=10, description="How long to wait for Redis, 10ms to 10s.")
    state_dir: Annotated[str, AfterValidator(addresses.path)] = Field(
        "", description="Directory in which a cull survives the sidecar; under Nomad the allocation's `tmp`."
    )
    local_listen: Annotated[str, AfterValidator(addresses.loopback_or_off)] = Field(
        "127.0.0.1:9180", description="Where the app reports errors: a loopback address, or `off`."
    )
    socket: Annotated[str, AfterValidator(addresses.socket_path)] = Field(
        "", description="Unix socket on which the app may report errors too."
    )
    statsd_listen: Annotated[str, AfterValidator(addresses.loopback_or_off)] = Field(
        "off", description="UDP address for StatsD datagrams, such as `127.0.0.1:8125`: loopback, or `off`."
    )
    statsd_socket: Annotated[str, AfterValidator(addresses.socket_path)] = Field(
        "", description="Unix datagram socket for StatsD datagrams."
    )
    statsd_prefix: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]*$", max_length=64)] = Field(
        "", description="What the app's StatsD client puts before every name."
    )
    scrape_url: Annotated[str, AfterValidator(_scrape_url)] = Field(
        "",
        description="The app's metrics page: `http://`, `https://` or `unix:///path/of.sock:/metrics`.",
    )
    scrape_errors: Annotated[str, AfterValidator(_selectors)] = Field(
        "", description='What on the page counts errors, several with `;`: `http_requests_total{status=~"5.."}`.'
    )
    scrape_requests: Annotated[str, AfterValidator(_selectors)] = Field(
        "", description="What on the page counts requests, for the ratio."
    )
    scrape_in_flight: Annotated[str, AfterValidator(_selectors)] = Field(
        "", description="What on the page tells how many requests are in flight."
    )
    scrape_interval: Seconds = Field(10, ge=0.1, description="How often the page is fetched.")
    scrape_timeout: Seconds = Field(2, ge=0.01, description="How long a whole scrape may take.")
    scrape_max_bytes: Count = Field(
        64 << 20, ge=1024, description="So large a page may be, as it is and as it was sent; more is a failed scrape."
    )
    public_listen: Annotated[str, AfterValidator(addresses.listen)] = Field(
        "0.0.0.0:9181",
        description="Where health and metrics are served.",
    )
    agent_listen: Annotated[str, AfterValidator(addresses.listen_or_off)] = Field(
        "0.0.0.0:9182",
        description="Where HAProxy's agent-check is answered, or `off`.",
    )
    log_format: Literal["auto", "json", "console"] = Field(
        "auto", description="`auto` is `console` on a terminal and `json` elsewhere."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="The least urgent lines that are logged."
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - the signature is pydantic's
        init_settings: PydanticBaseSettingsSource,
        *others: PydanticBaseSettingsSource,  # noqa: ARG003 - as above
        **more: PydanticBaseSettingsSource,  # noqa: ARG003 - as above
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Take values from nobody but ``load``, which hands in what ``sources`` merged."""
        return (init_settings,)


def load(flags: Mapping[str, str], environ: Mapping[str, str]) -> Settings:
    """Return the effective settings of ``flags`` (by setting name) and ``environ``.

    Raises SettingsError with everything that is wrong, at once.
    """
    given = _given(flags, environ)
    problems = list(given.problems)
    try:
        settings = Settings(**given.merged())
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)
        problems += [_problem(detail, given) for detail in details]
        raise SettingsError(problems) from None
    problems += contradictions(settings)
    if problems:
        raise SettingsError(problems)
    return settings


def origins(flags: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return by setting who gave its effective value: flag, env, file, preset, nomad or default."""
    given = _given(flags, environ)
    return {name: given.origin(name) for name in Settings.model_fields}


def effective(settings: Settings, origins: Mapping[str, str]) -> str:
    """Return a line for every setting with its value and origin, without secrets."""
    return "\n".join(
        f"{sources.variable(name)}={_written(name, getattr(settings, name))}  # from {origins[name]}"
        for name in Settings.model_fields
    )


def table() -> list[tuple[str, str, str]]:
    """Return name, default as a user would write it, and description of every setting."""
    return [
        (
            sources.variable(name),
            "the host name" if field.default_factory else _written(name, field.default),
            field.description or "",
        )
        for name, field in Settings.model_fields.items()
    ]


def _given(flags: Mapping[str, str], environ: Mapping[str, str]) -> sources.Sources:
    env = EnvSettingsSource(Settings)
    # An empty variable is how job files and units leave a setting out.
    env.env_vars = {name.lower(): value for name, value in environ.items() if value}
    return sources.read(Settings.model_fields, flags, env(), environ)


def _problem(detail: ErrorDetails, given: sources.Sources) -> str:
    name = str(detail["loc"][0])
    value = given.merged().get(name)
    # A URL may hold a password, also where it was put by mistake.
    hidden = name not in Settings.model_fields or name == "redis_url" or "://" in str(value)
    shown = "the value" if hidden else repr(value)
    context = {key: _bound(name, bound) for key, bound in detail.get("ctx", {}).items()}
    complaint = _COMPLAINTS.get(detail["type"], detail["msg"]).format(**context)
    return f"{sources.variable(name)}: {shown} from {given.origin(name)} {complaint}"


def _bound(name: str, bound: object) -> object:
    return durations.write(bound) if isinstance(bound, (int, float)) and _is_duration(name) else bound


def _written(name: str, value: object) -> str:
    """Return a valid value as a user would write it, without secrets."""
    if name in ("redis_url", "scrape_url"):
        return addresses.masked(str(value))
    if isinstance(value, bool):
        return str(value).lower()
    return durations.write(float(str(value))) if _is_duration(name) else str(value)


def _is_duration(name: str) -> bool:
    metadata = Settings.model_fields[name].metadata
    return any(isinstance(part, BeforeValidator) and part.func is _seconds for part in metadata)
