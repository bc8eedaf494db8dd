"""The sources of settings, strongest first, and the unknown names in them: misspelt ones, and those of former versions.

It leaves values as they are; ``load`` validates them. It does without pydantic, which takes 150 ms of CPU: a command
that only asks a sidecar has no use for it.
"""

from __future__ import annotations

import difflib
import os
import re
from collections import ChainMap
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sidecar.config.addresses import path as checked_path
from sidecar.config.settings import PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

# Variables that sidecar.client reads in the app. One environment file may serve the app and the sidecar.
APP_VARIABLES = frozenset({"ARBITER_APP_START"})

# The article's numbers; everything that it does not describe is off.
PRESETS: dict[str, dict[str, str]] = {
    "classdojo": {
        "error_limit": "5",
        "error_window": "60s",
        "error_ratio": "0",
        "check_interval": "10s",
        "budget": "10",
        "budget_window": "10m",
        "budget_strategy": "fixed",
        "spacing": "0s",
        "min_healthy": "0",
        "trial": "off",
        "outlier": "off",
        "refund": "off",
        "after_data_loss": "continue",
        "weight": "off",
        "settle": "0s",
        "drain": "0s",
        "grace": "0s",
    },
}


FORMER: Final = {
    "slack_url_file": "Slack takes the messages of {webhook_url} as they are",
    "pagerduty_key_file": "Alertmanager pages, or {webhook_template} has the JSON of PagerDuty",
    "pagerduty_url": "Alertmanager pages, or {webhook_template} has the JSON of PagerDuty",
    "alertmanager_url": "Prometheus sends the alerts of deploy/prometheus/alerts.yml",
    "run_lifetime": "let systemd (RuntimeMaxSec=) or cron (timeout 24h) end the sidecar; a standby goes on",
    "run_every": "the sidecar no longer needs to know how often it is started",
    "standby_for": "a standby waits for ever",
    "check_on_report": "a report that crosses a limit is always judged at once",
    "check_jitter": "checks come up to a tenth of the interval earlier or later",
    "ratio_min_requests": "the error ratio is judged from 20 requests in the window",
    "budget_key": "the strategy `fixed` counts under errorWatcher, as the article does",
    "never_last": "the last container is kept unless {min_healthy} is 0",
    "refund_max": "with refunds there are at most 3N culls in a window",
    "drain_min": "a drain takes 3s at least, so that the balancer notices it",
    "soft_drain": "a suspect has a lower weight unless {weight} is off",
    "weight_floor": "the lowest weight is 10 %",
    "redis_ca": "write ssl_ca_certs=/ca.pem behind the ? of {redis_url}",
    "redis_cert": "write ssl_certfile=/cert.pem behind the ? of {redis_url}",
    "redis_key": "write ssl_keyfile=/key.pem behind the ? of {redis_url}",
    "ignore_kinds": "write `kind:off` into {kind_limits}",
    "cull_hook_timeout": "a hook has 30s, or half the error window; timeout(1) ends it sooner",
    "down_status": "a health answer that says down has the status 503",
    "action_timeout": "an action has 5m",
    "agent_maxconn": "the agent-check gives the weight alone; set maxconn in HAProxy",
    "scrape_timeout": "a scrape takes 2s at most, or {check_interval} if that is shorter",
    "scrape_interval": "the page is scraped once in each {check_interval}",
    "scrape_max_bytes": "a page has 64 MiB at most",
    "scrape_load": "the load is what the app reports, or else the requests of {scrape_in_flight}",
    "lifetime_jitter": "retirements come up to a tenth of the lifetime earlier or later",
    "retire_timeout": "a retirement takes 10m after {drain} at most",
    "replace_time": "a replacement is expected to take 60s, or the drain if that is longer",
    "events_max": "Redis keeps 10,000 events of the service",
    "exit_code": "the exit code after the action `exit` is 88",
    "public_why": "the public listener always explains in full, to the clients of {public_allow}",
    "messages": "without {webhook_url} there are no messages",
    "page_url": "write the address of the page into the template of {webhook_template}",
    "consecutive_limit": "{error_ratio} judges failed requests; a batch of results has no order",
    "scrape_down_after": "a page that cannot be read says nothing of the app; the alert ArbiterAppScrapeFails tells it",
    "lifetime_max": "an app above {busy_load} is retired at twice its lifetime at the latest",
    "webhook_url_file": "write {webhook_url} into the environment, or into the file of settings",
    "log_level": "every line has its level, by which the collector of logs can choose",
    "log_format": "the log is JSON, and short lines on a terminal",
}
"""Old name -> what became of the setting; the names of others stand in braces."""


def former(name: str, spelled: Callable[[str], str]) -> str:
    """Return the sentence on a setting of a former version, or ""; ``spelled`` writes a name as the user does."""
    became = re.sub(r"\{(\w+)\}", lambda other: spelled(other[1]), FORMER.get(name, ""))
    return became and f"there is no such setting since 0.3: {became}"


@dataclass(frozen=True)
class Sources:
    """What each source gave, by its name and strongest first, and the problems met while reading."""

    layers: dict[str, Mapping[str, Any]]
    problems: list[str]

    def merged(self) -> dict[str, Any]:
        """Return the strongest value of each setting that was given."""
        return dict(ChainMap(*map(dict, self.layers.values())))

    def origin(self, name: str) -> str:
        """Return where the effective value is from: flag, env, file, preset, nomad or default."""
        return next((origin for origin, layer in self.layers.items() if name in layer), "default")


def variable(name: str) -> str:
    """Return the environment variable of a setting, which is also its name in messages."""
    return PREFIX + name.upper()


def read(names: Collection[str], flags: Mapping[str, str], environ: Mapping[str, str]) -> Sources:
    """Read the flags, the environment, the file that they name, the preset that they choose, and Nomad's variables.

    ``names``: all settings. An empty variable gives nothing: job files and units leave a setting out so.
    """
    env = {name: value for name in names if (value := environ.get(variable(name)))}
    problems = _unknown_variables(names, environ)
    path = flags.get("config", env.get("config"))
    file = _file({*names} - {"config"}, path, problems) if path else {}
    preset = str(ChainMap(dict(flags), env, file).get("preset", ""))
    layers = {
        "flag": flags,
        "env": env,
        "file": file,
        "preset": PRESETS.get(preset, {}),
        "nomad": _nomad(environ),
        "default": {"instance": fit(os.uname().nodename)},
    }
    return Sources(layers, problems)


def nearest(name: str, names: Collection[str]) -> str:
    """Return "; did you mean ...?" for the one of ``names`` that resembles ``name`` most, or nothing."""
    by_lower = {each.lower(): each for each in names}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.5)
    return f"; did you mean {by_lower[close[0]]}?" if close else ""


def fit(text: str) -> str:
    """Replace the characters that names may not have, such as the slashes of a dispatched job."""
    return re.sub(r"[^A-Za-z0-9_.:-]", "-", text)


def _unknown_variables(names: Collection[str], environ: Mapping[str, str]) -> list[str]:
    variables = {variable(name) for name in names} | APP_VARIABLES
    # Compare without the common prefix: with it every name would resemble every other.
    bare = {name.removeprefix(PREFIX): name for name in variables}
    problems = []
    for name in sorted(environ):
        if name.upper().startswith(PREFIX) and name not in variables:
            hint = nearest(name[len(PREFIX) :], bare).replace("mean ", f"mean {PREFIX}")
            moved = former(name[len(PREFIX) :].lower(), variable)
            problems.append(f"{name}: {moved or f'unknown setting{hint}'}")
    return problems


def _file(names: Collection[str], path: str, problems: list[str]) -> dict[str, Any]:
    import tomllib  # noqa: PLC0415 - most sidecars have no file

    try:
        given = tomllib.loads(Path(checked_path(path)).read_text("utf-8"))
    except OSError as error:
        problems.append(f"{PREFIX}CONFIG: cannot read {path}: {error.strerror}")
    except UnicodeDecodeError:
        problems.append(f"{PREFIX}CONFIG: {path} is not UTF-8 text")
    except tomllib.TOMLDecodeError as error:
        problems.append(f"{PREFIX}CONFIG: {path} is not TOML: {error}")
    except ValueError as error:
        problems.append(f"{PREFIX}CONFIG: {error}")
    else:
        problems.extend(f"{PREFIX}CONFIG: {path}: {_stray_key(name, names)}" for name in given if name not in names)
        return {name: value for name, value in given.items() if name in names}
    return {}


def _stray_key(name: str, names: Collection[str]) -> str:
    moved = former(name.lower(), str)
    return f"{name}: {moved}" if moved else f"unknown key {name}{nearest(name, names)}"


def _nomad(environ: Mapping[str, str]) -> dict[str, str]:
    job, group = environ.get("NOMAD_JOB_NAME"), environ.get("NOMAD_GROUP_NAME")
    alloc_dir = environ.get("NOMAD_ALLOC_DIR")
    values = {
        "service": fit(f"{job}.{group}") if job and group else "",
        "namespace": fit(environ.get("NOMAD_NAMESPACE", "")),
        "instance": fit(environ.get("NOMAD_ALLOC_ID", "")),
        "state_dir": str(Path(alloc_dir, "tmp")) if alloc_dir else "",
    }
    return {name: value for name, value in values.items() if value}
