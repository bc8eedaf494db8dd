"""Rules for job files with an arbiter that Nomad itself does not check. A rule returns a sentence per violation.

Sources: Nomad's documentation of check_restart, restart, reschedule, lifecycle and template, and its source for the
arithmetic (client/serviceregistration/watcher.go, client/allocrunner/taskrunner/restarts/restarts.go).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from deploy.haproxy_config import SHIPPED, notice_s
from deploy.nomad_job import JobFile, blocks, one, seconds
from sidecar import __version__
from sidecar.config import addresses
from sidecar.config.load import SettingsError, load
from sidecar.config.settings import Config

Rule = Callable[[JobFile], list[str]]

NOMAD_PATH: Final = "/health/nomad"

RESTART_JITTER: Final = 1.25
"""Nomad adds up to a quarter to a restart's delay."""

START_UP_S: Final = 2
"""The time of a sidecar from its start to its first answer on a busy node."""

WATCH_S: Final = 1
"""Nomad looks at the results of its checks once a second."""

IMAGE_PULL_S: Final = 60
MAX_KILL_TIMEOUT_S: Final = 30
"""The default maximum of kill_timeout in Nomad's clients."""

MEMORY_MIB: Final = 128
"""The sidecar needs 45 MiB, and `doctor` 48 more."""


def settings_of(job: JobFile) -> Config:
    """Return the settings that the arbiter will run with, or raise SettingsError."""
    return load({}, job.environ)


def cull_s(job: JobFile) -> float:
    """The latest time after a grant at which Nomad restarts the app."""
    return settings_of(job).culling.drain + _after_failures_count_s(job)


def cull_in_grace_s(job: JobFile) -> float:
    """The same if Nomad's agent restarts at the grant: until ``grace`` is over, it ignores failures."""
    return seconds(one(job.check, "check_restart"), "grace") + _after_failures_count_s(job)


def _after_failures_count_s(job: JobFile) -> float:
    return seconds(job.check, "interval") + job.patience_s + WATCH_S


def settings_are_valid(job: JobFile) -> list[str]:
    try:
        settings_of(job)
    except SettingsError as error:
        return error.problems
    return []


def check_stands_in_the_app_task(job: JobFile) -> list[str]:
    sentences = []
    if blocks(job.group, "service"):
        sentences.append("a service of the group: its check_restart restarts the arbiter too")
    if blocks(job.arbiter, "service"):
        sentences.append("a service of the arbiter's task: its check_restart restarts the arbiter, not the app")
    if not job.check:
        sentences.append("no check in the app's task: Nomad will never restart the app")
    return sentences


def check_asks_the_arbiter(job: JobFile) -> list[str]:
    expected = {"type": "http", "path": NOMAD_PATH}
    sentences = [
        f"check has {name} {job.check.get(name)}" for name in expected if job.check.get(name) != expected[name]
    ]
    return sentences + ([] if job.checked_port == "arbiter" else [f"check asks port {job.checked_port!r}"])


def check_uses_the_protocol_of_the_listener(job: JobFile) -> list[str]:
    # From the environment, because the settings check the files.
    secured = "ARBITER_TLS_CERT" in job.environ and "public" in job.environ.get("ARBITER_TLS_LISTENERS", "")
    said, spoken = job.check.get("protocol", "http"), "https" if secured else "http"
    sentences = [] if said == spoken else [f"the check speaks {said}, the arbiter {spoken}: the app is restarted"]
    if secured and not (job.check.get("tls_skip_verify") is True or job.check.get("tls_server_name")):
        sentences.append("Nomad asks by address, which no certificate has: tls_skip_verify or tls_server_name")
    return sentences


def failing_check_restarts_the_app(job: JobFile) -> list[str]:
    restart = one(job.check, "check_restart")
    sentences = [] if restart.get("limit", 0) > 1 else ["check_restart is off, or one lost poll restarts the app"]
    if "ignore_warnings" in restart:
        sentences.append("ignore_warnings: Nomad's own checks know no warnings")
    return sentences


def poll_ends_before_the_next(job: JobFile) -> list[str]:
    return (
        [] if 1 <= seconds(job.check, "timeout") < seconds(job.check, "interval") else ["timeout is not below interval"]
    )


def check_waits_for_the_image(job: JobFile) -> list[str]:
    grace = seconds(one(job.check, "check_restart"), "grace")
    return [] if grace >= IMAGE_PULL_S else [f"grace {grace:g} s: the sidecar's image may take longer to pull"]


def nomad_outlasts_a_restart_of_the_arbiter(job: JobFile) -> list[str]:
    delay = RESTART_JITTER * seconds(one(job.arbiter, "restart"), "delay")
    away = settings_of(job).server.stop_drain + delay + START_UP_S + seconds(job.check, "interval")
    return [] if job.patience_s > away else [f"{job.patience_s:g} s of failures restart the app, away for {away:g} s"]


def cull_ends_within_a_minute(job: JobFile) -> list[str]:
    return [] if cull_s(job) <= 60 else [f"{cull_s(job):g} s from the grant to the restart"]


def drain_outlasts_haproxy(job: JobFile) -> list[str]:
    slowest = max(notice_s(path.read_text()) for path in SHIPPED)
    drain = settings_of(job).culling.drain
    return [] if drain > slowest else [f"DRAIN {drain:g} s: HAProxy may notice only after {slowest:g} s"]


def port_labels_exist(job: JobFile) -> list[str]:
    used = {str(service["port"]) for service in blocks(job.app, "service") if "port" in service}
    used |= {job.checked_port} - {""}
    for service in blocks(job.app, "service"):
        used |= set(re.findall(r"NOMAD_(?:HOST_)?PORT_(\w+)", " ".join(service.get("tags", []))))
    return [f"port {label!r} is not in the network block" for label in sorted(used - job.ports.keys())]


def ports_lead_to_the_arbiter(job: JobFile) -> list[str]:
    settings = settings_of(job)
    listeners = {"arbiter": settings.server.public_listen, "arbiter_agent": settings.server.agent_listen}
    return [
        f"port {label!r} leads to {job.ports.get(label, {}).get('to')}, the arbiter listens on {address}"
        for label, address in listeners.items()
        if address == addresses.OFF or job.ports.get(label, {}).get("to") != addresses.split(address)[1]
    ]


def page_has_a_port(job: JobFile) -> list[str]:
    address = job.environ.get("ARBITER_PAGE_LISTEN", addresses.OFF)
    if address == addresses.OFF or any(port.get("to") == addresses.split(address)[1] for port in job.ports.values()):
        return []
    return [f"no port leads to the page on {address}"]


def tasks_share_localhost(job: JobFile) -> list[str]:
    mode = one(job.group, "network").get("mode")
    if mode in ("bridge", "host") or settings_of(job).server.socket:
        return []
    return [f"network mode {mode}: the app cannot reach the arbiter on localhost, and there is no socket"]


def haproxy_finds_the_agent(job: JobFile) -> list[str]:
    tags = [tag for service in blocks(job.app, "service") if service.get("port") == "app" for tag in service["tags"]]
    return [] if tags == ["agent-port=${NOMAD_HOST_PORT_arbiter_agent}"] else [f"tags of the app's service: {tags}"]


def deployment_judges_the_app(job: JobFile) -> list[str]:
    service = next((service for service in blocks(job.app, "service") if service.get("port") == "app"), {})
    check = one(service, "check")
    sentences = (
        [] if check.get("type") in ("tcp", "http") else ["no check asks the app: a deployment never looks at it"]
    )
    return sentences + ["the check of the app restarts it, without a token"] * bool(blocks(check, "check_restart"))


def restart_in_place_is_noticed(job: JobFile) -> list[str]:
    watched, port = settings_of(job).app.app_port, job.ports["app"].get("to")
    return [] if watched == str(port) else [f"the arbiter watches port {watched or 'none'}, the app listens on {port}"]


def commands_fit_into_the_memory(job: JobFile) -> list[str]:
    resources = one(job.arbiter, "resources")
    sentences = [] if resources.get("memory", 0) >= MEMORY_MIB else [f"memory {resources.get('memory')}"]
    return sentences + ["without oversubscription Nomad ignores memory_max"] * ("memory_max" in resources)


def image_has_the_tag_of_this_version(job: JobFile) -> list[str]:
    image = job.images["arbiter_image"]
    return [] if image == f"health-arbiter:{__version__}" else [f"image {image}"]


def arbiter_lives_beside_the_app(job: JobFile) -> list[str]:
    lifecycle = one(job.arbiter, "lifecycle")
    sentences = (
        [] if lifecycle == {"hook": "poststart", "sidecar": True} else [f"lifecycle of the arbiter: {lifecycle}"]
    )
    return sentences + (["the app has a lifecycle: it is no main task"] if blocks(job.app, "lifecycle") else [])


def app_is_replaced_and_not_restarted(job: JobFile) -> list[str]:
    restart = one(job.app, "restart")
    return [] if restart == {"attempts": 0, "mode": "fail"} else [f"restart of the app: {restart}"]


def arbiter_is_restarted_for_ever(job: JobFile) -> list[str]:
    restart = one(job.arbiter, "restart")
    sentences = [] if restart.get("mode") == "delay" else ["mode fail: a broken sidecar takes the app down"]
    if restart.get("attempts", 0) * seconds(restart, "delay") != seconds(restart, "interval"):
        # Fewer can be used up, and more are refused by Nomad.
        sentences.append("attempts x delay is not interval: Nomad makes a sidecar that used them up wait")
    return sentences


def replacement_comes_soon(job: JobFile) -> list[str]:
    reschedule = one(job.group, "reschedule")
    fixed = (reschedule.get("delay_function"), reschedule.get("unlimited"), reschedule.get("attempts", 0))
    sentences = [] if fixed == ("constant", True, 0) else [f"reschedule is not constant and unlimited: {reschedule}"]
    delay = seconds(reschedule, "delay")
    return sentences if 5 <= delay <= 30 else [*sentences, f"delay {delay:g} s: Nomad takes no less than 5"]


def stopping_arbiter_may_finish(job: JobFile) -> list[str]:
    allowed, needed = seconds(job.arbiter, "kill_timeout"), settings_of(job).server.stop_drain
    return [] if needed < allowed <= MAX_KILL_TIMEOUT_S else [f"kill_timeout {allowed:g} s, STOP_DRAIN {needed:g} s"]


def starting_app_has_grace(job: JobFile) -> list[str]:
    return [] if settings_of(job).judging.grace > 0 else ["no GRACE: an app that is slow to start is judged at once"]


def fleet_shares_one_budget(job: JobFile) -> list[str]:
    return [] if settings_of(job).redis.redis_url else ["no Redis: every container has its own budget"]


def secret_comes_from_a_nomad_variable(job: JobFile) -> list[str]:
    config, env = one(job.arbiter, "config"), one(job.arbiter, "env")
    sentences = ["the Redis URL is in env, which every reader of the job sees"] * ("ARBITER_REDIS_URL" in env)
    sentences += ["every process can read the arguments"] * ("args" in config)
    for template in blocks(job.arbiter, "template"):
        if not str(template.get("destination", "")).startswith("${NOMAD_SECRETS_DIR}/"):
            sentences.append("the secret is rendered outside the secrets directory")
        if "| toJSON" not in template["data"]:
            sentences.append("without toJSON a # in a password ends the value")
    return sentences


def secrets_reach_no_core_file(job: JobFile) -> list[str]:
    limits = [limit.get("core") for limit in blocks(one(job.arbiter, "config"), "ulimit")]
    return [] if limits == ["0"] else [f"core files of the arbiter: {limits}"]


def changed_secret_does_not_restart_the_fleet(job: JobFile) -> list[str]:
    modes = [template.get("change_mode", "restart") for template in blocks(job.arbiter, "template")]
    return [f"change_mode {mode}: the whole fleet drains at once" for mode in modes if mode != "noop"]


# -- the job whose arbiter asks the task API -----------------------------------------------------------------------


def action_is_asked_of_nomad(job: JobFile) -> list[str]:
    action = settings_of(job).action.action
    sentences = [] if action in ("nomad-stop", "nomad-restart") else [f"action {action}: nothing restarts a culled app"]
    if not any(identity.get("file") is True for identity in blocks(job.arbiter, "identity")):
        sentences.append("no identity file: the arbiter has no token for the task API")
    return sentences


def restart_has_time_to_end_the_app(job: JobFile) -> list[str]:
    settings, kill_s = settings_of(job), seconds(job.app, "kill_timeout")
    if settings.action.action != "nomad-restart" or settings.action.action_timeout > kill_s:
        return []
    timeout_s = settings.action.action_timeout
    return [f"ARBITER_ACTION_TIMEOUT {timeout_s:g} s: Nomad answers when the app has ended, {kill_s:g} s"]


def dead_arbiter_hurts_nobody(job: JobFile) -> list[str]:
    checks = [check for service in blocks(job.app, "service") for check in blocks(service, "check")]
    sentences = ["a check_restart: an arbiter without an answer is a failure"] * any(
        "check_restart" in check for check in checks
    )
    return sentences + ["a check of the arbiter: without it no deployment succeeds"] * bool(job.check)


RULES: Final[tuple[Rule, ...]] = (
    settings_are_valid,
    drain_outlasts_haproxy,
    port_labels_exist,
    ports_lead_to_the_arbiter,
    page_has_a_port,
    tasks_share_localhost,
    haproxy_finds_the_agent,
    deployment_judges_the_app,
    restart_in_place_is_noticed,
    commands_fit_into_the_memory,
    image_has_the_tag_of_this_version,
    arbiter_lives_beside_the_app,
    app_is_replaced_and_not_restarted,
    arbiter_is_restarted_for_ever,
    replacement_comes_soon,
    stopping_arbiter_may_finish,
    starting_app_has_grace,
    fleet_shares_one_budget,
    secret_comes_from_a_nomad_variable,
    secrets_reach_no_core_file,
    changed_secret_does_not_restart_the_fleet,
)
CHECK_RULES: Final[tuple[Rule, ...]] = (
    check_stands_in_the_app_task,
    check_asks_the_arbiter,
    check_uses_the_protocol_of_the_listener,
    failing_check_restarts_the_app,
    poll_ends_before_the_next,
    check_waits_for_the_image,
    nomad_outlasts_a_restart_of_the_arbiter,
    cull_ends_within_a_minute,
)
TASK_API_RULES: Final[tuple[Rule, ...]] = (
    action_is_asked_of_nomad,
    restart_has_time_to_end_the_app,
    dead_arbiter_hurts_nobody,
)
