"""The settings that a job gives to its arbiter, with samples in place of what Nomad fills in.

A value that the file does not tell counts as not set: no finding is better than a wrong one.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Final, NamedTuple

from sidecar.cli.doctor.jobspec import Group, Task
from sidecar.config import sources
from sidecar.config.load import SettingsError, load
from sidecar.config.settings import PREFIX, Config

_REDIS: Final = "ARBITER_REDIS_URL"
_REDIS_SAMPLE: Final = "redis://redis.internal"
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
_ASSIGNMENT: Final = re.compile(r"^[ \t]*(?:export[ \t]+)?([A-Za-z_]\w*)=(.*?)[ \t]*$", re.MULTILINE)
_CALL: Final = re.compile(r"\{\{-?\s*(?:with\b.*?|else|end)\s*-?\}\}")
_INTERPOLATION: Final = re.compile(r"\$\{(?:env\[\")?([^{}\"]*)(?:\"\])?\}")
_OF_PORT: Final = re.compile(r"NOMAD_(?:HOST_)?(PORT|ADDR|IP)_(\w+)")
# Files of the allocation, which are not on this machine.
_FILES: Final = re.compile(r"ARBITER_(CONFIG|ACTION_COMMAND|CULL_HOOK|WEBHOOK_TEMPLATE|(\w+_)?(FILE|CERT|KEY|CA)):?\b")
_ABOUT_OTHERS: Final = re.compile(r"needs |missing|has to go|unknown setting|is called|COMMAND: cannot")
_VARIABLE: Final = re.compile(rf"{PREFIX}[A-Z_]+")


class JobEnvironment(NamedTuple):
    """``settings``: as the arbiter will have them, or without those that ``problems`` name, one sentence each.

    A program that is not on this machine, and the missing task of an action, have a sample in their place.
    ``is_whole``: whether the file tells all of them. ``raw``: the variables as they are in the job.
    """

    settings: Config
    problems: list[str]
    is_whole: bool
    raw: Mapping[str, str]


def read(group: Group, arbiter: Task) -> JobEnvironment:
    """Return the settings of the arbiter of this group."""
    raw = dict(arbiter.env)
    for template in arbiter.templates:
        if template.is_env:
            raw |= {name: value.strip("\"'") for name, value in _ASSIGNMENT.findall(template.data)}
    environ = dict(_NOMAD)
    for name, value in raw.items():
        filled = _filled_in(value, group)
        is_told = "${" not in filled and "{{" not in filled and name != sources.variable("config")
        # An empty variable is a setting that is not set, and its name is checked all the same.
        environ[name] = filled if is_told else _REDIS_SAMPLE if name == _REDIS else ""
    # The names, too, may come from a template.
    rest = (_ASSIGNMENT.sub("", _CALL.sub("", template.data)) for template in arbiter.templates if template.is_env)
    is_whole = sources.variable("config") not in raw and not any("{{" in text for text in rest)
    if not is_whole:
        environ.setdefault(_REDIS, _REDIS_SAMPLE)
    others = (task.name for task in group.tasks if task.name != arbiter.name)
    samples = {sources.variable("action_command"): sys.executable, sources.variable("nomad_task"): next(others, "app")}
    settings, problems = _loaded(environ, samples)
    return JobEnvironment(settings, problems, is_whole, raw)


def _filled_in(value: str, group: Group) -> str:
    def sample(found: re.Match[str]) -> str:
        if not (port := _OF_PORT.fullmatch(found[1])):
            return _NOMAD.get(found[1], found[0])
        if port[2] not in group.ports and port[1] != "IP":
            return found[0]
        number = group.ports.get(port[2], 0)
        return {"PORT": f"{number}", "ADDR": f"127.0.0.1:{number}", "IP": "127.0.0.1"}[port[1]]

    return _INTERPOLATION.sub(sample, value)


def _loaded(environ: Mapping[str, str], samples: Mapping[str, str]) -> tuple[Config, list[str]]:
    try:
        return load({}, environ), []
    except SettingsError as error:
        problems = error.problems
    return _without(environ, problems, samples), [problem for problem in problems if _is_of_the_job(problem)]


def _without(environ: Mapping[str, str], problems: list[str], samples: Mapping[str, str]) -> Config:
    """The settings without those that the problems name, and without those that contradict one another then."""
    rest = dict(environ)
    for problem in problems:
        name, *others = _VARIABLE.findall(problem) or [""]
        if name in samples and rest.get(name) != samples[name]:
            rest[name] = samples[name]
        elif name in environ:
            rest.pop(name, None)
        else:  # what is missing cannot be left out, but what needs it
            family = name[: name.find("_", len(PREFIX)) + 1]
            of_family = [each for each in environ if family and each.startswith(family)]
            for each in [each for each in others if each in environ] or of_family:
                rest.pop(each, None)
    if rest == environ:
        return load({}, _NOMAD)
    try:
        return load({}, rest)
    except SettingsError as error:
        return _without(rest, error.problems, samples)


def _is_of_the_job(problem: str) -> bool:
    return not _FILES.match(problem) or bool(_ABOUT_OTHERS.search(problem))
