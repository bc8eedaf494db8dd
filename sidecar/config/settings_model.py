"""All settings, some of them from ``fields``: the default, the type and the meaning of each. Needs pydantic."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal

from pydantic import ConfigDict, Field

from sidecar.config import sources
from sidecar.config.bound import BOUND
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
    Networks,
    PortOrAddress,
    RedisUrls,
    ScrapeUrl,
    Seconds,
    Selectors,
    ShareOfFleet,
    SocketPath,
    StatsdPrefix,
    Switch,
)
from sidecar.config.fields import LifetimeFields, OperationFields
from sidecar.config.rollout import ENFORCE, SHADOW, Mode

if TYPE_CHECKING:
    from collections.abc import Mapping


def _mode(before: Mapping[str, Any]) -> Mode:
    """Enforce with a shared budget: without one every container of a fleet would cull itself."""
    return ENFORCE if before.get("redis_url") or before.get("alone") else SHADOW


def _refund(before: Mapping[str, Any]) -> Switch:
    """On if the strategy can give back a single grant; the others only count."""
    return "on" if before.get("budget_strategy") == "log" else "off"


def _soft_drain(before: Mapping[str, Any]) -> Switch:
    """On with ``weight``."""
    return "on" if before.get("weight") == "on" else "off"


class Settings(OperationFields, LifetimeFields):
    """The effective settings. Durations are seconds; ``""`` is a text that was not set."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
        str_strip_whitespace=True,
        validate_default=True,
    )

    config: str = Field(
        "", description="Path of a TOML file with settings, their names in lower case and without the prefix."
    )
    preset: Literal["", "classdojo"] = Field(
        "", description="Name of a set of defaults: `classdojo` has the numbers of the article and no more."
    )
    redis_url: RedisUrls = Field(
        "",
        description="URL of Redis: `redis://`, `rediss://`, `unix://`, `redis+sentinel://` or `redis+cluster://`; "
        "empty: no fleet, see `alone`; a URL with a password belongs in the "
        "environment or the file.",
    )
    alone: bool = Field(
        default=False,
        description="Whether a sidecar without `redis_url` may enforce, with a budget of its own: for a container "
        "without a fleet.",
    )
    mode: Mode = Field(
        default_factory=_mode,
        description="Effect on unhealthy containers: `enforce` culls them, `shadow` only reports it; with `redis_url` "
        "or `alone` the default is `enforce`.",
    )
    service: Name = Field(
        "app", max_length=128, description="Name of the service that shares one budget; under Nomad, job and group."
    )
    namespace: Name = Field(
        "default", max_length=128, description="Namespace of the service's name; under Nomad, its namespace."
    )
    instance: Name = Field(
        default_factory=lambda: sources.fit(os.uname().nodename),
        max_length=128,
        description="Name of this container, unique within the service; under Nomad by default the allocation's id.",
    )
    error_limit: Count = Field(
        5, ge=1, description="Number of server errors in the error window at which the app is unhealthy."
    )
    error_window: Seconds = Field(
        60, ge=1, le=3600, multiple_of=1, description="Time for which an error counts, in whole seconds, 1s to 1h."
    )
    kind_limits: KindLimits = Field(
        "", description="Number of errors of one kind at which the app is unhealthy: `redis:3,mysql:5`."
    )
    ignore_kinds: KindNames = Field(
        "", description="Kinds of errors that are shown and never count: `cache,search`; empty: none."
    )
    error_ratio: Fraction = Field(
        0.5, ge=0, le=1, description="Ratio of failed requests at which the app is unhealthy, from 0 to 1; 0: off."
    )
    consecutive_limit: Count = Field(
        0, ge=0, description="Number of failed requests in a row at which the app is unhealthy; 0: off."
    )
    heartbeat_timeout: Seconds = Field(
        0, description="Maximum time between two heartbeats, once the app has sent one; 0: off."
    )
    scrape_down_after: Count = Field(
        0, ge=0, description="Number of failed scrapes in a row at which the app is unhealthy; 0: off."
    )
    check_interval: Seconds = Field(10, ge=0.1, description="Time between two checks of the window.")
    budget: Budget = Field(
        "10",
        description=f"Number of tokens of the service per window, N, as a count or a percentage like `5%`: {BOUND}.",
    )
    budget_window: Seconds = Field(600, ge=1, description="Time for which a token stays spent, 1s to 24h.")
    budget_strategy: Literal["log", "previous", "fixed"] = Field(
        "log",
        description="Method of counting culls: `log` is exact, `previous` approximate (at most 2N - 1 in any "
        "window), `fixed` the article's (at most 2N).",
    )
    spacing: Seconds = Field(0, description="Minimum time between two culls of the service; 0: none.")
    min_healthy: ShareOfFleet = Field(
        "50%", description="Minimum number of containers in service after a cull: a count, or a percentage; 0: none."
    )
    trial: Switch = Field(
        "on",
        description="Limit on culls for one cause until their outcome is known: one at first, more when they help, "
        "none for a time when they do not; `off`: no limit.",
    )
    probation: Seconds = Field(
        60, description="Time for which a replacement must stay healthy to show that its cull helped."
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
    beat_interval: Seconds = Field(
        10, ge=0.1, le=300, description="Time between two beats, the sidecar's signs of life to the fleet, 100ms to 5m."
    )
    after_data_loss: Literal["wait", "continue"] = Field(
        "wait", description="Behaviour after Redis lost its data: `wait` one window without culls, or `continue`."
    )
    settle: Seconds = Field(
        3,
        description="Time that a suspect waits before its claim, which it makes unless it is fine meanwhile; 0: none.",
    )
    drain: Seconds = Field(
        10, description="Time between the drain at HAProxy and the failing health check for Nomad; 0: none."
    )
    grace: Seconds = Field(0, description="Time after the app's start in which its errors do not count; 0: none.")
    stop_drain: Seconds = Field(5, description="Time for which health is down before the sidecar stops; 0: none.")
    down_status: Count = Field(
        503, ge=400, le=599, description="HTTP status of a health answer that says down, 400 to 599."
    )
    redis_password_file: FilePath = Field(
        "", description="Path of the file with the password for Redis, read again for every connection."
    )
    redis_ca: FilePath = Field(
        "", description="Path of the PEM file with the certificates that sign the one of Redis, for `rediss://`."
    )
    redis_cert: FilePath = Field("", description="Path of the PEM file with the sidecar's certificate for Redis.")
    redis_key: FilePath = Field("", description="Path of the PEM file with the key of that certificate.")
    redis_timeout: Seconds = Field(1, ge=0.01, le=10, description="Maximum time to wait for Redis, 10ms to 10s.")
    state_dir: FilePath = Field(
        "", description="Directory of the state file; under Nomad the allocation's `tmp`; empty: no state file."
    )
    local_listen: LoopbackOrOff = Field(
        "127.0.0.1:9180", description="Address at which the app reports errors: loopback, or `off`."
    )
    socket: SocketPath = Field(
        "", description="Path of the unix socket at which the app may report errors too; empty: none."
    )
    app_port: PortOrAddress = Field(
        "",
        description="Port at which the app listens, to notice that it was restarted; `host:port` if it has a network "
        "of its own; empty: none.",
    )
    statsd_listen: LoopbackOrOff = Field(
        "off", description="UDP address for StatsD datagrams, such as `127.0.0.1:8125`: loopback, or `off`."
    )
    statsd_socket: SocketPath = Field(
        "", description="Path of the unix datagram socket for StatsD datagrams; empty: none."
    )
    statsd_prefix: StatsdPrefix = Field(
        "", description="Prefix that the app's StatsD client puts before every name; empty: none."
    )
    scrape_url: ScrapeUrl = Field(
        "", description="URL of the metrics page: `http://`, `https://`, `unix:///a.sock:/metrics`; empty: none."
    )
    scrape_errors: Selectors = Field(
        "", description='Selectors of series that count errors, with `;` between: `errors_total{code=~"5.."}`.'
    )
    scrape_requests: Selectors = Field(
        "", description="Selectors of the series that count requests, for the error ratio."
    )
    scrape_in_flight: Selectors = Field("", description="Selectors of the series that show the requests in flight.")
    scrape_interval: Seconds = Field(10, ge=0.1, description="Time between two scrapes of the page.")
    public_listen: Listen = Field("0.0.0.0:9181", description="Address at which health and metrics are served.")
    public_allow: Networks = Field(
        "",
        description="Clients of the public listener and of the agent-check, as addresses and networks with commas "
        "between: `10.0.0.5,10.1.0.0/16,fd00::/8`; loopback, and this machine at its own address, are always allowed; "
        "empty: everybody.",
    )
    agent_listen: ListenOrOff = Field(
        "0.0.0.0:9182", description="Address at which HAProxy's agent-check is answered, or `off`."
    )
    weight: Switch = Field(
        "on", description="Weight at the balancer by the success rate, cubed, in percent; `off`: full weight."
    )
    soft_drain: Switch = Field(
        default_factory=_soft_drain,
        description="Lower weight for a suspect until it recovers, without a token, if its app reports only errors; "
        "only with `weight`; `off`: full weight.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Lowest level of the lines that are logged."
    )
