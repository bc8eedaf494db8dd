"""Finds settings that are each allowed and contradict one another. It changes nothing."""

from __future__ import annotations

import os
import shlex
import shutil
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

from sidecar.config import access_rules, addresses, kinds, redis_urls, shares, webhook_template
from sidecar.config.rollout import ENFORCE
from sidecar.core.life.delays import JITTER, LIFETIME_JITTER
from sidecar.runlock import durations

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sidecar.config.settings_model import Settings

_HOUR_S = 3600
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_FIXED_LIMIT_S = 1800
_APP_LIMIT = 255 - len("health-arbiter-.json")


def contradictions(settings: Settings) -> list[str]:
    """Return a line for every contradiction, beginning with the variable's name."""
    rules = (
        _mode,
        _state_file,
        _watching,
        _judging,
        _lifetime,
        _scrape,
        _budget,
        _fleet,
        _redis,
        _redis_files,
        _listeners,
        _app_port,
        _evidence,
        _action,
        _run_lock,
        _messages,
        access_rules.problems,
    )
    return [problem for rule in rules for problem in rule(settings)]


def _state_file(s: Settings) -> Iterator[str]:
    if (s.state_dir or s.run_lock) and len(f"{s.service}/{s.instance}") > _APP_LIMIT:
        yield (
            f"ARBITER_INSTANCE: with ARBITER_SERVICE it has more than {_APP_LIMIT - 1} characters: "
            "no file system takes the name of the state file, and a cull would not survive the sidecar"
        )


def _watching(s: Settings) -> Iterator[str]:
    interval, window, settle = map(durations.write, (s.check_interval, s.error_window, s.settle))
    if s.check_interval > s.error_window:
        yield (
            f"ARBITER_CHECK_INTERVAL: {interval} is longer than ARBITER_ERROR_WINDOW={window}: "
            "errors would be forgotten unseen"
        )
    if s.settle * (1 + JITTER) >= s.error_window:
        yield (
            f"ARBITER_SETTLE: {settle}, and up to a quarter of it more, is not shorter than "
            f"ARBITER_ERROR_WINDOW={window}: the errors would be forgotten before the claim"
        )


def _judging(s: Settings) -> Iterator[str]:
    interval = durations.write(s.check_interval)
    if 0 < s.heartbeat_timeout < s.check_interval:
        yield (
            f"ARBITER_HEARTBEAT_TIMEOUT: {durations.write(s.heartbeat_timeout)} is shorter than "
            f"ARBITER_CHECK_INTERVAL={interval}: a silence would be over before the next check"
        )
    ignored = kinds.names(s.ignore_kinds)
    for kind, limit in kinds.limits(s.kind_limits):
        if kind in ignored:
            yield f"ARBITER_KIND_LIMITS: {kind} is in ARBITER_IGNORE_KINDS too: it would never count"
        elif limit > s.error_limit:
            yield (
                f"ARBITER_KIND_LIMITS: {kind}:{limit} is above ARBITER_ERROR_LIMIT={s.error_limit}, "
                "which counts every kind: it would never be reached first"
            )


def _lifetime(s: Settings) -> Iterator[str]:
    if not s.lifetime:
        if s.lifetime_max:
            yield "ARBITER_LIFETIME_MAX: needs ARBITER_LIFETIME: no app would be retired"
        return
    lifetime = durations.write(s.lifetime)
    if not s.redis_url:
        yield (
            f"ARBITER_LIFETIME: {lifetime} needs ARBITER_REDIS_URL: without a shared store nothing would keep the "
            "whole fleet from retiring at once"
        )
    if 0 < s.lifetime_max < s.lifetime:
        yield f"ARBITER_LIFETIME_MAX: {durations.write(s.lifetime_max)} is shorter than ARBITER_LIFETIME={lifetime}"
    delays = {name: getattr(s, name) for name in ("grace", "drain")}
    if s.lifetime * (1 - LIFETIME_JITTER) <= sum(delays.values()):
        names = ", ".join(f"ARBITER_{name.upper()}={durations.write(value)}" for name, value in delays.items())
        yield (
            f"ARBITER_LIFETIME: {lifetime}, and up to a tenth of it less, is not longer than {names} together: "
            "it would be retired as soon as it may be judged"
        )


def _scrape(s: Settings) -> Iterator[str]:
    wanted = s.scrape_errors or s.scrape_requests or s.scrape_in_flight
    if wanted and not s.scrape_url:
        yield "ARBITER_SCRAPE_URL: missing, though there are selectors of what to count on the page"
    if s.scrape_url and not wanted and not s.scrape_down_after:
        yield "ARBITER_SCRAPE_ERRORS: missing: nothing on the page would count, nor ARBITER_SCRAPE_DOWN_AFTER"
    if s.scrape_down_after and not s.scrape_url:
        yield "ARBITER_SCRAPE_DOWN_AFTER: needs ARBITER_SCRAPE_URL"
    if s.socket and s.socket == s.statsd_socket:
        yield "ARBITER_STATSD_SOCKET: the same path as ARBITER_SOCKET, one for datagrams and one for connections"


def _budget(s: Settings) -> Iterator[str]:
    window = durations.write(s.budget_window)
    if s.settle + s.drain >= s.budget_window:
        yield (
            f"ARBITER_BUDGET_WINDOW: {window} is not longer than ARBITER_SETTLE={durations.write(s.settle)} and "
            f"ARBITER_DRAIN={durations.write(s.drain)} together: a token would be back before the container left"
        )
    amount, is_part = shares.parse(s.budget)
    if not is_part and amount > s.budget_window:
        yield (f"ARBITER_BUDGET: {s.budget} is more than ARBITER_BUDGET_WINDOW={window} can hold at one token a second")
    if is_part and not s.redis_url:
        yield f"ARBITER_BUDGET: {s.budget} of the fleet needs ARBITER_REDIS_URL: a budget in memory knows no fleet"
    if s.budget_strategy == "fixed" and not _fits_the_hour(s.budget_window):
        yield (
            f"ARBITER_BUDGET_WINDOW: {window} must be whole seconds that divide an hour, and at most 30m, for "
            "ARBITER_BUDGET_STRATEGY=fixed: its keys are numbered within the hour and used again in the next"
        )


def _mode(s: Settings) -> Iterator[str]:
    if s.mode == ENFORCE and not (s.redis_url or s.alone):
        yield (
            "ARBITER_MODE: enforce needs ARBITER_REDIS_URL, whose budget keeps a fleet from culling itself; a "
            "container without a fleet enforces with ARBITER_ALONE=true"
        )


def _fleet(s: Settings) -> Iterator[str]:
    if shares.parse(s.min_healthy) == (1000, True):
        yield "ARBITER_MIN_HEALTHY: at 100% no container could ever be culled"
    if s.refund == "on" and s.budget_strategy != "log":
        yield f"ARBITER_REFUND: on needs ARBITER_BUDGET_STRATEGY=log, not {s.budget_strategy}"
    if s.spacing >= s.budget_window:
        yield (
            f"ARBITER_SPACING: {durations.write(s.spacing)} is not shorter than "
            f"ARBITER_BUDGET_WINDOW={durations.write(s.budget_window)}: one token is all there would ever be"
        )


def _redis(s: Settings) -> Iterator[str]:
    if s.redis_url and s.redis_timeout >= s.check_interval:
        yield (
            f"ARBITER_REDIS_TIMEOUT: {durations.write(s.redis_timeout)} is not shorter than "
            f"ARBITER_CHECK_INTERVAL={durations.write(s.check_interval)}: a claim would still wait when the next check "
            "is due"
        )


def _redis_files(s: Settings) -> Iterator[str]:
    url = s.redis_url
    for name in ("redis_password_file", "redis_ca", "redis_cert", "redis_key"):
        if getattr(s, name) and not url:
            yield f"ARBITER_{name.upper()}: needs ARBITER_REDIS_URL"
    for name in ("redis_ca", "redis_cert", "redis_key"):
        if getattr(s, name) and url and not url.lower().startswith("rediss"):
            yield f"ARBITER_{name.upper()}: needs TLS, that is rediss:// in ARBITER_REDIS_URL"
        elif url and getattr(s, name) and not os.access(getattr(s, name), os.R_OK):
            yield f"ARBITER_{name.upper()}: {getattr(s, name)} cannot be read"
    if s.redis_password_file and redis_urls.has_password(url):
        yield "ARBITER_REDIS_PASSWORD_FILE: ARBITER_REDIS_URL holds a password as well, one of the two has to go"
    if s.budget_strategy == "fixed" and redis_urls.is_cluster(url):
        yield (
            "ARBITER_BUDGET_STRATEGY: fixed cannot be used on a Redis Cluster: "
            "the article's key and those of the service lie in different slots"
        )
    if s.redis_key and not s.redis_cert:
        yield "ARBITER_REDIS_KEY: needs ARBITER_REDIS_CERT, the certificate of that key"


def _listeners(s: Settings) -> Iterator[str]:
    if s.soft_drain == "on" and s.weight == "off":
        yield "ARBITER_SOFT_DRAIN: on needs ARBITER_WEIGHT=on: the balancer gets no weight that could be lowered"
    for (name, address), (other_name, other) in combinations(_addresses(s), 2):
        if addresses.overlap(address, other):
            yield f"{other_name}: {other} is already taken by {name}={address}"
    if s.local_listen == addresses.OFF and not s.socket:
        yield "ARBITER_LOCAL_LISTEN: off needs an ARBITER_SOCKET: the app could not report errors"


def _addresses(s: Settings) -> tuple[tuple[str, str], ...]:
    return (
        ("ARBITER_LOCAL_LISTEN", s.local_listen),
        ("ARBITER_PUBLIC_LISTEN", s.public_listen),
        ("ARBITER_AGENT_LISTEN", s.agent_listen),
        ("ARBITER_PAGE_LISTEN", s.page_listen),
    )


def _app_port(s: Settings) -> Iterator[str]:
    host, port = addresses.port_of(s.app_port) if s.app_port else ("", 0)
    for name, address in _addresses(s) if host in (None, *_LOOPBACK) else ():
        if address != addresses.OFF and addresses.split(address)[1] == port:
            yield f"ARBITER_APP_PORT: {port} is a port of the sidecar ({name}={address}): name that of the app"


def _evidence(s: Settings) -> Iterator[str]:
    if not s.cull_hook:
        return
    if not (os.access(s.cull_hook, os.X_OK) and Path(s.cull_hook).is_file()):  # is_file raises if it may not look
        yield f"ARBITER_CULL_HOOK: {s.cull_hook} is no file that can be run"
    if s.cull_hook_timeout >= s.error_window:
        yield (
            f"ARBITER_CULL_HOOK_TIMEOUT: {durations.write(s.cull_hook_timeout)} is not shorter than "
            f"ARBITER_ERROR_WINDOW={durations.write(s.error_window)}: the errors would be forgotten before the cull"
        )


def _action(s: Settings) -> Iterator[str]:
    """Check that the action has what it needs."""
    needed = {"command": "action_command", "nomad-restart": "nomad_task"}
    for action, name in needed.items():
        if s.action == action and not getattr(s, name).strip():
            yield f"ARBITER_{name.upper()}: missing, though ARBITER_ACTION={action}"
    if s.action == "exit" and s.run_lock:
        yield "ARBITER_ACTION: exit does not go with ARBITER_RUN_LOCK: another sidecar would take over"
    if s.action == "command" and s.action_command.strip():
        try:
            program = shlex.split(s.action_command)[0]
        except ValueError as error:
            yield f"ARBITER_ACTION_COMMAND: cannot be read: {error}"
        else:
            if shutil.which(program) is None:
                yield f"ARBITER_ACTION_COMMAND: {program} is no program that can be run"


def _run_lock(s: Settings) -> Iterator[str]:
    if s.standby and not s.run_lock:
        yield "ARBITER_STANDBY: needs ARBITER_RUN_LOCK, the directory that the sidecars share"


def _messages(s: Settings) -> Iterator[str]:
    if s.webhook_url and s.webhook_url_file:
        yield "ARBITER_WEBHOOK_URL_FILE: ARBITER_WEBHOOK_URL names a webhook as well, one of the two has to go"
    if s.webhook_template:
        try:
            webhook_template.read(s.webhook_template)
        except ValueError as error:
            yield f"ARBITER_WEBHOOK_TEMPLATE {error}"


def _fits_the_hour(window_s: float) -> bool:
    return window_s <= _FIXED_LIMIT_S and window_s % 1 == 0 and _HOUR_S % window_s == 0
