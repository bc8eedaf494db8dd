"""Finds settings that are each allowed and contradict one another, and warns of their files. It changes nothing.

A file is a warning, not an error. It may be mounted later. A mounted secret often has mode 0644, which is the default
of Kubernetes, and the container has no other users who could read it. There ``defaultMode`` of the volume sets the
mode, not ``chmod``. The group may read a file that belongs to another user, such as root: a sidecar without root's
rights needs that.
"""

from __future__ import annotations

import os
import shlex
import stat
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
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_FIXED_LIMIT_S = 1800


def contradictions(config: Config) -> list[str]:
    """Return a line for every contradiction, beginning with the variable's name. ``config`` has the service's mode."""
    rules = (
        _mode,
        _watching,
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
        _operation,
        _access,
    )
    return [problem for rule in rules for problem in rule(config)]


def _mode(c: Config) -> Iterator[str]:
    if c.identity.mode == ENFORCE and not (c.redis.redis_url or c.identity.alone):
        yield (
            "ARBITER_MODE: enforce needs ARBITER_REDIS_URL, whose budget keeps a fleet from culling itself; a "
            "container without a fleet enforces with ARBITER_ALONE=true"
        )


def _watching(c: Config) -> Iterator[str]:
    window_s, interval_s, heartbeat_s = c.judging.error_window, c.judging.check_interval, c.judging.heartbeat_timeout
    if interval_s > window_s:
        yield (
            f"ARBITER_CHECK_INTERVAL: {write(interval_s)} is longer than ARBITER_ERROR_WINDOW={write(window_s)}: "
            "errors would be forgotten unseen"
        )
    if c.culling.settle * (1 + CLAIM_JITTER) >= window_s:
        yield (
            f"ARBITER_SETTLE: {write(c.culling.settle)}, and up to a quarter of it more, is not shorter than "
            f"ARBITER_ERROR_WINDOW={write(window_s)}: the errors would be forgotten before the claim"
        )
    if 0 < heartbeat_s < interval_s:
        yield (
            f"ARBITER_HEARTBEAT_TIMEOUT: {write(heartbeat_s)} is shorter than "
            f"ARBITER_CHECK_INTERVAL={write(interval_s)}: a silence would be over before the next check"
        )


def _lifetime(c: Config) -> Iterator[str]:
    lifetime_s, longest_s = c.retirement.lifetime, c.retirement.lifetime_max
    if not lifetime_s:
        if longest_s:
            yield "ARBITER_LIFETIME_MAX: needs ARBITER_LIFETIME: no app would be retired"
        return
    lifetime = write(lifetime_s)
    if not c.redis.redis_url:
        yield (
            f"ARBITER_LIFETIME: {lifetime} needs ARBITER_REDIS_URL: without a shared store nothing would keep the "
            "whole fleet from retiring at once"
        )
    if 0 < longest_s < lifetime_s:
        yield f"ARBITER_LIFETIME_MAX: {write(longest_s)} is shorter than ARBITER_LIFETIME={lifetime}"
    if lifetime_s * (1 - LIFETIME_JITTER) <= c.judging.grace + c.culling.drain:
        yield (
            f"ARBITER_LIFETIME: {lifetime}, and up to a tenth of it less, is not longer than "
            f"ARBITER_GRACE={write(c.judging.grace)}, ARBITER_DRAIN={write(c.culling.drain)} together: "
            "it would be retired as soon as it may be judged"
        )


def _scrape(c: Config) -> Iterator[str]:
    page = c.app
    is_wanted = bool(page.scrape_errors or page.scrape_requests or page.scrape_in_flight)
    if not page.scrape_url:
        if is_wanted:
            yield "ARBITER_SCRAPE_URL: missing, though there are selectors of what to count on the page"
        if c.judging.scrape_down_after:
            yield "ARBITER_SCRAPE_DOWN_AFTER: needs ARBITER_SCRAPE_URL"
    elif not is_wanted and not c.judging.scrape_down_after:
        yield "ARBITER_SCRAPE_ERRORS: missing: nothing on the page would count, nor ARBITER_SCRAPE_DOWN_AFTER"


def _budget(c: Config) -> Iterator[str]:
    window = write(c.budget.budget_window)
    if c.culling.settle + c.culling.drain >= c.budget.budget_window:
        yield (
            f"ARBITER_BUDGET_WINDOW: {window} is not longer than ARBITER_SETTLE={write(c.culling.settle)} and "
            f"ARBITER_DRAIN={write(c.culling.drain)} together: a token would be back before the container left"
        )
    if c.budget.budget.endswith("%") and not c.redis.redis_url:
        yield (
            f"ARBITER_BUDGET: {c.budget.budget} of the fleet needs ARBITER_REDIS_URL: a budget in memory knows no fleet"
        )
    if c.budget.budget_strategy == "fixed" and not _fits_the_hour(c.budget.budget_window):
        yield (
            f"ARBITER_BUDGET_WINDOW: {window} must be whole seconds that divide an hour, and at most 30m, for "
            "ARBITER_BUDGET_STRATEGY=fixed: its keys are numbered within the hour and used again in the next"
        )


def _fits_the_hour(window_s: float) -> bool:
    return window_s <= _FIXED_LIMIT_S and window_s % 1 == 0 and _HOUR_S % window_s == 0


def _fleet(c: Config) -> Iterator[str]:
    rules = c.budget
    if rules.min_healthy == "100%":
        yield "ARBITER_MIN_HEALTHY: at 100% no container could ever be culled"
    if rules.refund == "on" and rules.budget_strategy != "log":
        yield f"ARBITER_REFUND: on needs ARBITER_BUDGET_STRATEGY=log, not {rules.budget_strategy}"


def _redis(c: Config) -> Iterator[str]:
    url, timeout_s = c.redis.redis_url, c.redis.redis_timeout
    if url and timeout_s >= c.judging.check_interval:
        yield (
            f"ARBITER_REDIS_TIMEOUT: {write(timeout_s)} is not shorter than "
            f"ARBITER_CHECK_INTERVAL={write(c.judging.check_interval)}: a claim would still wait when the next check "
            "is due"
        )
    if c.budget.budget_strategy == "fixed" and redis_urls.is_cluster(url):
        yield (
            "ARBITER_BUDGET_STRATEGY: fixed cannot be used on a Redis Cluster: "
            "the article's key and those of the service lie in different slots"
        )


def _redis_files(c: Config) -> Iterator[str]:
    url, password_file = c.redis.redis_url, c.redis.redis_password_file
    if not url:
        if password_file:
            yield "ARBITER_REDIS_PASSWORD_FILE: needs ARBITER_REDIS_URL"
        return
    files = redis_urls.tls_files(url)
    for name, path in files.items():
        if not os.access(path, os.R_OK):
            yield f"ARBITER_REDIS_URL: the file of {name} cannot be read"
    if "ssl_keyfile" in files and "ssl_certfile" not in files:
        yield "ARBITER_REDIS_URL: ssl_keyfile needs ssl_certfile, the certificate of that key"
    if password_file and redis_urls.has_password(url):
        yield "ARBITER_REDIS_PASSWORD_FILE: ARBITER_REDIS_URL holds a password as well, one of the two has to go"


def _listeners(c: Config) -> Iterator[str]:
    server = c.server
    if server.local_listen == addresses.OFF and not server.socket:
        yield "ARBITER_LOCAL_LISTEN: off needs an ARBITER_SOCKET: the app could not report errors"


def _addresses(c: Config) -> tuple[tuple[str, str], ...]:
    listeners = ("local_listen", "public_listen", "agent_listen", "page_listen")
    return tuple((f"ARBITER_{name.upper()}", getattr(c.server, name)) for name in listeners)


def _app_port(c: Config) -> Iterator[str]:
    host, port = addresses.port_of(c.app.app_port) if c.app.app_port else ("", 0)
    for name, address in _addresses(c) if host in (None, *_LOOPBACK) else ():
        if address != addresses.OFF and addresses.split(address)[1] == port:
            yield f"ARBITER_APP_PORT: {port} is a port of the sidecar ({name}={address}): name that of the app"


def _evidence(c: Config) -> Iterator[str]:
    hook = c.culling.cull_hook
    if hook and not (os.access(hook, os.X_OK) and Path(hook).is_file()):  # is_file raises if it may not look
        yield f"ARBITER_CULL_HOOK: {hook} is no file that can be run"


def _action(c: Config) -> Iterator[str]:
    action, command = c.action.action, c.action.action_command
    if action == "nomad-restart" and not c.action.nomad_task.strip():
        yield "ARBITER_NOMAD_TASK: missing, though ARBITER_ACTION=nomad-restart"
    if action == "exit" and c.process.run_lock:
        yield "ARBITER_ACTION: exit does not go with ARBITER_RUN_LOCK: another sidecar would take over"
    if action == "command" and not command.strip():
        yield "ARBITER_ACTION_COMMAND: missing, though ARBITER_ACTION=command"
    elif action == "command":
        try:
            program = shlex.split(command)[0]
        except ValueError as error:
            yield f"ARBITER_ACTION_COMMAND: cannot be read: {error}"
        else:
            from shutil import which  # noqa: PLC0415 - the daemon warns of files alone

            if which(program) is None:
                yield f"ARBITER_ACTION_COMMAND: {program} is no program that can be run"


def _operation(c: Config) -> Iterator[str]:
    if c.process.standby and not c.process.run_lock:
        yield "ARBITER_STANDBY: needs ARBITER_RUN_LOCK, the directory that the sidecars share"
    if c.notify.webhook_url and c.notify.webhook_url_file:
        yield "ARBITER_WEBHOOK_URL_FILE: ARBITER_WEBHOOK_URL names a webhook as well, one of the two has to go"
    if c.notify.webhook_template:
        try:
            syntax.read_template(c.notify.webhook_template)
        except ValueError as error:
            yield f"ARBITER_WEBHOOK_TEMPLATE {error}"


WITH_TLS: Final = ("page", "public")
"""The listeners that can speak TLS. HAProxy's agent-check cannot, and the local one is on loopback."""


def _access(c: Config) -> Iterator[str]:
    """Yield a line for each contradiction of token, certificate and percentage."""
    yield from _token(c)
    yield from _certificate(c)
    if c.identity.enforce_percent < ALL and c.identity.mode != ENFORCE:
        percent = c.identity.enforce_percent
        yield f"ARBITER_ENFORCE_PERCENT: {percent} needs ARBITER_MODE=enforce: in shadow mode none is culled"


def _token(c: Config) -> Iterator[str]:
    if not c.server.token_file:
        if c.server.page_listen != addresses.OFF:
            yield (
                f"ARBITER_PAGE_LISTEN: {c.server.page_listen} needs an ARBITER_TOKEN_FILE: "
                "everyone could see the page, and hold the service"
            )
        return
    from sidecar.net.credential_files import SHORTEST, Token  # noqa: PLC0415 - most have none

    if not Token(c.server.token_file).is_there:
        yield f"ARBITER_TOKEN_FILE: {c.server.token_file} cannot be read, or holds no token of {SHORTEST} bytes or more"


def _certificate(c: Config) -> Iterator[str]:
    if c.tls.tls_cert and c.tls.tls_key:
        from sidecar.net.credential_files import KeyPair  # noqa: PLC0415 - as above
        from sidecar.net.tls import problem  # noqa: PLC0415 - as above

        if wrong := problem(KeyPair(c.tls.tls_cert, c.tls.tls_key)):
            yield f"ARBITER_TLS_CERT: {wrong}"
        yield from _tls_listeners(c)
    elif c.tls.tls_cert or c.tls.tls_key:
        given, missing = ("CERT", "KEY") if c.tls.tls_cert else ("KEY", "CERT")
        yield f"ARBITER_TLS_{given}: needs ARBITER_TLS_{missing}, the other half of the pair"
    if c.tls.tls_client_ca:
        yield from _client_ca(c)


def _client_ca(c: Config) -> Iterator[str]:
    if not (c.tls.tls_cert or c.tls.tls_key):
        yield "ARBITER_TLS_CLIENT_CA: needs ARBITER_TLS_CERT: without TLS no client can show a certificate"
        return
    from sidecar.net.tls import client_ca_problem  # noqa: PLC0415 - as above

    if wrong := client_ca_problem(c.tls.tls_client_ca):
        yield f"ARBITER_TLS_CLIENT_CA: {wrong}"


def _tls_listeners(c: Config) -> Iterator[str]:
    names = addresses.listed(c.tls.tls_listeners)
    for name in names:
        if name not in WITH_TLS:
            yield f"ARBITER_TLS_LISTENERS: {name[:32]!r} is none of {', '.join(WITH_TLS)}"
        elif getattr(c.server, f"{name}_listen") == addresses.OFF:
            yield f"ARBITER_TLS_LISTENERS: {name} needs ARBITER_{name.upper()}_LISTEN, which is off"
    if not names:
        yield "ARBITER_TLS_LISTENERS: names no listener: ARBITER_TLS_CERT would be of no use"


_OTHERS: Final = stat.S_IROTH | stat.S_IWOTH
_GROUP: Final = stat.S_IRGRP | stat.S_IWGRP
_READ: Final = stat.S_IROTH | stat.S_IRGRP


def warnings(config: Config) -> Iterator[str]:
    """Yield a line for each missing directory or file, and for each open secret. It reads the disk, which may hang."""
    state_dir = config.process.state_dir
    if state_dir and not Path(state_dir).is_dir():
        yield f"ARBITER_STATE_DIR: {state_dir} is no directory: a cull would not survive the sidecar"
    yield from of_secrets(config)


def secrets(config: Config) -> dict[str, str]:
    """Return the files that hold a secret, by setting."""
    url = config.redis.redis_url
    of_redis = redis_urls.tls_files(url) if url else {}
    found = {
        "token_file": config.server.token_file,
        "tls_key": config.tls.tls_key,
        "redis_password_file": config.redis.redis_password_file,
        "redis_url": of_redis.get("ssl_keyfile") or of_redis.get("ssl_certfile", ""),  # which may hold both
        "webhook_url_file": config.notify.webhook_url_file,
    }
    return {name: path for name, path in found.items() if path}


def of_secrets(config: Config) -> Iterator[str]:
    """Yield a line for each file with a secret that is missing, or open to other users."""
    for name, path in secrets(config).items():
        try:
            found = Path(path).stat()
        except OSError as error:
            yield f"ARBITER_{name.upper()}: {path} cannot be read: {error.strerror}"
            continue
        mode = stat.S_IMODE(found.st_mode)
        is_own = found.st_uid == os.geteuid() != 0
        granted = mode & (_OTHERS | _GROUP if is_own else _OTHERS)
        if stat.S_ISREG(found.st_mode) and granted:
            who = "all users" if granted & _OTHERS else f"the users of group {found.st_gid}"
            yield (
                f"ARBITER_{name.upper()}: {who} can {'read' if granted & _READ else 'change'} {path} "
                f"(mode {mode:04o}): give it to the user of the sidecar, and type chmod 600 {shlex.quote(path)}"
            )
