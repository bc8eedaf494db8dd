"""The types of settings: each reads a value as a user writes it, and refuses an invalid one.

A bound is either at the declaration in ``settings`` or here, never in both: pydantic would apply only one of the two.
"""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from sidecar.config import addresses, redis_urls, syntax
from sidecar.config.selectors import parse_selectors
from sidecar.net import address_gate
from sidecar.runlock import durations

_BUDGET_LIMIT = 1000
_WITH_TLS: Final = ("page", "public")
"""The listeners that can speak TLS. HAProxy's agent-check cannot, and the local one is on loopback."""

LONGEST_LABEL: Final = 64
"""Maximum number of characters of a node's name or an app's version, as in a report."""
_DAY_S = 86400  # beyond any use, and within what the event loop's timers can hold
_MONTH_S = 30 * _DAY_S


def _no_bool(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("must be a number")  # noqa: TRY004 - to pydantic a TypeError would be a bug
    return value


def _seconds(value: object) -> float:
    seconds = durations.parse(value)
    if seconds > _DAY_S:
        raise ValueError("must be at most 24h")
    return seconds


def _label(text: str) -> str:
    if len(text) > LONGEST_LABEL or not all("!" <= letter <= "~" for letter in text):
        raise ValueError(f"must be at most {LONGEST_LABEL} printable ASCII characters without blanks")
    return text


def _statsd_prefix(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_.-]{0,64}", text):
        raise ValueError("must be at most 64 of A-Z a-z 0-9 _ . -")
    return text


def _web_url(text: str) -> str:
    if text:
        if "," in text:
            raise ValueError("takes one URL, without a comma")
        addresses.web_parts(text, "must be http:// or https://")
    return text


def _link(text: str) -> str:
    if text and "@" in addresses.web_parts(text, "must be http:// or https://").netloc:
        raise ValueError("must have no user or password: people see this URL")
    return text


def _budget(value: str) -> str:
    amount, is_part = syntax.parse_share(value)
    if not amount or (amount > _BUDGET_LIMIT and not is_part):
        raise ValueError(f"must be at least 1 or above 0%, and at most {_BUDGET_LIMIT}")
    return value


def _scrape_url(url: str) -> str:
    if url:
        addresses.parse_target(url)
    return url.strip()


def _selectors(text: str) -> str:
    parse_selectors(text)
    return text.strip()


def _listeners(text: str) -> str:
    names = addresses.listed(text)
    if not names:
        raise ValueError("names no listener: the certificate would be of no use")
    for name in names:
        if name not in _WITH_TLS:
            raise ValueError(f"has {name[:32]!r}, which is none of {', '.join(_WITH_TLS)}")
    return ",".join(names)


def _networks(text: str) -> str:
    return address_gate.written(address_gate.parse_networks(text))


Switch = Literal["on", "off"]
Count = Annotated[int, BeforeValidator(_no_bool)]
Fraction = Annotated[float, BeforeValidator(_no_bool), Field(allow_inf_nan=False)]
Seconds = Annotated[float, BeforeValidator(_seconds)]
LongSeconds = Annotated[float, BeforeValidator(durations.parse), Field(le=_MONTH_S)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:-]+$")]
Label = Annotated[str, AfterValidator(_label)]
StatsdPrefix = Annotated[str, AfterValidator(_statsd_prefix)]

ShareOfFleet = Annotated[str, BeforeValidator(syntax.checked_share)]
Budget = Annotated[ShareOfFleet, AfterValidator(_budget)]
KindLimits = Annotated[str, AfterValidator(syntax.checked_kind_limits)]

RedisUrls = Annotated[str, AfterValidator(redis_urls.redis_url)]
ScrapeUrl = Annotated[str, AfterValidator(_scrape_url)]
WebUrl = Annotated[str, AfterValidator(_web_url)]
Link = Annotated[str, AfterValidator(_link)]
Selectors = Annotated[str, AfterValidator(_selectors)]
Listen = Annotated[str, AfterValidator(addresses.listen)]
ListenOrOff = Annotated[str, AfterValidator(addresses.listen_or_off)]
PortOrAddress = Annotated[str, AfterValidator(addresses.port_or_address)]
LoopbackOrOff = Annotated[str, AfterValidator(addresses.loopback_or_off)]
TlsListeners = Annotated[str, AfterValidator(_listeners)]
Networks = Annotated[str, AfterValidator(_networks)]
FilePath = Annotated[str, AfterValidator(addresses.path)]
SocketPath = Annotated[str, AfterValidator(addresses.socket_path)]

DURATIONS: Final = (BeforeValidator(_seconds), BeforeValidator(durations.parse))
"""How the types of durations read a value."""
