"""All settings: each is declared here once, in the class of the part that receives it.

A declaration has the name, the type, the bounds, the default and one sentence, with the unit and the value that means
off. ``load`` reads it with pydantic, in another process; so this module must not import pydantic, and its annotations
stay text. Durations are seconds; ``""`` is a text that was not set.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple

from sidecar.config.addresses import OFF
from sidecar.config.syntax import parse_share

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import Field

    from sidecar.config.field_types import (
        Budget,
        Count,
        FilePath,
        Fraction,
        KindLimits,
        Label,
        Link,
        Listen,
        ListenOrOff,
        LongSeconds,
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
        TlsListeners,
        WebUrl,
    )

PREFIX: Final = "ARBITER_"
"""With this the name of each setting begins in the environment."""

Mode = Literal["enforce", "shadow"]
ENFORCE: Final = "enforce"
SHADOW: Final = "shadow"
ALL: Final = 100
WITHOUT_REDIS: Final[dict[Mode, str]] = {
    ENFORCE: "there is no shared store (ARBITER_REDIS_URL): this sidecar enforces with a budget of its own, and "
    "nothing limits how many containers of a fleet are culled together",
    SHADOW: "there is no shared store (ARBITER_REDIS_URL): this sidecar culls nothing, and reports what it would "
    "cull with a budget of its own",
}
"""The meaning of each mode without a shared store, as a sentence."""

REFUND_FACTOR: Final = 3
_BOUNDS: Final = {"log": (1, 0), "previous": (2, 1), "fixed": (2, 0)}
"""Strategy -> factor and subtrahend of the bound on culls: ``previous`` allows 2N - 1."""


class IdentityConfig(NamedTuple):
    """Which container this is. ``mode`` is the mode of this container, after ``enforce_percent``."""

    service: Annotated[
        Name, Field(max_length=110), "Name of the service that shares one budget; under Nomad, job and group."
    ] = "app"
    namespace: Annotated[
        Name, Field(max_length=128), "Namespace of the service's name; under Nomad, its namespace."
    ] = "default"
    instance: Annotated[
        Name,
        Field(max_length=110),  # with the service in the name of the state file, of which a file system takes 255 bytes
        "Name of this container, unique within the service; under Nomad by default the allocation's id.",
    ] = ""
    node: Annotated[
        Label,
        "Name of the machine that the container runs on, to tell what suspects have in common; empty: not known.",
    ] = ""
    app_version: Annotated[
        Label,
        "Version of the app, for the same; the app may report another as `version`; empty: not known.",
    ] = ""
    mode: Annotated[
        Mode,
        "Effect on unhealthy containers: `enforce` culls them, `shadow` only reports it; with `redis_url` or `alone` "
        "the default is `enforce`.",
    ] = "shadow"
    enforce_percent: Annotated[
        Count, Field(ge=0, le=100), "Percentage of the containers that `enforce` is for; the others run as in `shadow`."
    ] = 100
    alone: Annotated[
        bool,
        "Whether a sidecar without `redis_url` may enforce, with a budget of its own: for a container without a fleet.",
    ] = False

    @property
    def has_other_mode(self) -> bool:
        """Whether containers of the service may run in the other mode."""
        return self.mode == SHADOW or self.enforce_percent < ALL

    @property
    def app(self) -> str:
        """Service and instance, the name of the app in state files."""
        return f"{self.service}/{self.instance}"

    @property
    def place(self) -> int:
        """The container's place in the rollout, 0 to 99.

        It comes from the name alone, so that every process finds the same place. By hand:

            echo $(( 0x$(printf %s "$SERVICE/$INSTANCE" | sha256sum | cut -c1-8) * 100 >> 32 ))
        """
        digest = sha256(self.app.encode(), usedforsecurity=False).digest()
        return int.from_bytes(digest[:4], "big") * ALL >> 32

    @property
    def own_mode(self) -> Mode:
        """The mode of this container, while ``mode`` is that of the service.

        The places below ``enforce_percent`` enforce: a higher percentage only adds containers.
        """
        return ENFORCE if self.mode == ENFORCE and self.place < self.enforce_percent else SHADOW


class JudgingConfig(NamedTuple):
    """What makes an app unhealthy, and how often the window is checked."""

    error_limit: Annotated[
        Count, Field(ge=1), "Number of server errors in the error window at which the app is unhealthy."
    ] = 5
    error_window: Annotated[
        Seconds, Field(ge=1, le=3600, multiple_of=1), "Time for which an error counts, in whole seconds, 1s to 1h."
    ] = 60
    kind_limits: Annotated[
        KindLimits,
        "Number of errors of one kind at which the app is unhealthy; with `off` they are shown, and never count: "
        "`redis:3,cache:off`.",
    ] = ""
    error_ratio: Annotated[
        Fraction,
        Field(ge=0, le=1),
        "Ratio of failed requests at which the app is unhealthy, from 0 to 1, with at least 20 requests in the window; "
        "0: off.",
    ] = 0.5
    heartbeat_timeout: Annotated[Seconds, "Maximum time between two heartbeats, once the app has sent one; 0: off."] = 0
    outlier: Annotated[
        Switch,
        "Comparison with the fleet: errors are too many only above what chance explains at the fleet's median rate; "
        "`off`: the limits alone decide.",
    ] = "on"
    grace: Annotated[Seconds, "Time after the app's start in which its errors do not count; 0: none."] = 0
    check_interval: Annotated[
        Seconds, Field(ge=0.1), "Time between two checks of the window, and between two scrapes."
    ] = 10


class CullingConfig(NamedTuple):
    """What becomes of a suspect, from its lower weight at the balancer to the container that is down."""

    weight: Annotated[
        Switch,
        "Weight at the balancer by the success rate, cubed, in percent, and lower for a suspect whose app reports only "
        "errors; `off`: full weight.",
    ] = "on"
    settle: Annotated[
        Seconds, "Time that a suspect waits before its claim, which it makes unless it is fine meanwhile; 0: none."
    ] = 3
    drain: Annotated[Seconds, "Time between the drain at HAProxy and the failing health check for Nomad; 0: none."] = 10
    cull_hook: Annotated[FilePath, "Path of a program that runs before the drain of a cull; empty: none."] = ""


class ActionConfig(NamedTuple):
    """What has a container that is down restarted."""

    action: Annotated[
        Literal["check", "exit", "command", "nomad-restart", "nomad-stop"],
        "Action after the drain: `check` (its failing check restarts the container), `exit`, `command`, "
        "`nomad-restart` or `nomad-stop`.",
    ] = "check"
    action_command: Annotated[
        str, "Command of the action `command`, which no shell reads: `systemctl restart app`."
    ] = ""
    nomad_task: Annotated[str, "Name of the task that the action `nomad-restart` restarts."] = ""


class RetirementConfig(NamedTuple):
    """Planned restarts because of age."""

    lifetime: Annotated[
        LongSeconds, "Age at which an app is retired: drained and replaced as by a cull, without a token; 0: never."
    ] = 0
    busy_load: Annotated[
        Fraction,
        Field(ge=0),
        "Load above which an app is busy, and retired later, at twice its lifetime at most: what it reports, or else "
        "its requests in flight; 0: being busy does not matter.",
    ] = 0
    retire_slots: Annotated[
        Budget, "Maximum number of containers retired at the same time: a count, or a percentage."
    ] = "1"


class BudgetConfig(NamedTuple):
    """The rules of the fleet: how many culls, and when."""

    budget: Annotated[
        Budget,
        "Number of tokens of the service per window, N, as a count or a percentage like `5%`: at most N culls in any "
        "window, or 3N with refunds.",
    ] = "10"
    budget_window: Annotated[Seconds, Field(ge=1), "Time for which a token stays spent, 1s to 24h."] = 600
    budget_strategy: Annotated[
        Literal["log", "previous", "fixed"],
        "Method of counting culls: `log` is exact, `previous` approximate (at most 2N - 1 in any window), `fixed` "
        "the article's (at most 2N).",
    ] = "log"
    spacing: Annotated[Seconds, "Minimum time between two culls of the service; 0: none."] = 0
    min_healthy: Annotated[
        ShareOfFleet, "Minimum number of containers in service after a cull: a count, or a percentage; 0: none."
    ] = "50%"
    trial: Annotated[
        Switch,
        "Limit on culls for one cause until their outcome is known: one at first, more when they help, none for a "
        "time when they do not; `off`: no limit.",
    ] = "on"
    probation: Annotated[Seconds, "Time for which a replacement must stay healthy to show that its cull helped."] = 60
    refund: Annotated[
        Switch,
        "Early return of the token of a cull that helped, only with strategy `log`; `off`: every token stays spent "
        "for the window.",
    ] = "on"
    beat_interval: Annotated[
        Seconds, Field(ge=0.1, le=300), "Time between two beats, the sidecar's signs of life to the fleet, 100ms to 5m."
    ] = 10
    after_data_loss: Annotated[
        Literal["wait", "continue"],
        "Behaviour after Redis lost its data: `wait` one window without culls, or `continue`.",
    ] = "wait"

    def bound(self, tokens: int | None = None) -> str:
        """The bound on culls in words. ``tokens``: N, if it is known better than by the settings alone.

        A budget in percent depends on the fleet: without ``tokens`` its bound is in terms of N.
        """
        if tokens is None:
            amount, is_part = parse_share(self.budget)
            tokens = None if is_part else amount
        most = _multiple(tokens, *_BOUNDS[self.budget_strategy])
        culls = f"at most {most} cull{'' if most == '1' else 's'} in any window"
        if self.refund == "off":
            return culls
        return f"{culls}, or {_multiple(tokens, REFUND_FACTOR)} with refunds"


def _multiple(tokens: int | None, factor: int, less: int = 0) -> str:
    if tokens is not None:
        return str(factor * tokens - less)
    return f"{factor if factor > 1 else ''}N{f' - {less}' if less else ''}"


class RedisConfig(NamedTuple):
    """The Redis that keeps the fleet's state."""

    redis_url: Annotated[
        RedisUrls,
        "URL of Redis: `redis://`, `rediss://`, `unix://`, `redis+sentinel://` or `redis+cluster://`; empty: no "
        "fleet, see `alone`; a URL with a password belongs in the environment or the file.",
    ] = ""
    redis_password_file: Annotated[
        FilePath, "Path of the file with the password for Redis, read again for every connection."
    ] = ""
    redis_timeout: Annotated[
        Seconds, Field(ge=0.01, le=10), "Maximum time to wait for Redis, 10ms to 10s, shorter than `check_interval`."
    ] = 1


class AppConfig(NamedTuple):
    """What is read of the app: the socket at its port, and its metrics page."""

    app_port: Annotated[
        PortOrAddress,
        "Port at which the app listens, to notice that it was restarted; `host:port` if it has a network of its own; "
        "empty: none.",
    ] = ""
    scrape_url: Annotated[
        ScrapeUrl, "URL of the metrics page: `http://`, `https://`, `unix:///a.sock:/metrics`; empty: none."
    ] = ""
    scrape_errors: Annotated[
        Selectors, 'Selectors of series that count errors, with `;` between: `errors_total{code=~"5.."}`.'
    ] = ""
    scrape_requests: Annotated[Selectors, "Selectors of the series that count requests, for the error ratio."] = ""
    scrape_in_flight: Annotated[Selectors, "Selectors of the series that show the requests in flight."] = ""


class StatsdConfig(NamedTuple):
    """StatsD datagrams."""

    statsd_listen: Annotated[
        LoopbackOrOff, "UDP address for StatsD datagrams, such as `127.0.0.1:8125`: loopback, or `off`."
    ] = "off"
    statsd_socket: Annotated[SocketPath, "Path of the unix datagram socket for StatsD datagrams; empty: none."] = ""
    statsd_prefix: Annotated[
        StatsdPrefix, "Prefix that the app's StatsD client puts before every name; empty: none."
    ] = ""

    @property
    def has_sockets(self) -> bool:
        """Whether datagrams are received at all."""
        return self.statsd_listen != OFF or bool(self.statsd_socket)


class ServerConfig(NamedTuple):
    """The listeners, and what they answer."""

    local_listen: Annotated[LoopbackOrOff, "Address at which the app reports errors: loopback, or `off`."] = (
        "127.0.0.1:9180"
    )
    socket: Annotated[SocketPath, "Path of the unix socket at which the app may report errors too; empty: none."] = ""
    public_listen: Annotated[Listen, "Address at which health and metrics are served."] = "0.0.0.0:9181"
    public_allow: Annotated[
        Networks,
        "Clients of the public listener and of the agent-check, as addresses and networks with commas between: "
        "`10.0.0.5,10.1.0.0/16,fd00::/8`; loopback, and this machine at its own address, are always allowed; empty: "
        "everybody.",
    ] = ""
    agent_listen: Annotated[ListenOrOff, "Address at which HAProxy's agent-check is answered, or `off`."] = (
        "0.0.0.0:9182"
    )
    page_listen: Annotated[
        ListenOrOff, "Address of the status page for other machines, which needs a token, or `off`."
    ] = "off"
    stop_drain: Annotated[Seconds, "Time for which health is down before the sidecar stops; 0: none."] = 5
    token_file: Annotated[
        FilePath, "Path of the file with the token for the page listener and orders over TCP; empty: none."
    ] = ""


class TlsConfig(NamedTuple):
    """The certificate of the listeners, and the authorities of their clients."""

    tls_cert: Annotated[
        FilePath, "Path of the listeners' certificate in PEM, read again when it changes; empty: no TLS."
    ] = ""
    tls_key: Annotated[FilePath, "Path of the key of that certificate in PEM."] = ""
    tls_listeners: Annotated[
        TlsListeners, "Listeners that use the certificate, with commas between: `page`, `public`."
    ] = "page"
    tls_client_ca: Annotated[
        FilePath,
        "Path of the PEM file with the authorities of clients: these listeners then require a certificate that one "
        "of them has signed, read again when it changes; empty: clients need none.",
    ] = ""

    def covers(self, listener: str) -> bool:
        """Whether this listener (``page``, ``public``) speaks TLS."""
        return bool(self.tls_cert) and listener in self.tls_listeners.split(",")


class NotifyConfig(NamedTuple):
    """Messages to people, and the links in them."""

    webhook_url: Annotated[WebUrl, "URL for messages, of Slack, Mattermost or Teams as it is; empty: none."] = ""
    webhook_template: Annotated[
        FilePath, "Path of the file with the JSON of messages, `$` before its fields; empty: their text alone."
    ] = ""
    runbook_url: Annotated[
        Link, "URL with which the links to runbooks begin, in messages and in `/why`; empty: no links."
    ] = ""

    @property
    def has_webhook(self) -> bool:
        """Whether messages are sent at all."""
        return bool(self.webhook_url)


class ProcessConfig(NamedTuple):
    """This process: its state file, its log, and the lock by which one of several runs."""

    state_dir: Annotated[
        FilePath, "Directory of the state file; under Nomad the allocation's `tmp`; empty: no state file."
    ] = ""
    run_lock: Annotated[
        FilePath, "Directory of the run lock, by which one of several sidecars runs; empty: no lock."
    ] = ""
    standby: Annotated[bool, "Whether the sidecar waits as standby while another holds the run lock."] = False


class SourceConfig(NamedTuple):
    """Where settings were read from."""

    config: Annotated[str, "Path of a TOML file with settings, their names in lower case and without the prefix."] = ""
    preset: Annotated[
        Literal["", "classdojo"], "Name of a set of defaults: `classdojo` has the numbers of the article and no more."
    ] = ""


class Config(NamedTuple):
    """All slices."""

    identity: IdentityConfig = IdentityConfig()
    judging: JudgingConfig = JudgingConfig()
    culling: CullingConfig = CullingConfig()
    action: ActionConfig = ActionConfig()
    retirement: RetirementConfig = RetirementConfig()
    budget: BudgetConfig = BudgetConfig()
    redis: RedisConfig = RedisConfig()
    app: AppConfig = AppConfig()
    statsd: StatsdConfig = StatsdConfig()
    server: ServerConfig = ServerConfig()
    tls: TlsConfig = TlsConfig()
    notify: NotifyConfig = NotifyConfig()
    process: ProcessConfig = ProcessConfig()
    source: SourceConfig = SourceConfig()

    @property
    def alone(self) -> str:
        """What it means that there is no shared store, as a sentence; ``""`` with one."""
        return "" if self.redis.redis_url else WITHOUT_REDIS[self.identity.mode]

    @property
    def state_directory(self) -> str:
        """The directory of the state file: the state directory, else that of the run lock; ``""`` for none."""
        return self.process.state_dir or self.process.run_lock


def setting_names() -> tuple[str, ...]:
    """The names of all settings, part by part."""
    return tuple(name for part in Config() for name in part._fields)


def parts_of(values: Mapping[str, Any]) -> Config:
    """Return the configuration from the valid value of every setting, with the mode of the service."""
    parts: dict[str, Any] = {
        name: type(default)(**{setting: values[setting] for setting in default._fields})
        for name, default in Config()._asdict().items()
    }
    return Config(**parts)


def config_of(values: Mapping[str, Any]) -> Config:
    """Return the configuration of this container: as ``parts_of``, with its own mode."""
    config = parts_of(values)
    return config._replace(identity=config.identity._replace(mode=config.identity.own_mode))
