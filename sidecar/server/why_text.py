"""``GET /why`` as lines for a person: the most important first, because the end may be cut off."""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import ceil
from typing import Any, Final

from sidecar.core.explain import reasons
from sidecar.core.measure.weight import FULL
from sidecar.core.types import Hold, State

LINE_LIMIT: Final = 400
"""Characters of a line: a reason that was read from disk may have any length."""

LEFT_OUT: Final = "...\n"
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Characters that control a terminal, that begin another line, or that change the direction of the text."""

_DAY_S: Final = 86400


def as_text(value: dict[str, Any], limit: int | None = None) -> str:
    """The value as text; beyond ``limit`` bytes of UTF-8 the last lines are left out."""
    lines = [f"{printable(line)[:LINE_LIMIT]}\n" for line in _lines(value)]
    if limit is None:
        return "".join([*lines, *_capture(value)])
    return "".join(_fitting(lines, limit))


def _fitting(lines: list[str], limit: int) -> Iterator[str]:
    sizes = [len(line.encode(errors="replace")) for line in lines]
    left = limit if sum(sizes) <= limit else limit - len(LEFT_OUT)
    for line, size in zip(lines, sizes, strict=True):
        left -= size
        if left < 0:
            yield LEFT_OUT
            return
        yield line.encode(errors="replace").decode()


def _lines(value: dict[str, Any]) -> Iterator[str]:
    yield f"{value['state']}: {value['sentence']}"
    if value["spared"]:
        yield f"spared: {value['spared']}"
    yield from _rules(value)
    yield _window(value["window"])
    yield from _would(value["would"])
    if value["claim"]:
        yield _claim(value["claim"])
    if value["budget"]:
        yield _budget(value["budget"])
    if value["fleet"]:
        yield from _fleet(value["fleet"])
    if value["hold"]:
        yield _hold(value["hold"])
    yield from _action(value)
    for sentence in value["remedies"] if value["state"] != State.UP or value["rules"] else ():
        yield f"clears when: {sentence}"
    yield from _about(value)
    if value["runbook"]:
        yield f"runbook: {value['runbook']}"
    yield from _samples(value.get("samples", ()))
    for event in value["history"]:
        sentence = f": {event['sentence']}" if event["sentence"] else ""
        yield f"{_time(event['at'])} {event['what']}{sentence}"


def _rules(value: dict[str, Any]) -> Iterator[str]:
    """The rules that the first line does not show."""
    rules = value["rules"]
    if len(rules) == 1 and rules[0]["sentence"] in value["sentence"]:
        return
    for rule in rules:
        yield f"rule {rule['rule']}: {rule['value']:.4g}, limit {rule['limit']:.4g}: {rule['sentence']}"


def _claim(claim: dict[str, Any]) -> str:
    outcome, reason = claim["outcome"], claim["reason"]
    why = f" ({reason})" if reason != outcome else ""
    return f"claim {outcome}{why}: {claim['sentence'].removeprefix('token granted, ')}"


def _window(window: dict[str, Any]) -> str:
    kinds = sorted(window["kinds"].items(), key=lambda item: (-item[1], item[0]))
    by_kind = f" ({', '.join(f'{kind} {count}' for kind, count in kinds)})" if kinds else ""
    limit = f", limit {window['limit']}" if window["limit"] else ""
    failed = f"; {window['failed']} of {window['requests']} requests failed" if window["requests"] else ""
    errors = f"{window['errors']} error{'s' * (window['errors'] != 1)}"
    usual = f", {window['usual']:.3g} are usual" if window["usual"] else ""
    return f"window now: {errors} in {window['seconds']} s{by_kind}{limit}{usual}{failed}"


def _would(would: dict[str, Any] | None) -> Iterator[str]:
    """What enforcing would have done to this container since the sidecar started, and its weight then."""
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
        yield f"enforce mode would give it weight {would['weight']} %{' (soft drain)' if would['soft_drained'] else ''}"


def _budget(budget: dict[str, Any]) -> str:
    at = f", at {_time(budget['at'])}" if budget["at"] is not None else ""
    return f"tokens: {budget['used']} of {budget['capacity']} in use, {budget['left']} left{at}"


def _fleet(fleet: dict[str, Any]) -> Iterator[str]:
    cause = f", most of {fleet['cause']}" if fleet["cause"] else ""
    away = f"{fleet['draining']} draining, {fleet['down']} down, {fleet['retiring']} retiring"
    yield f"fleet: {fleet['alive']} alive, {fleet['suspect']} suspect{cause}, {away}{_median(fleet)}"
    yield f"culls: {fleet['helped']} helped, {fleet['unhelped']} did not help, {fleet['unclear']} unclear"
    for trial in fleet["trials"]:
        yield f"culls for {trial['cause']}: {_trial(trial)}"
    if lost := fleet.get("lost_hold"):
        yield reasons.lost_hold(Hold(lost["author"], lost["reason"], lost["until"], lost["instance"]))
    if fleet["duplicate"]:
        yield "duplicate: another container runs under this instance name"


def _median(fleet: dict[str, Any]) -> str:
    errors, ratio = fleet["median_errors"], fleet["median_ratio"]
    failed = "" if ratio is None else f", {100 * ratio:.3g} % of the requests failed"
    return "" if errors is None else f"; median: {errors} error{'s' * (errors != 1)}{failed}"


def _trial(trial: dict[str, Any]) -> str:
    since = f", its episode began at {_time(trial['since'])}" if trial["since"] else ""
    out = f"{trial['out']} of at most {trial['limit']} without an outcome{since}"
    if trial["paused_s"] <= 0:
        return out
    failures = trial["failures"]
    last = "the last one" if failures == 1 else f"the last {failures}"
    return f"paused for {reasons.span(ceil(trial['paused_s']))}, {last} did not help; {out}"


def _hold(hold: dict[str, Any]) -> str:
    scope = f"instance {hold['instance']}" if hold["instance"] else "the service"
    reason = f": {hold['reason']}" if hold["reason"] else ""
    return f"hold: {scope} until {_time(hold['until'])} by {hold['author']}{reason}"


def _action(value: dict[str, Any]) -> Iterator[str]:
    """How the last action ended, and what is wrong around the sidecar."""
    if action := value.get("action"):
        how = "failed" if action["failed"] else "done"
        sentence, *output = action["sentence"].splitlines() or [""]
        yield f"action: {action['action']} {how} after {action['took_s']:.1f} s: {sentence}"
        yield from (f"| {line}" for line in output)
    for sentence in value.get("warnings", ()):
        yield f"warning: {sentence}"


def _about(value: dict[str, Any]) -> Iterator[str]:
    if value["alone"]:
        yield f"alone: {value['alone']}"
    sides = ", ".join(f"{side} {'up' if is_up else 'down'}" for side, is_up in value["health"].items())
    life = f", incarnation {value['incarnation']}" if value["incarnation"] else ""
    name = f"{value['service']}/{value['instance']}{life}, mode {value['mode']}"
    weight = f"weight {value['weight']} %{' (soft drain)' if value['soft_drained'] else ''}"
    yield f"{name}; since {_time(value['since'])}, now {_time(value['at'])}; {sides}, {weight}"


def _samples(samples: Any) -> Iterator[str]:
    for sample in samples:
        seen = f"{sample['count']} from {_time(sample['first'])} to {_time(sample['last'])}"
        yield f"error {sample['fingerprint']} ({sample['kind']}, {sample['level']}): {seen}: {sample['message']}"


def _capture(value: dict[str, Any]) -> Iterator[str]:
    for line in (value.get("capture") or "").splitlines():
        yield f"| {printable(line)}\n"


def _time(unix: float) -> str:
    """The time of day, in UTC."""
    second = int(unix) % _DAY_S
    return f"{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}Z"


def printable(line: str) -> str:
    """The line with ``?`` for what would control a terminal or move the text around it."""
    return _CONTROL.sub("?", line)
