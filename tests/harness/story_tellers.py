"""Everybody who tells something of the fleet, each reduced to the words that it has in common with the others."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from harness.command import command
from harness.site import SERVICE

if TYPE_CHECKING:
    from harness.browser import Window
    from harness.sidecar import Sidecar
    from harness.site import Site
    from harness.story import Facts, Teller

NAMES: Final = ("health", "haproxy", "fleet", "why", "ledger", "metrics", "prometheus", "page", "command")
_NUMBERS: Final = ("alive", "suspect", "down", "paused", "helped", "unhelped")
_RECORDED: Final = {
    "alive": "service:arbiter_fleet_alive:max",
    "suspect": "service:arbiter_fleet_suspect:max",
    "down": "service:arbiter_fleet_down:max",
    "culls": "service:arbiter_culls:increase10m",
    "used": "service:arbiter_budget_used:tokens",
}
_TRIAL: Final = r"Culls for (\w+): (?:(\d+) of at most (\d+) .*|paused .*)"
_PAGE: Final = r"""() => ({
  fleet: document.getElementById("fleet-said").innerText,
  bucket: document.getElementById("bucket-said").innerText,
  // Without what keeps foreign words apart from ours.
  holds: (document.querySelector("#holds li > span")?.innerText ?? "").replace(/[\u2066-\u2069]/g, ""),
  used: document.querySelectorAll("#tokens .used").length,
  down: document.querySelectorAll("#members .down").length,
  trials: [...document.querySelectorAll("#trials li")].map((one) => one.innerText.replace(/[\u2066-\u2069]/g, "")),
})"""
"""Everything at one instant, for the page changes as we look."""


def tellers(site: Site, page: Window) -> dict[str, Teller]:
    """Everybody that can be asked again and again; one sidecar that never suffers speaks for its fleet."""
    observer = site.fleet[0]
    return {
        "health": lambda: health(site),
        "haproxy": lambda: haproxy(site),
        "fleet": lambda: of_fleet(observer.request("local", "GET", "/fleet").json()),
        "why": lambda: of_why(observer.request("public", "GET", "/why").json()),
        "ledger": lambda: of_events(events(observer)),
        "metrics": lambda: of_metrics(observer.metrics()),
        "prometheus": lambda: prometheus(site),
        "page": lambda: of_page(page),
        "command": lambda: of_fleet(json.loads(command(observer, "fleet", "--json").out)),
    }


def health(site: Site) -> Facts:
    """What a poller of all the health pages and agent checks knows."""
    weights = [re.search(r"(\d+)%", one.agent_line()) for one in site.fleet]
    return {
        "down": sum(one.health("/health/haproxy")[0] != 200 for one in site.fleet),
        "light": sum(0 < int(weight[1]) < 100 for weight in weights if weight),
    }


def haproxy(site: Site) -> Facts:
    """Servers out of balance, and how often one was marked down."""
    rows = [row for (backend, _), row in site.proxy.show_servers().items() if backend == "app"]
    return {
        "down": sum(not row["status"].startswith("UP") for row in rows),
        "culls": sum(int(row["chkdown"]) for row in rows),
    }


def of_fleet(value: dict[str, Any]) -> Facts:
    """The fleet as GET /fleet and ``health-arbiter fleet --json`` have it; nothing while the bucket does not answer."""
    if value["used"] is None:
        return {}
    holds = [(hold["author"], hold["reason"]) for hold in value["holds"]]
    told = {word: value["fleet"][word] for word in _NUMBERS}
    members = [member["presence"] for member in value["members"]]
    assert members.count("down") == told["down"], "the members are not those that were counted"
    return {**told, **_trials(value["fleet"]), "used": value["used"], "hold": holds[0] if holds else None}


def of_why(value: dict[str, Any]) -> Facts:
    """The fleet as GET /why has it at the public door."""
    if not value["fleet"]:
        return {}
    hold = value["hold"] and (value["hold"]["author"], value["hold"]["reason"])
    return {**{word: value["fleet"][word] for word in _NUMBERS}, **_trials(value["fleet"]), "hold": hold}


def _trials(fleet: dict[str, Any]) -> Facts:
    """Limit and culls without an outcome of the causes whose culls are not paused."""
    told = [trial for trial in fleet["trials"] if not trial["paused_s"]]
    return {"trials": {trial["cause"]: (trial["limit"], trial["out"]) for trial in told}}


def events(one: Sidecar) -> list[dict[str, Any]]:
    """The ledger."""
    found: list[dict[str, Any]] = one.request("local", "GET", "/events?most=500").json()["events"]
    return found


def of_events(told: list[dict[str, Any]]) -> Facts:
    """What the ledger adds up to."""
    whats = [event["what"] for event in told]
    holds = [event for event in told if event["what"] in ("hold", "release")]
    held = holds[-1] if holds and holds[-1]["what"] == "hold" else None
    return {
        "culls": whats.count("culled"),
        "used": whats.count("granted") - whats.count("helped"),
        "helped": whats.count("helped"),
        "unhelped": whats.count("unhelped"),
        "paused": _paused(told),
        "hold": (held["author"], held["reason"]) if held else None,
    }


def _paused(told: list[dict[str, Any]]) -> list[str]:
    """Causes whose culls were paused, and that nobody has forgiven since: none of the pauses is over by itself."""
    causes = list[str]()
    for event in told:
        if event["what"] == "release":
            causes.clear()
        elif event["what"] == "paused":
            causes.append(event["kind"])
    return causes


def of_metrics(page: dict[str, float]) -> Facts:
    """The fleet as each sidecar's own metrics have it."""
    told: Facts = {word: page.get(f"arbiter_fleet_{word}") for word in ("alive", "suspect", "down")}
    limits, out = _by_cause(page, "arbiter_trial_limit"), _by_cause(page, "arbiter_trial_out")
    paused = [cause for cause, left_s in _by_cause(page, "arbiter_cause_paused_seconds").items() if left_s]
    return {
        **told,
        "trials": {cause: (limits[cause], out[cause]) for cause in limits if cause not in paused},
        "paused": paused,
        **{word: _sum(page, f'arbiter_fleet_culls_total{{.*outcome="{word}"') for word in ("helped", "unhelped")},
    }


def prometheus(site: Site) -> Facts:
    """What the recording rules say; what has no series is not known."""
    told = {word: _value(site.metrics.instant(f'{name}{{service="{SERVICE}"}}')) for word, name in _RECORDED.items()}
    paused = site.metrics.instant("service:arbiter_cause_paused:seconds > 0")
    return {**told, "paused": sorted(one["metric"]["cause"] for one in paused)}


def of_page(window: Window) -> Facts:
    """What stands on the status page for people to read; it comes by itself. Nothing while the bucket is silent."""
    said = window.page.evaluate(_PAGE)
    counted = re.match(r"(\d+) alive, (\d+) of them suspect, (\d+) down", said["fleet"])
    if not counted or said["bucket"]:
        return {}
    alive, suspect, down = map(int, counted.groups())
    trials = [
        re.fullmatch(r"Culls for (\w+): (?:(\d+) of at most (\d+) .*|paused .*)", line) for line in said["trials"]
    ]
    assert all(trials), said["trials"]
    held = re.search(r"is held by (.+) until (?:.+ )?[0-9:]+: (.+)", said["holds"])
    assert said["down"] == down, "the grid has others down than were counted"
    return {
        "alive": alive,
        "suspect": suspect,
        "down": down,
        "trials": {one[1]: (int(one[3]), int(one[2])) for one in trials if one and one[2]},
        "paused": [one[1] for one in trials if one and not one[2]],
        "used": said["used"],
        "hold": (held[1], held[2]) if held else None,
    }


def _by_cause(page: dict[str, float], name: str) -> dict[str, float]:
    return {key.split('"')[1]: value for key, value in page.items() if key.startswith(f"{name}{{")}


def _sum(page: dict[str, float], pattern: str) -> float:
    return sum(value for key, value in page.items() if re.match(pattern, key))


def _value(vector: list[dict[str, Any]]) -> float | None:
    return float(vector[0]["value"][1]) if vector else None
