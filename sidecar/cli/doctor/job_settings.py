"""The settings that a job gives to its arbiter, with samples in place of what Nomad fills in.

A value that the file does not tell counts as not set: no finding is better than a wrong one.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Final, NamedTuple

from sidecar.cli.doctor.job import Block
from sidecar.config import addresses
from sidecar.config.load import SettingsError, load
from sidecar.config.settings import Config

SOME_PORT: Final = 20_000
"""Nomad chooses dynamic ports from here on; a port that the job does not know is this one or one of the next."""

_REDIS: Final = "ARBITER_REDIS_URL"
_NOMAD: Final = {
    "NOMAD_JOB_NAME": "job",
    "NOMAD_GROUP_NAME": "group",
    "NOMAD_NAMESPACE": "default",
    "NOMAD_ALLOC_ID": "00000000-0000-0000-0000-000000000000",
    "NOMAD_ALLOC_DIR": "/alloc",
    "NOMAD_TASK_DIR": "/local",
    "NOMAD_SECRETS_DIR": "/secrets",
    "attr.unique.network.ip-address": "127.0.0.1",
}
_ELSEWHERE: Final = {
    **dict.fromkeys(("CONFIG", "WEBHOOK_TEMPLATE", "TOKEN_FILE", "PAGE_LISTEN"), ""),
    **dict.fromkeys(("TLS_CERT", "TLS_KEY", "TLS_CLIENT_CA", "TLS_LISTENERS"), ""),
    **dict.fromkeys(("ACTION_COMMAND", "CULL_HOOK"), sys.executable),
}
"""Settings whose files, or the files they need, are not on this machine -> a value that is right everywhere."""

_ASSIGNMENT: Final = re.compile(r"^[ \t]*(?:export[ \t]+)?([A-Za-z_]\w*)=(.*?)[ \t]*$", re.MULTILINE)
_INTERPOLATION: Final = re.compile(r"\$\{(?:env\[\")?([^{}\"]*)(?:\"\])?\}")
_OF_PORT: Final = re.compile(r"NOMAD_(?:HOST_)?(PORT|ADDR|IP)_(\w+)")


class JobSettings(NamedTuple):
    """``settings``: those that the arbiter of a group will have, the defaults if there are ``problems``."""

    settings: Config
    problems: list[str]
    is_public_secured: bool
    """Whether the health answers speak TLS."""
    has_file: bool
    """Whether more settings may be in a TOML file, which is in the allocation."""


def ports_of(group: Block) -> dict[str, int]:
    """Label -> port as the tasks see it."""
    network = next(iter(group.blocks("Networks")), Block({}))
    ports = [*network.blocks("ReservedPorts"), *network.blocks("DynamicPorts")]
    return {
        port.text("Label"): max(port.number("To"), 0) or port.number("Value") or SOME_PORT + number
        for number, port in enumerate(ports)
    }


def read(arbiter: Block, ports: Mapping[str, int]) -> JobSettings:
    """Return the settings of this arbiter."""
    raw = {name: arbiter.block("Env").text(name) for name in arbiter.block("Env")}
    templates = [each.text("EmbeddedTmpl") for each in arbiter.blocks("Templates") if each.flag("Envvars")]
    for name, value in (found for data in templates for found in _ASSIGNMENT.findall(data)):
        raw[name] = value.strip("\"'")
    environ = _NOMAD | {name: _filled_in(value, ports) for name, value in raw.items()}
    environ |= {f"ARBITER_{name}": sample for name, sample in _ELSEWHERE.items() if raw.get(f"ARBITER_{name}")}
    has_file = "ARBITER_CONFIG" in raw
    if _REDIS in raw or templates or has_file:  # a template may get the name of a variable from elsewhere, too
        environ[_REDIS] = environ.get(_REDIS) or "redis://redis.internal"
    secured = addresses.listed(raw.get("ARBITER_TLS_LISTENERS", "")) if raw.get("ARBITER_TLS_CERT") else ()
    try:
        return JobSettings(load({}, environ), [], "public" in secured, has_file)
    except SettingsError as error:
        return JobSettings(load({}, _NOMAD), error.problems, is_public_secured=False, has_file=has_file)


def _filled_in(value: str, ports: Mapping[str, int]) -> str:
    """The value with samples in it, empty if Nomad or a template fills in what the file does not tell."""

    def sample(found: re.Match[str]) -> str:
        if not (port := _OF_PORT.fullmatch(found[1])):
            return _NOMAD.get(found[1], found[0])
        if port[2] not in ports and port[1] != "IP":
            return found[0]
        number = ports.get(port[2], 0)
        return {"PORT": f"{number}", "ADDR": f"127.0.0.1:{number}", "IP": "127.0.0.1"}[port[1]]

    filled = _INTERPOLATION.sub(sample, value)
    return "" if "${" in filled or "{{" in filled else filled
