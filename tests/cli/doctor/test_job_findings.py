"""Every trap of a job file by itself, in a job that is right but for that."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from deploy import nomad_rules as rules
from deploy import test_nomad
from deploy.haproxy_config import SHIPPED, notice_s
from sidecar.cli.doctor import job_findings, jobspec
from sidecar.cli.doctor.findings import FindingLevel
from sidecar.config.rollout import ALONE, SHADOW

SHIPPED_JOBS = sorted((Path(__file__).parents[3] / "nomad").glob("*.nomad.hcl"))

GOOD = """
job "app" {
  group "web" {
    reschedule {
      delay_function = "constant"
      unlimited      = true
    }
    network {
      mode = "bridge"
      port "app" { to = 8080 }
      port "arbiter" { to = 9181 }
      port "arbiter_agent" { to = 9182 }
    }
    task "app" {
      driver = "docker"
      restart { attempts = 0 }
      service {
        port = "app"
        tags = ["agent-port=${NOMAD_HOST_PORT_arbiter_agent}"]
        check { type = "tcp" }
      }
      service {
        port = "arbiter"
        check {
          path     = "/health/nomad"
          interval = "5s"
          timeout  = "2s"
          check_restart {
            limit = 5
            grace = "60s"
          }
        }
      }
    }
    task "arbiter" {
      driver = "docker"
      lifecycle { sidecar = true }
      restart {
        attempts = 10
        delay    = "1s"
        interval = "10s"
        mode     = "delay"
      }
      kill_timeout = "10s"
      config {
        image = "registry.example:5000/health-arbiter:0.1.0"
        ulimit { core = "0" }
      }
      template {
        data        = "ARBITER_REDIS_URL={{ .redis_url.Value | toJSON }}"
        destination = "${NOMAD_SECRETS_DIR}/arbiter.env"
        env         = true
        change_mode = "noop"
      }
      env {
        ARBITER_MODE = "enforce"
        ARBITER_GRACE = "30s"
      }
      resources { memory = 128 }
    }
  }
}
"""
MODE = 'ARBITER_MODE = "enforce"'
GRACE = 'ARBITER_GRACE = "30s"'
IMAGE = 'image = "registry.example:5000/health-arbiter:0.1.0"'
BRIDGE = 'mode = "bridge"'
CHECK_PATH = 'path     = "/health/nomad"'
CHECK = GOOD[GOOD.index("        check {\n") : GOOD.index('    task "arbiter"')]
APP_CHECK = '        check { type = "tcp" }\n'
SERVICE = GOOD[GOOD.index('      service {\n        port = "arbiter"') : GOOD.index('    }\n    task "arbiter"')]
RESTART = GOOD[GOOD.index("          check_restart {") : GOOD.index("        }\n      }\n    }\n    task")]
OWN_RESTART = GOOD[GOOD.index("      restart {\n") : GOOD.index("      kill_timeout")]
RESCHEDULE = GOOD[GOOD.index("    reschedule {") : GOOD.index("    network {")]
TEMPLATE = GOOD[GOOD.index("      template {") : GOOD.index("      env {")]
TLS = 'ARBITER_TLS_CERT = "/c"\n ARBITER_TLS_KEY = "/k"\n ARBITER_TLS_LISTENERS = "public"'


def _found(tmp_path: Path, *changes: tuple[str, str]) -> list[tuple[str, str]]:
    text = GOOD
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    (tmp_path / "job.hcl").write_text(text)
    found = list(job_findings.of_job(jobspec.read(str(tmp_path / "job.hcl"))))
    assert {each.what for each in found} <= {"job"}
    return [(each.level, each.sentence.removeprefix("group web: ")) for each in found]


def _set(*lines: str) -> tuple[str, str]:
    return MODE, "\n ".join((MODE, *lines))


def test_good_job_says_how_long_a_cull_takes(tmp_path: Path) -> None:
    ((level, said),) = _found(tmp_path)
    assert level == "ok"
    assert said.startswith("a culled app is restarted 30 to 36 s after the grant, and no sooner than 80 s after")
    assert said.endswith("its start: a drain of 10 s and 5 polls of 5 s")


TRAPS = {
    # the check
    "wrong task": ((SERVICE, ""), ('    task "arbiter" {\n', f'    task "arbiter" {{\n{SERVICE}')),
    "group": ((SERVICE, ""), ('    task "app" {\n', f'{SERVICE}    task "app" {{\n')),
    "no check": ((CHECK, "      }\n    }\n"),),
    "no check_restart": ((RESTART, ""),),
    "limit": (("limit = 5", "limit = 1"),),
    "grace": (('grace = "60s"', 'grace = "10s"'),),
    "timeout": (('timeout  = "2s"', 'timeout  = "5s"'),),
    "path, slow": (('"/health/nomad"', '"/health"'),),
    "path, in the drain": (('"/health/nomad"', '"/health"'), ("limit = 5", "limit = 2")),
    "long": (('interval = "5s"', 'interval = "30s"'),),
    "impatient": (("limit = 5", "limit = 2"),),
    "no check of the app": ((APP_CHECK, ""),),
    "restart by a check of the app": (
        (APP_CHECK, APP_CHECK.replace('"tcp"', '"tcp"\n check_restart { limit = 3 }\n')),
    ),
    "type": ((CHECK_PATH, f'{CHECK_PATH}\n type = "tcp"'),),
    "port of the app": (('port = "arbiter"\n', 'port = "app"\n'),),
    "port of the check": ((CHECK_PATH, f"{CHECK_PATH}\n port = 8080"),),
    "unknown port": (('port = "arbiter"\n', 'port = "health"\n'),),
    "TLS, http": (_set(TLS),),
    "TLS, no name": (_set(TLS), (CHECK_PATH, f'{CHECK_PATH}\n protocol = "https"')),
    "https without TLS": ((CHECK_PATH, f'{CHECK_PATH}\n protocol = "https"'),),
    # settings
    "misspelt": (_set('ARBITER_DRIAN = "10s"'),),
    "misspelt in a template": (("ARBITER_REDIS_URL={{", "ARBITER_REDIS={{"),),
    "bad value": ((GRACE, 'ARBITER_GRACE = "soon"'),),
    "no grace": ((GRACE, ""),),
    "contradiction": (_set('ARBITER_TLS_CERT = "/c"'),),
    "no Redis": ((TEMPLATE, ""), (MODE, 'ARBITER_MODE = "shadow"')),
    "drain": (_set('ARBITER_DRAIN = "6s"'),),
    "drain, long": (_set('ARBITER_DRAIN = "40s"'),),
    "secret in args": ((IMAGE, f'{IMAGE}\n args = ["--redis-url", "redis://:p@h"]'),),
    "secret for all": (('"${NOMAD_SECRETS_DIR}/arbiter.env"', '"local/arbiter.env"'),),
    "secret with #": ((" | toJSON", ""),),
    "secret": (_set('ARBITER_REDIS_URL = "redis://:p@h"'),),
    # actions
    "action and check_restart": (_set('ARBITER_ACTION = "command"', 'ARBITER_ACTION_COMMAND = "/bin/restart-app"'),),
    "exit": (_set('ARBITER_ACTION = "exit"'), (RESTART, "")),
    "action without token": (_set('ARBITER_ACTION = "nomad-stop"'), (RESTART, "")),
    "action for another task": (_set('ARBITER_ACTION = "nomad-restart"', 'ARBITER_NOMAD_TASK = "web"'), (RESTART, "")),
    "impatient action": (
        _set('ARBITER_ACTION = "nomad-restart"', 'ARBITER_NOMAD_TASK = "app"', 'ARBITER_ACTION_TIMEOUT = "5s"'),
        (RESTART, ""),
    ),
    # network
    "agent": (('port "arbiter_agent" { to = 9182 }', 'port "arbiter_agent" { to = 9183 }'),),
    "agent tag": (("NOMAD_HOST_PORT_arbiter_agent", "NOMAD_HOST_PORT_arbiter"),),
    "agent tag inside": (("NOMAD_HOST_PORT_arbiter_agent", "NOMAD_PORT_arbiter_agent"),),
    "page": (_set('ARBITER_TOKEN_FILE = "/secrets/token"', 'ARBITER_PAGE_LISTEN = "0.0.0.0:9183"'),),
    "public": ((CHECK, "      }\n    }\n"), (" to = 9181 ", " to = 9184 "), _set('ARBITER_ACTION = "exit"')),
    "own port": (_set('ARBITER_APP_PORT = "${NOMAD_PORT_arbiter}"'),),
    "network none": ((BRIDGE, 'mode = "none"'),),
    "no network": ((BRIDGE, ""),),
    "host": ((BRIDGE, 'mode = "host"'), _set('ARBITER_AGENT_LISTEN = "0.0.0.0:${NOMAD_PORT_arbiter_agent}"')),
    # tasks
    "restart mode": ((OWN_RESTART, ""),),
    "attempts": (("attempts = 10", "attempts = 9"),),
    "attempts, action": (("attempts = 10", "attempts = 9"), _set('ARBITER_ACTION = "exit"'), (RESTART, "")),
    "lifecycle": (("      lifecycle { sidecar = true }\n", ""),),
    "kill_timeout": (('kill_timeout = "10s"', 'kill_timeout = "5s"'),),
    "kill_timeout, long": (('kill_timeout = "10s"', 'kill_timeout = "31s"'),),
    "memory": (("memory = 128", "memory = 127"),),
    "memory_max": (("memory = 128", "memory = 128\n memory_max = 256"),),
    "latest": (("health-arbiter:0.1.0", "health-arbiter:latest"),),
    "no tag": (("health-arbiter:0.1.0", "health-arbiter"),),
    "core files": (('ulimit { core = "0" }', ""),),
    "change_mode": (('change_mode = "noop"', ""),),
    "reschedule limited": (("unlimited      = true", "attempts = 3"),),
    "no reschedule": (("unlimited      = true", "unlimited = false"),),
    "slow reschedule": (("unlimited      = true", 'delay = "5m"'),),
    "default reschedule": ((RESCHEDULE, ""),),
    "in place": (("restart { attempts = 0 }", ""),),
}
NO_TAG = "of arbiter has no fixed tag: Nomad pulls latest at every start, and the fleet runs several versions; name one"
SAID = {
    "no grace": "warn no ARBITER_GRACE: an app that is slow to start is judged at once",
    "secret in args": "FAIL a password stands in the args of arbiter: every user of the node can read it; use a "
    "template",
    "secret for all": "warn ARBITER_REDIS_URL is written to local/arbiter.env, which nomad alloc fs shows: write it "
    "below ${NOMAD_SECRETS_DIR}",
    "secret with #": "warn ARBITER_REDIS_URL without | toJSON in a template: a # in the password ends the value",
    "page": "warn no port of the group leads to the status page at 9183 (ARBITER_PAGE_LISTEN)",
    "public": "warn no port of the group leads to the health answers at 9181 (ARBITER_PUBLIC_LISTEN): HAProxy and "
    "Prometheus do not reach them",
    "own port": "FAIL ARBITER_APP_PORT: 9181 is a port of the sidecar (ARBITER_PUBLIC_LISTEN=0.0.0.0:9181): name that "
    "of the app",
    "kill_timeout, long": "warn kill_timeout 31 s of arbiter: Nomad's clients allow 30 s, unless their "
    "max_kill_timeout is longer",
    "memory_max": "warn memory_max 256 of arbiter: Nomad ignores it where memory oversubscription is off, as by "
    "default; what is needed has to be in memory",
    "latest": f"warn image registry.example:5000/health-arbiter:latest {NO_TAG}",
    "no tag": f"warn image registry.example:5000/health-arbiter {NO_TAG}",
    "core files": "warn arbiter may write core files, in which its passwords and tokens are: write ulimit { core = "
    '"0" } into its config',
    "wrong task": "FAIL the check of /health/nomad restarts arbiter, the arbiter, not the app",
    "group": "FAIL the check of /health/nomad is one of the group: its check_restart restarts the arbiter too; put the "
    "service into the app's task",
    "no check": "FAIL no check asks /health/nomad: Nomad never restarts a culled app",
    "no check_restart": "FAIL the check of /health/nomad has no check_restart: it restarts nothing",
    "limit": "warn check_restart limit 1: one lost poll of /health/nomad restarts the app",
    "grace": "warn check_restart grace 10 s: pulling the arbiter's image may take longer, and then the app is "
    "restarted for it",
    "timeout": "warn the check of /health/nomad: timeout 5 s is not below the interval 5 s",
    "path, slow": "warn the check asks /health, which fails as the drain begins: it has to ask /health/nomad",
    "path, in the drain": "FAIL the check asks /health, which fails as the drain begins: it has to ask /health/nomad; "
    "the app is restarted after 5 s of a drain of 10",
    "long": "warn a culled app is restarted 130 to 161 s after the grant, and no sooner than 180 s after its start: a "
    "drain of 10 s and 5 polls of 30 s",
    "impatient": "warn 5 s of failures restart the app, and a restarted arbiter is away for 13.25 s: shorten its "
    "restart delay, or raise limit",
    "no check of the app": "warn no check asks the app itself: a deployment of an app that does not listen is "
    "successful",
    "restart by a check of the app": "warn the check of port app has a check_restart, which restarts the app without "
    "asking the fleet",
    "type": "FAIL the check of /health/nomad is of type tcp, to which a culled app is well: set http",
    "port of the app": "FAIL the check of /health/nomad asks port app (8080), and the arbiter answers at 9181 "
    "(ARBITER_PUBLIC_LISTEN)",
    "port of the check": "FAIL the check of /health/nomad asks port 8080 (8080), and the arbiter answers at 9181 "
    "(ARBITER_PUBLIC_LISTEN)",
    "unknown port": "FAIL the check of /health/nomad asks port health, which is not in the network block",
    "TLS, http": "FAIL the check of /health/nomad speaks http, and the arbiter https (ARBITER_TLS_LISTENERS): it fails "
    "always",
    "TLS, no name": "FAIL the check of /health/nomad asks by address, which no certificate has: set tls_skip_verify or "
    "tls_server_name",
    "https without TLS": "FAIL the check of /health/nomad speaks https, and the arbiter http (ARBITER_TLS_LISTENERS): "
    "it fails always",
    "misspelt": "FAIL ARBITER_DRIAN: unknown setting; did you mean ARBITER_DRAIN?",
    "misspelt in a template": "FAIL ARBITER_REDIS: unknown setting; did you mean ARBITER_REDIS_CA?",
    "bad value": "FAIL ARBITER_GRACE: 'soon' from env is not a duration: write a number with ms, s, m, h or d, such as "
    "10s, 500ms or 1.5s",
    "contradiction": "FAIL ARBITER_TLS_CERT: needs ARBITER_TLS_KEY, the other half of the pair",
    "no Redis": f"warn {ALONE[SHADOW]}",
    "drain": "warn ARBITER_DRAIN 6s: HAProxy may notice only after 6s, and then sends requests to an app that is being "
    "restarted",
    "drain, long": "warn a culled app is restarted 60 to 66 s after the grant, and no sooner than 80 s after its "
    "start: a drain of 40 s and 5 polls of 5 s",
    "secret": "warn ARBITER_REDIS_URL stands in env with a password: everybody who reads the job has it",
    "exit": "FAIL ARBITER_ACTION exit: Nomad restarts the arbiter alone, and the culled app goes on; set "
    "nomad-restart, nomad-stop or check",
    "action and check_restart": "warn ARBITER_ACTION command, and check_restart of /health/nomad: a dead arbiter has "
    "the app restarted; leave check_restart out",
    "action without token": "FAIL ARBITER_ACTION nomad-stop needs the token of the task: write identity { file = "
    "true } into arbiter",
    "action for another task": "FAIL ARBITER_NOMAD_TASK web is no task of the group",
    "impatient action": "warn ARBITER_ACTION_TIMEOUT 5s is not above kill_timeout 5 s of app: Nomad answers when it "
    "has ended, and meanwhile the action counts as failed",
    "agent": "warn no port of the group leads to the agent-check at 9182 (ARBITER_AGENT_LISTEN): HAProxy gets no drain "
    "and no weight from it",
    "agent tag": "FAIL the tag agent-port names port arbiter (9181), and the agent-check listens at 9182 "
    "(ARBITER_AGENT_LISTEN)",
    "agent tag inside": "FAIL the tag agent-port has the port inside the allocation: write "
    "NOMAD_HOST_PORT_arbiter_agent",
    "network none": "FAIL network mode none without ARBITER_SOCKET: no port leads to the arbiter; set mode bridge",
    "no network": "FAIL no network mode: docker gives each task a network of its own, so the app does not reach the "
    "arbiter on localhost; set mode bridge, or ARBITER_SOCKET",
    "host": "warn network mode host: a second allocation on a node finds ARBITER_LOCAL_LISTEN (127.0.0.1:9180), "
    "ARBITER_PUBLIC_LISTEN (0.0.0.0:9181) taken; take the ports from ${NOMAD_PORT_...}",
    "restart mode": "FAIL restart mode fail of arbiter: a broken arbiter takes the app down",
    "attempts": "warn restart of arbiter: after 9 restarts within 10s Nomad waits for the rest of that time, and "
    "restarts the app meanwhile; attempts x delay has to be interval",
    "attempts, action": "warn restart of arbiter: after 9 restarts within 10s Nomad waits for the rest of that time, "
    "and nobody judges the app meanwhile; attempts x delay has to be interval",
    "lifecycle": "warn arbiter has no lifecycle with sidecar = true: it does not live and end with the app",
    "kill_timeout": "warn kill_timeout 5 s of arbiter is not above ARBITER_STOP_DRAIN 5 s",
    "memory": "warn memory 127 of arbiter: with less than 128 (MiB) the kernel may kill doctor, or the arbiter beside "
    "it",
    "change_mode": "warn change_mode restart of a template of arbiter: a new value restarts the arbiters of the whole "
    "fleet at once, and each drains its app; set noop",
    "reschedule limited": "FAIL reschedule is limited: after these attempts a failed app stays down; set unlimited = "
    "true",
    "no reschedule": "FAIL reschedule is limited: after these attempts a failed app stays down; set unlimited = true",
    "slow reschedule": "warn reschedule delay 300 s: so long no app replaces a failed one",
    "default reschedule": "warn reschedule is exponential, as by default: each replacement waits longer, up to 1 h; "
    'set delay_function = "constant"',
    "in place": "warn app is restarted in place: set ARBITER_APP_PORT, or it has to report its app_start, or stays "
    "culled after that",
}


@pytest.mark.parametrize("name", TRAPS)
def test_trap_is_found_and_says_what_to_do(name: str, tmp_path: Path) -> None:
    assert SAID[name] in [" ".join(found) for found in _found(tmp_path, *TRAPS[name])]


@pytest.mark.parametrize(
    "changes",
    [
        (_set('ARBITER_PUBLIC_ALLOW = "10.0.0.5,${attr.unique.network.ip-address}"'),),
        (_set('ARBITER_SOCKET = "${NOMAD_ALLOC_DIR}/tmp/arbiter.sock"'), (BRIDGE, "")),
        (
            _set('ARBITER_TOKEN_FILE = "${NOMAD_SECRETS_DIR}/token"', 'ARBITER_PAGE_LISTEN = "0.0.0.0:9183"'),
            ("to = 9182 }", 'to = 9182 }\n port "page" { to = 9183 }'),
        ),
        (_set('ARBITER_SERVICE = "${meta.name}"'),),
        (_set('ARBITER_CONFIG = "/local/arbiter.toml"'), (TEMPLATE, "")),
        (_set('ARBITER_APP_PORT = "${NOMAD_PORT_app}"'), ("restart { attempts = 0 }", "")),
        (_set(TLS), (CHECK_PATH, f'{CHECK_PATH}\n protocol = "https"\n tls_skip_verify = true')),
        (
            (BRIDGE, 'mode = "host"'),
            ('port "arbiter" { to = 9181 }', 'port "arbiter" {}\n port "local" {}'),
            ('port "arbiter_agent" { to = 9182 }', 'port "arbiter_agent" {}'),
            _set(
                'ARBITER_PUBLIC_LISTEN = "0.0.0.0:${NOMAD_PORT_arbiter}"',
                'ARBITER_AGENT_LISTEN = "0.0.0.0:${NOMAD_PORT_arbiter_agent}"',
                'ARBITER_LOCAL_LISTEN = "127.0.0.1:${NOMAD_PORT_local}"',
            ),
        ),
        (
            _set('ARBITER_ACTION = "nomad-restart"', 'ARBITER_NOMAD_TASK = "app"', 'ARBITER_APP_PORT = "8080"'),
            (CHECK, "      }\n    }\n"),
            ("lifecycle { sidecar = true }", "lifecycle { sidecar = true }\n identity { file = true }"),
        ),
    ],
    ids=["allowed", "socket", "page", "unknown", "file", "in place", "TLS", "host", "task API"],
)
def test_what_nomad_fills_in_is_no_finding(changes: tuple[tuple[str, str], ...], tmp_path: Path) -> None:
    assert [found for found in _found(tmp_path, *changes) if found[0] != "ok"] == []


TASK_API: Final = (
    (CHECK, "      }\n    }\n"),
    ("lifecycle { sidecar = true }", "lifecycle { sidecar = true }\n identity { file = true }"),
)


@pytest.mark.parametrize(
    ("changes", "problems"),
    [
        ((_set('ARBITER_ACTION = "command"', 'ARBITER_ACTION_COMMAND = "/only/there"'), *TASK_API), []),
        (
            (_set('ARBITER_ACTION = "command"', 'ARBITER_ACTION_COMMAND = "\'open"'), *TASK_API),
            ["ARBITER_ACTION_COMMAND: cannot be read: No closing quotation"],
        ),
        (
            (_set('ARBITER_ACTION = "nomad-restart"', 'ARBITER_APP_PORT = "8080"'), *TASK_API),
            ["ARBITER_NOMAD_TASK: missing, though ARBITER_ACTION=nomad-restart"],
        ),
        (
            (_set('ARBITER_SCRAPE_ERRORS = "errors_total"'),),
            ["ARBITER_SCRAPE_URL: missing, though there are selectors of what to count on the page"],
        ),
    ],
    ids=["program of another machine", "bad command", "no task", "no page"],
)
def test_problem_of_one_setting_hides_no_other_setting(
    changes: tuple[tuple[str, str], ...], problems: list[str], tmp_path: Path
) -> None:
    assert [said for level, said in _found(tmp_path, *changes) if level != "ok"] == problems


@pytest.mark.parametrize("path", SHIPPED_JOBS, ids=lambda path: path.name)
def test_shipped_job_has_no_finding(path: Path) -> None:
    assert {found.level for found in job_findings.of_job(jobspec.read(str(path)))} == {FindingLevel.OK}


REFUSED_BY_NOMAD = {
    (rules.poll_ends_before_the_next, 'timeout  = "2s"'),
    (rules.port_labels_exist, 'port     = "app"'),
    (rules.arbiter_is_restarted_for_ever, test_nomad.ARBITER_RESTART),
    (rules.replacement_comes_soon, 'delay          = "10s"'),
}
ONLY_OURS = {
    (rules.failing_check_restarts_the_app, "limit = 5"),
    (rules.check_asks_the_arbiter, 'port     = "arbiter"'),
    (rules.ports_lead_to_the_arbiter, 'ARBITER_DRAIN = "10s"'),
    (rules.haproxy_finds_the_agent, '"agent-port=${NOMAD_HOST_PORT_arbiter_agent}"'),
    (rules.deployment_judges_the_app, 'type     = "tcp"'),
    (rules.restart_in_place_is_noticed, 'ARBITER_APP_PORT = "${NOMAD_PORT_app}"'),
    (rules.arbiter_lives_beside_the_app, 'hook    = "poststart"'),
    (rules.arbiter_lives_beside_the_app, '    task "app" {\n'),
    (rules.app_is_replaced_and_not_restarted, "attempts = 0"),
    (rules.app_is_replaced_and_not_restarted, 'mode     = "fail"'),
}
"""Wrong only in the jobs that we ship: a fleet without HAProxy needs no agent-check, a script may ask the app, ..."""


@pytest.mark.parametrize("path", SHIPPED_JOBS, ids=lambda path: path.name)
def test_what_the_rules_for_our_jobs_find_the_doctor_finds(path: Path, tmp_path: Path) -> None:
    missed = set()
    text, is_check_job = path.read_text(), path.name == "app.nomad.hcl"
    of_job = rules.CHECK_RULES if is_check_job else rules.TASK_API_RULES
    for rule, old, new in test_nomad.MUTATIONS if is_check_job else test_nomad.TASK_API_MUTATIONS:
        if rule not in (*rules.RULES, *of_job):
            continue
        (tmp_path / "job.hcl").write_text(text.replace(old, new))
        found = job_findings.of_job(jobspec.read(str(tmp_path / "job.hcl")))
        if {each.level for each in found} <= {FindingLevel.OK}:
            missed.add((rule, old))
    assert missed <= REFUSED_BY_NOMAD | ONLY_OURS


def test_job_without_an_arbiter_is_a_warning(tmp_path: Path) -> None:
    app_start = '\n env { ARBITER_APP_START = "1" }'
    found = _found(
        tmp_path,
        ('task "arbiter" {', 'task "other" {'),
        (MODE, ""),
        (GRACE, ""),
        ('task "app" {', f'task "app" {{{app_start}'),
    )
    assert found == [("warn", "no task of it runs a health-arbiter: none has ARBITER_* in its env")]


def test_drain_is_compared_with_the_slowest_configuration_that_we_ship() -> None:
    assert max(notice_s(path.read_text()) for path in SHIPPED) == job_findings.HAPROXY_S
