"""The settings that no longer exist, and what became of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_CALLED = "this setting is called {} since 0.2"
_REPLACED = "replaced by {}, which limits culls for one cause until their outcome is known"
_MERGED = "merged into {} in 0.2"
_GONE = "there is no such setting since 0.3: "
_PAGER = _GONE + "Alertmanager pages by deploy/prometheus/alerts.yml, or {} has the JSON of PagerDuty"
_THREE_N = _GONE + "with refunds there are at most 3N culls in a window"
_DRAIN = _GONE + "a drain takes 3s at least, so that the balancer notices it"
_AT_ONCE = _GONE + "a report that crosses a limit is always judged at once"
_OF_TLS = _GONE + "write {} behind the ? of {{}}"
FORMER: Final = {
    "brake": ("trial", _REPLACED),
    "useless_after": ("trial", _REPLACED),
    "earn": ("refund", _CALLED),
    "earn_max": ("", _THREE_N),
    "lost_memory": ("after_data_loss", _CALLED + "; `empty` is `wait` now, and `full` is `continue`"),
    "beat": ("beat_interval", _CALLED),
    "busy_above": ("busy_load", _CALLED),
    "drain_least": ("", _DRAIN),
    "check_on_ping": ("", _AT_ONCE),
    "confirm": ("settle", _MERGED + ": a suspect that is fine at any check while it settles is not culled"),
    "min_age": ("grace", _MERGED + ": errors of an app within its grace do not count"),
    "tls_doors": ("tls_listeners", _CALLED + "; the agent-check has no TLS any more"),
    "slack_url_file": ("webhook_url_file", _GONE + "Slack takes the messages of {} as they are"),
    "pagerduty_key_file": ("webhook_template", _PAGER),
    "pagerduty_url": ("webhook_template", _PAGER),
    "alertmanager_url": ("", _GONE + "Prometheus sends the alerts of deploy/prometheus/alerts.yml"),
    "run_lifetime": (
        "",
        _GONE + "let systemd (RuntimeMaxSec=) or cron (timeout 24h) end the sidecar; a standby goes on",
    ),
    "run_every": ("", _GONE + "the sidecar no longer needs to know how often it is started"),
    "standby_for": ("", _GONE + "a standby waits for ever"),
    "check_on_report": ("", _AT_ONCE),
    "check_jitter": ("", _GONE + "checks come up to a tenth of the interval earlier or later"),
    "ratio_min_requests": ("", _GONE + "the error ratio is judged from 20 requests in the window"),
    "budget_key": ("", _GONE + "the strategy `fixed` counts under errorWatcher, as the article does"),
    "never_last": ("min_healthy", _GONE + "the last container is kept unless {} is 0"),
    "refund_max": ("", _THREE_N),
    "drain_min": ("", _DRAIN),
    "soft_drain": ("weight", _GONE + "a suspect has a lower weight unless {} is off"),
    "weight_floor": ("", _GONE + "the lowest weight is 10 %"),
    "redis_ca": ("redis_url", _OF_TLS.format("ssl_ca_certs=/ca.pem")),
    "redis_cert": ("redis_url", _OF_TLS.format("ssl_certfile=/cert.pem")),
    "redis_key": ("redis_url", _OF_TLS.format("ssl_keyfile=/key.pem")),
    "ignore_kinds": ("kind_limits", _GONE + "write `kind:off` into {}"),
    "cull_hook_timeout": ("", _GONE + "a hook has 30s, or half the error window; timeout(1) ends it sooner"),
    "down_status": ("", _GONE + "a health answer that says down has the status 503"),
    "action_timeout": ("", _GONE + "an action has 5m"),
    "agent_maxconn": ("", _GONE + "the agent-check gives the weight alone; set maxconn in HAProxy"),
    "scrape_timeout": ("check_interval", _GONE + "a scrape takes 2s at most, or {} if that is shorter"),
    "scrape_interval": ("check_interval", _GONE + "the page is scraped once in each {}"),
    "scrape_max_bytes": ("", _GONE + "a page has 64 MiB at most"),
    "scrape_load": ("scrape_in_flight", _GONE + "the load is what the app reports, or else the requests of {}"),
    "lifetime_jitter": ("", _GONE + "retirements come up to a tenth of the lifetime earlier or later"),
    "retire_timeout": ("drain", _GONE + "a retirement takes 10m after {} at most"),
    "replace_time": ("", _GONE + "a replacement is expected to take 60s, or the drain if that is longer"),
    "events_max": ("", _GONE + "Redis keeps 10,000 events of the service"),
    "exit_code": ("", _GONE + "the exit code after the action `exit` is 88"),
    "public_why": ("public_allow", _GONE + "the public listener always explains in full, to the clients of {}"),
    "messages": ("webhook_url", _GONE + "without {} there are no messages"),
    "page_url": ("webhook_template", _GONE + "write the address of the page into the template of {}"),
    "log_format": ("", _GONE + "the log is JSON, and short lines on a terminal"),
}
"""Old name -> the name of the setting that took its place, "" if there is none, and the sentence for the user."""


def former(name: str, spelled: Callable[[str], str]) -> str:
    """Return the sentence on a setting of a former version, or ""; ``spelled`` writes its new name like the old."""
    new_name, sentence = FORMER.get(name, ("", ""))
    return sentence.format(spelled(new_name))
