"""Every setting, with those of ``fields``: its default and what it may be.

Flags win over the environment, the environment over the TOML file, the file over the preset, the preset over
what Nomad says, and that over the defaults. A short-lived child process reads this; the daemon gets the values and
never imports pydantic, which is why each value is a plain scalar. No problem reported here repeats a secret.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, EnvSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from sidecar.config import shown, sources
from sidecar.config.contradictions import contradictions
from sidecar.config.field_types import (
    Budget,
    Count,
    FilePath,
    Fraction,
    KindLimits,
    KindNames,
    Listen,
    ListenOrOff,
    LoopbackOrOff,
    Name,
    RedisUrls,
    ScrapeUrl,
    Seconds,
    Selectors,
    ShareOfFleet,
    SocketPath,
    StatsdPrefix,
    Switch,
)
from sidecar.config.fields import Lifetimes, Telling

if TYPE_CHECKING:
    from collections.abc import Mapping


class SettingsError(Exception):
    """The settings cannot be used. ``problems`` has one line each, beginning with the variable's name."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


def _refund(before: Mapping[str, Any]) -> Switch:
    """On where a single grant can be given back: the counts of the other strategies do not know which is whose."""
    return "on" if before.get("budget_strategy") == "log" else "off"


def _soft_drain(before: Mapping[str, Any]) -> Switch:
    """On where the balancer is told a weight."""
    return "on" if before.get("weight") == "on" else "off"


class Settings(Telling, Lifetimes, BaseSettings):
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
        description="Name of the service whose containers share one budget; under Nomad the names of job and group "
        "with a dot between.",
    )
    namespace: Name = Field(
        "default", max_length=128, description="Where the service's name is unique; under Nomad its namespace."
    )
    instance: Name = Field(
        default_factory=lambda: sources.fit(os.uname().nodename),
        max_length=128,
        description="This container's name; under Nomad the allocation's id.",
    )
    error_limit: Count = Field(5, ge=1, description="Number of server errors within the error window that is too many.")
    error_window: Seconds = Field(
        60, ge=1, le=3600, multiple_of=1, description="Time for which an error counts: whole seconds, 1s to 1h."
    )
    kind_limits: KindLimits = Field(
        "", description="Number of errors of one kind that is too many as well: `redis:3,mysql:5`."
    )
    ignore_kinds: KindNames = Field("", description="Kinds that are shown and never count: `cache,search`.")
    error_ratio: Fraction = Field(
        0.5,
        ge=0,
        le=1,
        description="Part of the requests that is too much when it fails, from 0 to 1, where results are reported; 0:"
        " off.",
    )
    ratio_min_requests: Count = Field(
        20, ge=1, description="Number of requests in the window from which on the error ratio is judged."
    )
    consecutive_limit: Count = Field(
        0, ge=0, description="Number of failed requests in a row that is too many; 0: off."
    )
    heartbeat_timeout: Seconds = Field(
        0, description="Time without a heartbeat that is too long, once one was heard; 0: off."
    )
    scrape_down_after: Count = Field(0, ge=0, description="Number of failed scrapes in a row that is too many; 0: off.")
    confirm: Count = Field(1, ge=1, le=1000, description="Number of bad checks in a row before a claim.")
    min_age: Seconds = Field(0, description="Minimum age at which an app is culled; it is judged before; 0: none.")
    check_interval: Seconds = Field(10, ge=0.1, description="Time between two checks of the window.")
    check_jitter: Fraction = Field(
        0.1, ge=0, le=0.5, description="Part of the interval by which a check comes earlier or later, from 0 to 0.5."
    )
    check_on_report: bool = Field(default=True, description="Judge at once when a ping crosses the limit.")
    budget: Budget = Field(
        "10",
        description="Maximum number of culls per window for the whole service: a count, or a part of its containers "
        "such as `5%`.",
    )
    budget_window: Seconds = Field(600, ge=1, description="Time for which a token stays spent: 1s to 24h.")
    budget_strategy: Literal["log", "previous", "fixed"] = Field(
        "log",
        description="Way of counting the window: `log` is exact, `previous` is approximate (up to 2 x budget - 1 in a "
        "window), `fixed` is the article's (up to 2 x budget).",
    )
    budget_key: Name = Field(
        "errorWatcher", max_length=64, description="Prefix of the key in Redis that strategy `fixed` counts in."
    )
    spacing: Seconds = Field(0, description="Minimum time between two culls; 0: none.")
    min_healthy: ShareOfFleet = Field(
        "50%",
        description="Minimum number of containers in service after a cull: a count, or a part of them rounded up; 0: "
        "none.",
    )
    never_last: bool = Field(
        default=True, description="Never cull the last one in service, unless it was the only one for an hour."
    )
    trial: Switch = Field(
        "on",
        description="Limit on culls for one cause until their outcome is known: one at first, more when culls help, "
        "none for a time when they do not; `off`: no limit.",
    )
    probation: Seconds = Field(
        60, description="Time for which a replacement has to stay well to show that a cull helped."
    )
    outlier: Switch = Field(
        "on",
        description="Comparison with the fleet: errors are too many only above what chance explains at the fleet's "
        "median rate; `off`: the limits alone decide.",
    )
    refund: Switch = Field(
        default_factory=_refund,
        description="Early return of the token of a cull that helped, only with strategy `log`; `off`: every token "
        "stays spent for the window.",
    )
    refund_max: Count = Field(
        0, ge=0, le=3000, description="Maximum number of culls per window with `refund`; 0: three times the budget."
    )
    beat_interval: Seconds = Field(
        10,
        ge=0.1,
        le=300,
        description="Time between two beats, by which the fleet hears of this container: 100ms to 5m.",
    )
    after_data_loss: Literal["wait", "continue"] = Field(
        "wait",
        description="What happens after Redis lost its data: `wait` allows no culls for one window, `continue` allows "
        "the whole budget at once.",
    )
    settle: Seconds = Field(
        3, description="Time between too many errors and the claim, after which they are judged again; 0: none."
    )
    drain: Seconds = Field(10, description="Time from telling HAProxy until Nomad is told; 0: none.")
    drain_min: Seconds = Field(3, description="Minimum time of a drain, even when no request is in flight any more.")
    grace: Seconds = Field(0, description="Time after the app's start in which it is not judged; 0: none.")
    stop_drain: Seconds = Field(5, description="Time for which health is down before the sidecar stops; 0: none.")
    down_status: Count = Field(503, ge=400, le=599, description="HTTP status of health when down.")
    redis_url: RedisUrls = Field(
        "",
        description="Redis that holds the shared bucket, `redis://`, `rediss://`, `unix://`, `redis+sentinel://` or "
        "`redis+cluster://`, several with commas between to share it, none for a bucket in memory; a URL with a "
        "password belongs in the environment or the file, not in a flag.",
    )
    redis_password_file: FilePath = Field(
        "", description="File that holds the password for Redis, read anew at every connection."
    )
    redis_ca: FilePath = Field(
        "", description="File with the certificates that sign the one of Redis, for `rediss://`."
    )
    redis_cert: FilePath = Field("", description="File with our own certificate for Redis.")
    redis_key: FilePath = Field("", description="File with the key of that certificate.")
    redis_timeout: Seconds = Field(1, ge=0.01, le=10, description="Maximum time to wait for Redis, 10ms to 10s.")
    state_dir: FilePath = Field(
        "", description="Directory in which a cull survives the sidecar; under Nomad the allocation's `tmp`."
    )
    local_listen: LoopbackOrOff = Field(
        "127.0.0.1:9180", description="Where the app reports errors: a loopback address, or `off`."
    )
    socket: SocketPath = Field("", description="Unix socket on which the app may report errors too.")
    statsd_listen: LoopbackOrOff = Field(
        "off", description="UDP address for StatsD datagrams, such as `127.0.0.1:8125`: loopback, or `off`."
    )
    statsd_socket: SocketPath = Field("", description="Unix datagram socket for StatsD datagrams.")
    statsd_prefix: StatsdPrefix = Field("", description="What the app's StatsD client puts before every name.")
    scrape_url: ScrapeUrl = Field(
        "", description="The app's metrics page: `http://`, `https://` or `unix:///path/of.sock:/metrics`."
    )
    scrape_errors: Selectors = Field(
        "", description='What on the page counts errors, several with `;`: `http_requests_total{status=~"5.."}`.'
    )
    scrape_requests: Selectors = Field("", description="What on the page counts requests, for the ratio.")
    scrape_in_flight: Selectors = Field("", description="What on the page tells how many requests are in flight.")
    scrape_interval: Seconds = Field(10, ge=0.1, description="Time between two scrapes of the page.")
    scrape_timeout: Seconds = Field(2, ge=0.01, description="Maximum time of a whole scrape.")
    scrape_max_bytes: Count = Field(
        64 << 20,
        ge=1024,
        description="Maximum size of the page in bytes, as it is and as it was sent; more is a failed scrape.",
    )
    public_listen: Listen = Field("0.0.0.0:9181", description="Where health and metrics are served.")
    agent_listen: ListenOrOff = Field("0.0.0.0:9182", description="Where HAProxy's agent-check is answered, or `off`.")
    weight: Switch = Field(
        "on", description="Tell the balancer how well requests go: the success rate cubed, as a percent of the weight."
    )
    soft_drain: Switch = Field(
        default_factory=_soft_drain,
        description="Lower weight at the balancer for a suspect until it recovers, without a token, if its app "
        "reports only errors; only with `weight`; `off`: full weight.",
    )
    weight_floor: Count = Field(10, ge=1, le=100, description="Minimum percent of its weight that a container is told.")
    agent_maxconn: Count = Field(
        0, ge=0, le=100_000, description="Connections the agent-check allows at full weight, fewer below; 0: says none."
    )
    log_format: Literal["auto", "json", "console"] = Field(
        "auto", description="`auto` is `console` on a terminal and `json` elsewhere."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Lowest level of the lines that are logged."
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
        # A default that depends on another value is not made when any value is bad: the bad one is told by itself.
        bad = [detail for detail in details if detail["type"] != "default_factory_not_called"]
        problems += [shown.problem(detail, Settings.model_fields, given) for detail in bad]
        raise SettingsError(problems) from None
    problems += contradictions(settings)
    if problems:
        raise SettingsError(problems)
    return settings


def origins(flags: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return by setting who gave its effective value: flag, env, file, preset, nomad or default."""
    given = _given(flags, environ)
    return {name: given.origin(name) for name in Settings.model_fields}


def table() -> list[tuple[str, str, str]]:
    """Return name, default as a user would write it, and description of every setting."""
    return shown.rows(Settings.model_fields)


def _given(flags: Mapping[str, str], environ: Mapping[str, str]) -> sources.Sources:
    env = EnvSettingsSource(Settings)
    # An empty variable is how job files and units leave a setting out.
    env.env_vars = {name.lower(): value for name, value in environ.items() if value}
    return sources.read(Settings.model_fields, flags, env(), environ)
