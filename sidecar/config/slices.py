"""The configuration as the program sees it: one slice per part, each field named as its setting.

Every part receives its own slice only. ``settings`` validates the values, with pydantic and in another process; this
module must not import pydantic. The slices are named tuples, because dataclasses would take 12 ms at every start, and
these take 3 ms. ``settings_model`` says what a setting means. Durations are seconds; ``""`` is a text that was not set.
"""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from sidecar.config.addresses import OFF, listed
from sidecar.config.rollout import ALL, ALONE, SHADOW, Mode, own_mode

Switch = Literal["on", "off"]


class IdentityConfig(NamedTuple):
    """Which container this is. ``mode`` is the mode of this container, after ``enforce_percent``."""

    service: str = "app"
    namespace: str = "default"
    instance: str = ""
    mode: Mode = "shadow"
    enforce_percent: int = 100
    alone: bool = False

    @property
    def has_other_mode(self) -> bool:
        """Whether containers of the service may run in the other mode."""
        return self.mode == SHADOW or self.enforce_percent < ALL

    @property
    def app(self) -> str:
        """Service and instance, the name of the app in state files."""
        return f"{self.service}/{self.instance}"


class JudgingConfig(NamedTuple):
    """What makes an app unhealthy, and how often the window is checked."""

    error_limit: int = 5
    error_window: float = 60
    kind_limits: str = ""
    ignore_kinds: str = ""
    error_ratio: float = 0.5
    consecutive_limit: int = 0
    heartbeat_timeout: float = 0
    scrape_down_after: int = 0
    outlier: Switch = "on"
    grace: float = 0
    check_interval: float = 10


class CullingConfig(NamedTuple):
    """The steps of a cull, from the claim to the container that is down."""

    settle: float = 3
    drain: float = 10


class ActionConfig(NamedTuple):
    """What has a container that is down restarted."""

    action: Literal["check", "exit", "command", "nomad-restart", "nomad-stop"] = "check"
    action_command: str = ""
    action_timeout: float = 30
    nomad_task: str = ""


class HookConfig(NamedTuple):
    """The program that captures evidence before a cull."""

    cull_hook: str = ""
    cull_hook_timeout: float = 5


class RetirementConfig(NamedTuple):
    """Planned restarts because of age."""

    lifetime: float = 0
    lifetime_max: float = 0
    busy_load: float = 0
    retire_slots: str = "1"


class WeightConfig(NamedTuple):
    """The weight at the balancer."""

    weight: Switch = "on"
    soft_drain: Switch = "on"


class BudgetConfig(NamedTuple):
    """The rules of the fleet: how many culls, and when."""

    budget: str = "10"
    budget_window: float = 600
    budget_strategy: Literal["log", "previous", "fixed"] = "log"
    spacing: float = 0
    min_healthy: str = "50%"
    trial: Switch = "on"
    probation: float = 60
    refund: Switch = "on"
    beat_interval: float = 10
    after_data_loss: Literal["wait", "continue"] = "wait"


class RedisConfig(NamedTuple):
    """The Redis that keeps the fleet's state."""

    redis_url: str = ""
    redis_password_file: str = ""
    redis_ca: str = ""
    redis_cert: str = ""
    redis_key: str = ""
    redis_timeout: float = 1


class StateConfig(NamedTuple):
    """The directory that keeps the state of this container."""

    state_dir: str = ""


class AppConfig(NamedTuple):
    """Where the app listens."""

    app_port: str = ""


class ScrapeConfig(NamedTuple):
    """The app's metrics page."""

    scrape_url: str = ""
    scrape_errors: str = ""
    scrape_requests: str = ""
    scrape_in_flight: str = ""
    scrape_interval: float = 10


class StatsdConfig(NamedTuple):
    """StatsD datagrams."""

    statsd_listen: str = "off"
    statsd_socket: str = ""
    statsd_prefix: str = ""

    @property
    def has_sockets(self) -> bool:
        """Whether datagrams are received at all."""
        return self.statsd_listen != OFF or bool(self.statsd_socket)


class ServerConfig(NamedTuple):
    """The listeners, and what they answer."""

    local_listen: str = "127.0.0.1:9180"
    socket: str = ""
    public_listen: str = "0.0.0.0:9181"
    public_allow: str = ""
    agent_listen: str = "0.0.0.0:9182"
    page_listen: str = "off"
    down_status: int = 503
    stop_drain: float = 5
    token_file: str = ""


class TlsConfig(NamedTuple):
    """The certificate of the listeners, and the authorities of their clients."""

    tls_cert: str = ""
    tls_key: str = ""
    tls_listeners: str = "page"
    tls_client_ca: str = ""

    def covers(self, listener: str) -> bool:
        """Whether this listener (``page``, ``public``, ``local``) speaks TLS."""
        return bool(self.tls_cert) and listener in listed(self.tls_listeners)


class NotifyConfig(NamedTuple):
    """Messages to people, and the links in them."""

    webhook_url: str = ""
    webhook_url_file: str = ""
    webhook_template: str = ""
    runbook_url: str = ""
    page_url: str = ""

    @property
    def has_webhook(self) -> bool:
        """Whether messages are sent at all."""
        return bool(self.webhook_url or self.webhook_url_file)


class RunLockConfig(NamedTuple):
    """The lock that lets one sidecar of several run, and its standby."""

    run_lock: str = ""
    standby: bool = False


class LogConfig(NamedTuple):
    """The log."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"


class SourceConfig(NamedTuple):
    """Where settings were read from."""

    config: str = ""
    preset: Literal["", "classdojo"] = ""


class Config(NamedTuple):
    """All slices."""

    identity: IdentityConfig = IdentityConfig()
    judging: JudgingConfig = JudgingConfig()
    culling: CullingConfig = CullingConfig()
    action: ActionConfig = ActionConfig()
    hook: HookConfig = HookConfig()
    retirement: RetirementConfig = RetirementConfig()
    weight: WeightConfig = WeightConfig()
    budget: BudgetConfig = BudgetConfig()
    redis: RedisConfig = RedisConfig()
    state: StateConfig = StateConfig()
    app: AppConfig = AppConfig()
    scrape: ScrapeConfig = ScrapeConfig()
    statsd: StatsdConfig = StatsdConfig()
    server: ServerConfig = ServerConfig()
    tls: TlsConfig = TlsConfig()
    notify: NotifyConfig = NotifyConfig()
    run_lock: RunLockConfig = RunLockConfig()
    log: LogConfig = LogConfig()
    source: SourceConfig = SourceConfig()

    @property
    def alone(self) -> str:
        """What it means that there is no shared store, as a sentence; ``""`` with one."""
        return "" if self.redis.redis_url else ALONE[self.identity.mode]

    @property
    def state_directory(self) -> str:
        """The directory of the state file: the state directory, else that of the run lock; ``""`` for none."""
        return self.state.state_dir or self.run_lock.run_lock


def config_of(values: Mapping[str, Any]) -> Config:
    """Return the configuration from the valid value of every setting, with the mode of this container."""
    slices: dict[str, Any] = {
        name: type(default)(**{setting: values[setting] for setting in default._fields})
        for name, default in Config()._asdict().items()
    }
    config = Config(**slices)
    own = config.identity
    mode = own_mode(own.mode, own.service, own.instance, own.enforce_percent)
    return config._replace(identity=own._replace(mode=mode))
