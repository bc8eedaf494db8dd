"""``GET /why`` as lines for a person: the most important first, because the end may be cut off."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from math import ceil
from typing import Any, Final

from sidecar.core.explain import reasons
from sidecar.core.measure.weight import FULL
from sidecar.core.types import Hold, State

LINE_LIMIT: Final = 400
"""Characters of a line: a reason that was read from disk may have any length."""

LEFT_OUT: Final = "...\n"
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that control a terminal, begin another line, change the direction of the text, or are no text in UTF-8."""

_DAY_S: Final = 86400


def as_text(value: dict[str, Any], limit: int | None = None) -> str:
    """The value as text; beyond ``limit`` bytes of UTF-8 the last lines are left out."""
    lines = [f"{printable(line)[:LINE_LIMIT]}\n" for section in _SECTIONS for line in section(value)]
    if limit is None:
        return "".join([*lines, *_capture(value)])
    return "".join(_fitting(lines, limit))


def _fitting(lines: list[str], limit: int) -> Iterator[str]:
    sizes = [len(line.encode()) for line in lines]
    left = limit if sum(sizes) <= limit else limit - len(LEFT_OUT)
    for line, size in zip(lines, sizes, strict=True):
        left -= size
        if left < 0:
            yield LEFT_OUT
            return
        yield line


def _state(value: dict[str, Any]) -> Iterator[str]:
    """The first line, and the rules that it does not show."""
    yield f"{value['state']}: {value['sentence']}"
    if value["spared"]:
        yield f"spared: {value['spared']}"
    rules = value["rules"]
    if len(rules) == 1 and rules[0]["sentence"] in value["sentence"]:
        return
    for rule in rules:
        yield f"rule {rule['rule']}: {rule['value']:.4g}, limit {rule['limit']:.4g}: {rule['sentence']}"


def _window(value: dict[str, Any]) -> Iterator[str]:
    window = value["window"]
    kinds = sorted(window["kinds"].items(), key=lambda item: (-item[1], item[0]))
    by_kind = f" ({', '.join(f'{kind} {count}' for kind, count in kinds)})" if kinds else ""
    limit = f", limit {window['limit']}" if window["limit"] else ""
    failed = f"; {window['failed']} of {window['requests']} requests failed" if window["requests"] else ""
    errors = f"{window['errors']} error{'s' * (window['errors'] != 1)}"
    usual = f", {window['usual']:.3g} are usual" if window["usual"] else ""
    yield f"window now: {errors} in {window['seconds']} s{by_kind}{limit}{usual}{failed}"


def _would(value: dict[str, Any]) -> Iterator[str]:
    """What enforcing would have done to this container since the sidecar started, and its weight then."""
    would = value["would"]
    if would is None:
        return
    days, count, tokens = would["for_s"] / _DAY_S, would["culls"], would["tokens"]
    culls = "not have culled it"
    if count:
        times = "once" if count == 1 else f"{count} times"
        rate = f" ({count / days:.2g} a day)" if days >= 1 else ""
        recovered = f"; {would['recovered']} of these times it recovered by itself" if would["recovered"] else ""
        culls = f"have culled it {times}{rate}, with {tokens} token{'s' * (tokens != 1)}{recovered}"
    counts = ", ".join(f"{reason} {number}" for reason, number in would["refusals"].items())
    refused = f"; refusals: {counts}" if counts else ""
    yield f"enforce mode would {culls} in the last {reasons.span(would['for_s'])}{refused}"
    if would["weight"] < FULL:
        yield f"enforce mode would give it {_weight(would)}"


def _claim(value: dict[str, Any]) -> Iterator[str]:
    """The last answer to a claim, and the tokens."""
    if claim := value["claim"]:
        outcome, reason = claim["outcome"], claim["reason"]
        why = f" ({reason})" if reason != outcome else ""
        yield f"claim {outcome}{why}: {claim['sentence'].removeprefix('token granted, ')}"
    if budget := value["budget"]:
        used, at = f"{budget['used']} of {budget['capacity']} in use", _time(budget["at"])
        yield f"tokens: {used}, {budget['left']} left, at {at}"


def _fleet(value: dict[str, Any]) -> Iterator[str]:
    fleet = value["fleet"]
    if fleet is None:
        return
    cause = f", most of {fleet['cause']}" if fleet["cause"] else ""
    away = f"{fleet['draining']} draining, {fleet['down']} down, {fleet['retiring']} retiring"
    errors, ratio = fleet["median_errors"], fleet["median_ratio"]
    failed = "" if ratio is None else f", {100 * ratio:.3g} % of the requests failed"
    median = "" if errors is None else f"; median: {errors} error{'s' * (errors != 1)}{failed}"
    yield f"fleet: {fleet['alive']} alive, {fleet['suspect']} suspect{cause}, {away}{median}"
    yield f"culls: {fleet['helped']} helped, {fleet['unhelped']} did not help, {fleet['unclear']} unclear"
    for trial in fleet["trials"]:
        yield f"culls for {trial['cause']}: {_trial(trial)}"
    if lost := fleet.get("lost_hold"):
        yield reasons.lost_hold(Hold(lost["author"], lost["reason"], lost["until"], lost["instance"]))
    if fleet["duplicate"]:
        yield "duplicate: another container runs under this instance name"


def _trial(trial: dict[str, Any]) -> str:
    since = f", its episode began at {_time(trial['since'])}" if trial["since"] else ""
    out = f"{trial['out']} of at most {trial['limit']} without an outcome{since}"
    if trial["paused_s"] <= 0:
        return out
    failures = trial["failures"]
    last = "the last one" if failures == 1 else f"the last {failures}"
    return f"paused for {reasons.span(ceil(trial['paused_s']))}, {last} did not help; {out}"


def _hold(value: dict[str, Any]) -> Iterator[str]:
    if hold := value["hold"]:
        scope = f"instance {hold['instance']}" if hold["instance"] else "the service"
        reason = f": {hold['reason']}" if hold["reason"] else ""
        yield f"hold: {scope} until {_time(hold['until'])} by {hold['author']}{reason}"


def _action(value: dict[str, Any]) -> Iterator[str]:
    """How the last action ended, and what is wrong around the sidecar."""
    if action := value.get("action"):
        how = "failed" if action["failed"] else "done"
        sentence, *output = action["sentence"].splitlines() or [""]
        yield f"action: {action['action']} {how} after {action['took_s']:.1f} s: {sentence}"
        yield from (f"| {line}" for line in output)
    for sentence in value.get("warnings", ()):
        yield f"warning: {sentence}"


def _remedies(value: dict[str, Any]) -> Iterator[str]:
    for sentence in value["remedies"] if value["state"] != State.UP or value["rules"] else ():
        yield f"clears when: {sentence}"


def _identity(value: dict[str, Any]) -> Iterator[str]:
    if value["alone"]:
        yield f"alone: {value['alone']}"
    sides = ", ".join(f"{side} {'up' if is_up else 'down'}" for side, is_up in value["health"].items())
    incarnation = f", incarnation {value['incarnation']}" if value["incarnation"] else ""
    name = f"{value['service']}/{value['instance']}{incarnation}, mode {value['mode']}"
    yield f"{name}; since {_time(value['since'])}, now {_time(value['at'])}; {sides}, {_weight(value)}"
    if value["runbook"]:
        yield f"runbook: {value['runbook']}"


def _samples(value: dict[str, Any]) -> Iterator[str]:
    for sample in value.get("samples", ()):
        count = f"{sample['count']} from {_time(sample['first'])} to {_time(sample['last'])}"
        yield f"error {sample['fingerprint']} ({sample['kind']}, {sample['level']}): {count}: {sample['message']}"


def _history(value: dict[str, Any]) -> Iterator[str]:
    for event in value["history"]:
        sentence = f": {event['sentence']}" if event["sentence"] else ""
        yield f"{_time(event['at'])} {event['what']}{sentence}"


_SECTIONS: Final[tuple[Callable[[dict[str, Any]], Iterator[str]], ...]] = (
    *(_state, _window, _would, _claim, _fleet, _hold, _action, _remedies, _identity, _samples, _history),
)
"""The most important first."""


def _weight(value: dict[str, Any]) -> str:
    return f"weight {value['weight']} %{' (soft drain)' if value['soft_drained'] else ''}"


def _capture(value: dict[str, Any]) -> Iterator[str]:
    for line in (value.get("capture") or "").splitlines():
        yield f"| {printable(line)}\n"


def _time(unix: float) -> str:
    """The time of day, in UTC."""
    second = int(unix) % _DAY_S
    return f"{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}Z"


def printable(line: str) -> str:
    """The line with ``?`` for what cannot be printed, controls a terminal, or moves the text around it."""
    return _CONTROL.sub("?", line)
