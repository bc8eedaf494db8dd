"""Finds settings that are each allowed and make the sidecar unsafe or useless together. It changes nothing."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sidecar.config import addresses, redis_urls, syntax
from sidecar.config.settings import ALL, ENFORCE
from sidecar.core.types import CLAIM_JITTER, LIFETIME_JITTER
from sidecar.runlock.durations import write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sidecar.config.settings import Config

_HOUR_S = 3600
_FIXED_LIMIT_S = 1800
_LOOPBACK: Final = (None, "127.0.0.1", "localhost", "::1")


def contradictions(config: Config) -> list[str]:
    """Return a line for every contradiction, beginning with the variable's name. ``config`` has the service's mode."""
    rules = (_fleet, _judging, _lifetime, _scrape, _budget, _redis, _listeners, _token, _certificate, _programs)
    return [f"ARBITER_{problem}" for rule in rules for problem in rule(config)]


def _fleet(c: Config) -> Iterator[str]:
    own = c.identity
    if own.mode == ENFORCE and not (c.redis.redis_url or own.alone):
        yield (
            "MODE: enforce needs ARBITER_REDIS_URL, whose budget keeps a fleet from culling itself; a container "
            "without a fleet enforces with ARBITER_ALONE=true"
        )
    if own.enforce_percent < ALL and own.mode != ENFORCE:
        yield f"ENFORCE_PERCENT: {own.enforce_percent} needs ARBITER_MODE=enforce: in shadow mode none is culled"
    if c.process.standby and not c.process.run_lock:
        yield "STANDBY: needs ARBITER_RUN_LOCK, the directory that the sidecars share"


def _judging(c: Config) -> Iterator[str]:
    window_s, interval_s, heartbeat_s = c.judging.error_window, c.judging.check_interval, c.judging.heartbeat_timeout
    window, interval, settle = write(window_s), write(interval_s), write(c.culling.settle)
    if interval_s > window_s:
        yield f"CHECK_INTERVAL: {interval} is longer than ARBITER_ERROR_WINDOW={window}: errors would pass unseen"
    if c.culling.settle * (1 + CLAIM_JITTER) >= window_s:
        yield (
            f"SETTLE: {settle}, and up to a quarter of it more, is not shorter than ARBITER_ERROR_WINDOW={window}: "
            "the errors would be forgotten before the claim"
        )
    if 0 < heartbeat_s < interval_s:
        yield (
            f"HEARTBEAT_TIMEOUT: {write(heartbeat_s)} is shorter than ARBITER_CHECK_INTERVAL={interval}: a silence "
            "would be over before the next check"
        )


def _lifetime(c: Config) -> Iterator[str]:
    lifetime_s, grace_s, drain_s = c.retirement.lifetime, c.judging.grace, c.culling.drain
    if lifetime_s and not c.redis.redis_url:
        yield (
            f"LIFETIME: {write(lifetime_s)} needs ARBITER_REDIS_URL: without a shared store nothing would keep the "
            "whole fleet from retiring at once"
        )
    if lifetime_s and lifetime_s * (1 - LIFETIME_JITTER) <= grace_s + drain_s:
        yield (
            f"LIFETIME: {write(lifetime_s)}, and up to a tenth of it less, is not longer than "
            f"ARBITER_GRACE={write(grace_s)}, ARBITER_DRAIN={write(drain_s)} together: it would be retired as soon as "
            "it may be judged"
        )


def _scrape(c: Config) -> Iterator[str]:
    has_selectors = bool(c.app.scrape_errors or c.app.scrape_requests or c.app.scrape_in_flight)
    if has_selectors and not c.app.scrape_url:
        yield "SCRAPE_URL: missing, though there are selectors of what to count on the page"
    if c.app.scrape_url and not has_selectors:
        yield "SCRAPE_ERRORS: missing: nothing on the page would count"


def _budget(c: Config) -> Iterator[str]:
    rules, window_s = c.budget, c.budget.budget_window
    window, settle, drain = write(window_s), write(c.culling.settle), write(c.culling.drain)
    if c.culling.settle + c.culling.drain >= window_s:
        yield (
            f"BUDGET_WINDOW: {window} is not longer than ARBITER_SETTLE={settle} and ARBITER_DRAIN={drain} together: "
            "a token would be back before the container left"
        )
    if rules.budget.endswith("%") and not c.redis.redis_url:
        yield f"BUDGET: {rules.budget} of the fleet needs ARBITER_REDIS_URL: a budget in memory knows no fleet"
    if rules.budget_strategy == "fixed" and (window_s > _FIXED_LIMIT_S or window_s % 1 or _HOUR_S % window_s):
        yield (
            f"BUDGET_WINDOW: {window} must be whole seconds that divide an hour, and at most 30m, for "
            "ARBITER_BUDGET_STRATEGY=fixed: its keys are numbered within the hour and used again in the next"
        )
    if rules.budget_strategy == "fixed" and redis_urls.is_cluster(c.redis.redis_url):
        yield (
            "BUDGET_STRATEGY: fixed cannot be used on a Redis Cluster: the article's key and those of the service lie "
            "in different slots"
        )
    if rules.refund == "on" and rules.budget_strategy != "log":
        yield f"REFUND: on needs ARBITER_BUDGET_STRATEGY=log, not {rules.budget_strategy}"
    if rules.min_healthy == "100%":
        yield "MIN_HEALTHY: at 100% no container could ever be culled"


def _redis(c: Config) -> Iterator[str]:
    url, timeout_s, interval_s = c.redis.redis_url, c.redis.redis_timeout, c.judging.check_interval
    if not url:
        return
    if timeout_s >= interval_s:
        yield (
            f"REDIS_TIMEOUT: {write(timeout_s)} is not shorter than ARBITER_CHECK_INTERVAL={write(interval_s)}: a "
            "claim would still wait when the next check is due"
        )
    parts = redis_urls.split(url)
    files = parts.tls_files
    for name, path in files.items():
        if not os.access(path, os.R_OK):
            yield f"REDIS_URL: the file of {name} cannot be read"
    if "ssl_keyfile" in files and "ssl_certfile" not in files:
        yield "REDIS_URL: ssl_keyfile needs ssl_certfile, the certificate of that key"
    if c.redis.redis_password_file and parts.has_password:
        yield "REDIS_PASSWORD_FILE: ARBITER_REDIS_URL holds a password as well, one of the two has to go"


def _listeners(c: Config) -> Iterator[str]:
    if c.server.local_listen == addresses.OFF and not c.server.socket:
        yield "LOCAL_LISTEN: off needs an ARBITER_SOCKET: the app could not report errors"
    app_host, app_port = addresses.port_of(c.app.app_port) if c.app.app_port else ("", 0)
    names: dict[str, str] = {}
    for name in ("local_listen", "public_listen", "agent_listen", "page_listen"):
        address, variable = getattr(c.server, name), f"ARBITER_{name.upper()}"
        port = 0 if address == addresses.OFF else addresses.split(address)[1]
        if port == 0:  # off, or the kernel chooses
            continue
        if app_host in _LOOPBACK and port == app_port:
            yield f"APP_PORT: {port} is a port of the sidecar ({variable}={address}): name that of the app"
        if names.setdefault(address, variable) != variable:
            yield f"{name.upper()}: {address} is the address of {names[address]}, too: each needs its own"


def _token(c: Config) -> Iterator[str]:
    path = c.server.token_file
    if not path and c.server.page_listen != addresses.OFF:
        yield (
            f"PAGE_LISTEN: {c.server.page_listen} needs an ARBITER_TOKEN_FILE: everyone could see the page, and hold "
            "the service"
        )
    if path:
        from sidecar.net.credential_files import SHORTEST, Token  # noqa: PLC0415 - most have none

        if not Token(path).is_there:
            yield f"TOKEN_FILE: {path} cannot be read, or holds no token of {SHORTEST} bytes or more"


def _certificate(c: Config) -> Iterator[str]:
    cert, key, authorities = c.tls.tls_cert, c.tls.tls_key, c.tls.tls_client_ca
    if not (cert or key or authorities):
        return
    from sidecar.net import tls  # noqa: PLC0415 - as above
    from sidecar.net.credential_files import KeyPair  # noqa: PLC0415 - as above

    if bool(cert) is not bool(key):
        given, missing = ("CERT", "KEY") if cert else ("KEY", "CERT")
        yield f"TLS_{given}: needs ARBITER_TLS_{missing}, the other half of the pair"
    elif cert:
        if problem := tls.problem(KeyPair(cert, key)):
            yield f"TLS_CERT: {problem}"
        yield from _tls_listeners(c)
    elif authorities:
        yield "TLS_CLIENT_CA: needs ARBITER_TLS_CERT: without TLS no client can show a certificate"
        return
    if authorities and (problem := tls.client_ca_problem(authorities)):
        yield f"TLS_CLIENT_CA: {problem}"


def _tls_listeners(c: Config) -> Iterator[str]:
    for name in c.tls.tls_listeners.split(","):
        if getattr(c.server, f"{name}_listen") == addresses.OFF:
            yield f"TLS_LISTENERS: {name} needs ARBITER_{name.upper()}_LISTEN, which is off"


def _programs(c: Config) -> Iterator[str]:
    hook, action, command = c.culling.cull_hook, c.action.action, c.action.action_command
    if hook and not (os.access(hook, os.X_OK) and Path(hook).is_file()):  # is_file raises if it may not look
        yield f"CULL_HOOK: {hook} is no file that can be run"
    if action == "nomad-restart" and not c.action.nomad_task.strip():
        yield "NOMAD_TASK: missing, though ARBITER_ACTION=nomad-restart"
    if action == "exit" and c.process.run_lock:
        yield "ACTION: exit does not go with ARBITER_RUN_LOCK: another sidecar would take over"
    if action == "command" and (problem := _command_problem(command)):
        yield f"ACTION_COMMAND: {problem}"
    if c.notify.webhook_template:
        try:
            syntax.read_template(c.notify.webhook_template)
        except ValueError as error:
            yield f"WEBHOOK_TEMPLATE {error}"


def _command_problem(command: str) -> str:
    from shutil import which  # noqa: PLC0415 - it imports bz2 and lzma, and few have a command

    try:
        words = shlex.split(command)
    except ValueError as error:
        return f"cannot be read: {error}"
    if not words:
        return "missing, though ARBITER_ACTION=command"
    return "" if which(words[0]) else f"{words[0]} is no program that can be run"
