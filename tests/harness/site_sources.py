"""The sources that show facts of the fleet, each reduced to the facts that it shares with the others."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from harness.sidecar import command
from harness.site import SERVICE

if TYPE_CHECKING:
    from harness.browser import Window
    from harness.sidecar import Sidecar
    from harness.site import Site
    from harness.site_scenario import Facts, Source

NAMES: Final = ("health", "haproxy", "fleet", "why", "ledger", "metrics", "prometheus", "page", "command")
_NUMBERS: Final = ("alive", "suspect", "down", "paused", "helped", "unhelped")
_RECORDED: Final = {
    "alive": "service:arbiter_fleet_alive:max",
    "suspect": "service:arbiter_fleet_suspect:max",
    "down": "service:arbiter_fleet_down:max",
    "culls": "service:arbiter_culls:increase10m",
    "used": "service:arbiter_budget_used:tokens",
}
_PAGE: Final = r"""() => ({
  tiles: Object.fromEntries([...document.querySelectorAll("#tiles li")].map(
    (one) => [one.querySelector("span").innerText, one.querySelector("b").innerText])),
  store: document.getElementById("known-text").innerText,
  // Without the characters that isolate foreign text.
  holds: (document.querySelector("#holds li > span")?.innerText ?? "").replace(/[\u2066-\u2069]/g, ""),
  used: document.querySelectorAll("#tokens .used").length,
  down: document.querySelectorAll("#containers .down, #containers .draining").length,
  trials: [...document.querySelectorAll("#trials li:not(.quiet)")].map(
    (one) => one.innerText.replace(/[\u2066-\u2069]/g, "")),
})"""
"""Everything at one instant, because the page changes."""

_OF_PAGE: Final = r"(\w+): (?:(\d+) of at most (\d+) .*|paused .*)"


def sources(site: Site, page: Window) -> dict[str, Source]:
    """The sources by name; those of a single sidecar use one that is never sick."""
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
    """The health answers and agent checks of all sidecars."""
    weights = [re.search(r"(\d+)%", one.agent_line()) for one in site.fleet]
    return {
        "down": sum(one.health("/health/haproxy")[0] != 200 for one in site.fleet),
        "light": sum(0 < int(weight[1]) < 100 for weight in weights if weight),
    }


def haproxy(site: Site) -> Facts:
    """The servers that HAProxy does not use, and how often it marked one as down."""
    rows = [row for (backend, _), row in site.proxy.show_servers().items() if backend == "app"]
    return {
        "down": sum(not row["status"].startswith("UP") for row in rows),
        "culls": sum(int(row["chkdown"]) for row in rows),
    }


def of_fleet(value: dict[str, Any]) -> Facts:
    """The fleet of GET /fleet and ``health-arbiter fleet --json``; empty while the store does not answer."""
    if value["used"] is None:
        return {}
    holds = [(hold["author"], hold["reason"]) for hold in value["holds"]]
    found = {word: value["fleet"][word] for word in _NUMBERS}
    members = [member["presence"] for member in value["members"]]
    assert members.count("down") == found["down"], "the members are not those that were counted"
    return {**found, **_trials(value["fleet"]), "used": value["used"], "hold": holds[0] if holds else None}


def of_why(value: dict[str, Any]) -> Facts:
    """The fleet of GET /why at the public listener."""
    if not value["fleet"]:
        return {}
    hold = value["hold"] and (value["hold"]["author"], value["hold"]["reason"])
    return {**{word: value["fleet"][word] for word in _NUMBERS}, **_trials(value["fleet"]), "hold": hold}


def _trials(fleet: dict[str, Any]) -> Facts:
    """Limit and culls without an outcome of the causes whose culls are not paused."""
    found = [trial for trial in fleet["trials"] if not trial["paused_s"]]
    return {"trials": {trial["cause"]: (trial["limit"], trial["out"]) for trial in found}}


def events(one: Sidecar) -> list[dict[str, Any]]:
    """The entries of the ledger."""
    found: list[dict[str, Any]] = one.request("local", "GET", "/events?most=500").json()["events"]
    return found


def of_events(found: list[dict[str, Any]]) -> Facts:
    """The sums of the ledger."""
    whats = [event["what"] for event in found]
    holds = [event for event in found if event["what"] in ("hold", "release")]
    held = holds[-1] if holds and holds[-1]["what"] == "hold" else None
    return {
        "culls": whats.count("culled"),
        "used": whats.count("granted") - whats.count("helped"),
        "helped": whats.count("helped"),
        "unhelped": whats.count("unhelped"),
        "paused": _paused(found),
        "hold": (held["author"], held["reason"]) if held else None,
    }


def _paused(found: list[dict[str, Any]]) -> list[str]:
    """Causes whose culls were paused and not released since; no pause ends by itself here."""
    causes = list[str]()
    for event in found:
        if event["what"] == "release":
            causes.clear()
        elif event["what"] == "paused":
            causes.append(event["kind"])
    return causes


def of_metrics(page: dict[str, float]) -> Facts:
    """The fleet of a sidecar's metrics."""
    found: Facts = {word: page.get(f"arbiter_fleet_{word}") for word in ("alive", "suspect", "down")}
    limits, out = _by_cause(page, "arbiter_trial_limit"), _by_cause(page, "arbiter_trial_out")
    paused = [cause for cause, left_s in _by_cause(page, "arbiter_cause_paused_seconds").items() if left_s]
    return {
        **found,
        "trials": {cause: (limits[cause], out[cause]) for cause in limits if cause not in paused},
        "paused": paused,
        **{word: _sum(page, f'arbiter_fleet_culls_total{{.*outcome="{word}"') for word in ("helped", "unhelped")},
    }


def prometheus(site: Site) -> Facts:
    """The values of the recording rules; None without a series."""
    found = {word: _value(site.metrics.instant(f'{name}{{service="{SERVICE}"}}')) for word, name in _RECORDED.items()}
    paused = site.metrics.instant("service:arbiter_cause_paused:seconds > 0")
    return {**found, "paused": sorted(one["metric"]["cause"] for one in paused)}


def of_page(window: Window) -> Facts:
    """The text of the status page; empty while the store does not answer."""
    shown = window.page.evaluate(_PAGE)
    tiles = shown["tiles"]
    if "containers" not in tiles or shown["store"]:
        return {}
    suspect, down = int(tiles["suspect"]), int(tiles["down"]) + int(tiles.get("draining", 0))
    alive = int(tiles["containers"]) - down
    trials = [re.fullmatch(_OF_PAGE, line) for line in shown["trials"]]
    assert all(trials), shown["trials"]
    held = re.search(r"is held by (.+) until (?:.+ )?[0-9:]+ UTC: (.+)", shown["holds"])
    assert shown["down"] == down, "the table has others down than were counted"
    return {
        "alive": alive,
        "suspect": suspect,
        "down": down,
        "trials": {one[1]: (int(one[3]), int(one[2])) for one in trials if one and one[2]},
        "paused": [one[1] for one in trials if one and not one[2]],
        "used": shown["used"],
        "hold": (held[1], held[2]) if held else None,
    }


def _by_cause(page: dict[str, float], name: str) -> dict[str, float]:
    return {key.split('"')[1]: value for key, value in page.items() if key.startswith(f"{name}{{")}


def _sum(page: dict[str, float], pattern: str) -> float:
    return sum(value for key, value in page.items() if re.match(pattern, key))


def _value(vector: list[dict[str, Any]]) -> float | None:
    return float(vector[0]["value"][1]) if vector else None
