"""The shipped job files keep the rules, and each rule finds the mutations that it is for."""

from __future__ import annotations

import hcl2
import pytest

from deploy import nomad_rules as rules
from deploy.nomad_job import JOB_FILE, SECRET_SAMPLE, TASK_API_JOB_FILE, JobFile, assignments, blocks, one, read
from deploy.rules import check
from sidecar import __version__
from sidecar.runlock import durations

TEXT = JOB_FILE.read_text()
TASK_API = TASK_API_JOB_FILE.read_text()
POLICY = (JOB_FILE.parent / "arbiter.policy.hcl").read_text()
README = (JOB_FILE.parent / "README.md").read_text()

CHECK_BLOCK, SERVICE_OF_THE_ARBITER = (
    text[text.index('      service {\n        name     = "app-health"') : text.index("      config {\n")]
    for text in (TEXT, TASK_API)
)
CHECK_PATH = 'path     = "/health/nomad"'
DRAIN = 'ARBITER_DRAIN = "10s"'
TLS = f'''{DRAIN}
        ARBITER_TLS_CERT = "/secrets/tls.crt"
        ARBITER_TLS_KEY = "/secrets/tls.key"
        ARBITER_TLS_LISTENERS = "page,public"'''
PAGE = f'''{DRAIN}
        ARBITER_PAGE_LISTEN = "0.0.0.0:9183"
        ARBITER_TOKEN_FILE = "/secrets/token"'''
ARBITER_RESTART = 'attempts = 30\n        delay    = "2s"\n        interval = "60s"\n        mode     = "delay"'


@pytest.fixture(scope="module")
def job() -> JobFile:
    return read(TEXT)


def test_job_file_is_read_to_the_end(job: JobFile) -> None:
    assert {*job.ports} == {"app", "arbiter", "arbiter_agent"}
    assert [service["name"] for service in blocks(job.app, "service")] == ["app", "app-health"]
    assert job.checked_port == "arbiter"
    assert job.patience_s == 20
    assert job.environ["ARBITER_REDIS_URL"] == SECRET_SAMPLE
    assert one(job.arbiter, "config")["image"] == "${var.arbiter_image}"


def test_settings_come_from_the_job_file_and_from_nomad(job: JobFile) -> None:
    settings = rules.settings_of(job)
    assert (settings.identity.service, settings.identity.instance) == ("app.web", job.environ["NOMAD_ALLOC_ID"])
    assert settings.state.state_dir == "/alloc/tmp"
    assert (settings.identity.mode, settings.judging.grace, settings.culling.drain, settings.server.stop_drain) == (
        "shadow",
        30,
        10,
        5,
    )
    assert settings.redis.redis_url == SECRET_SAMPLE


def test_lifetime_in_comments_is_valid() -> None:
    job = read(TEXT.replace("# ARBITER_LIFETIME =", "ARBITER_LIFETIME ="))
    assert rules.settings_of(job).retirement.lifetime == 6 * 3600
    assert [sentence for rule in (*rules.RULES, *rules.CHECK_RULES) for sentence in rule(job)] == []


def test_socket_in_comments_is_valid() -> None:
    switched_on = TEXT.replace("# ARBITER_SOCKET =", "ARBITER_SOCKET =")
    assert rules.settings_of(read(switched_on)).server.socket == "/alloc/tmp/arbiter.sock"


def test_tls_and_page_in_comments_keep_the_rules() -> None:
    text = TEXT.replace(DRAIN, f"{TLS}\n{PAGE.removeprefix(DRAIN)}")
    lines = ('port "arbiter_page" {', 'protocol        = "https"', "tls_skip_verify = true")
    for line in lines:
        assert text.count(f"# {line}") == 1
        text = text.replace(f"# {line}", line)
    job = read(text)
    assert rules.check_uses_the_protocol_of_the_listener(job) == rules.page_has_a_port(job) == []


def test_readme_has_the_times_of_the_job_file(job: JobFile) -> None:
    delay_s = durations.parse(one(job.group, "reschedule")["delay"])
    readme = " ".join(README.split())
    assert f"Nomad is told {rules.settings_of(job).culling.drain:g} s after the grant" in readme
    assert f"restarts the app {rules.cull_s(job):g} s after it at the latest" in readme
    assert f"places a new allocation {delay_s:g} s later" in readme
    assert f"up to {rules.cull_in_grace_s(job):g} s after the grant" in readme
    assert f"dead for longer than {job.patience_s:g} s" in readme


def test_policy_lets_the_task_of_the_job_do_what_the_action_needs() -> None:
    (namespace,) = hcl2.loads(POLICY)["namespace"]
    (granted,) = namespace.values()
    assert [name.strip('"') for name in granted["capabilities"]] == ["alloc-lifecycle"]
    command = "nomad acl policy apply -namespace default -job app -group web -task arbiter"
    assert command in POLICY
    assert command in README


def test_jobs_differ_only_in_what_restarts_the_app() -> None:
    check_job, task_api = read(TEXT), read(TASK_API)
    assert task_api.environ == {**check_job.environ, "ARBITER_ACTION": "nomad-stop"}
    assert {name for name in check_job.arbiter.keys() ^ task_api.arbiter.keys() if not name.startswith("__")} == {
        "identity"
    }
    assert check_job.ports == task_api.ports


# -- mutations -------------------------------------------------------------------------------------------------

MUTATIONS = [
    (rules.settings_are_valid, 'ARBITER_DRAIN = "10s"', 'ARBITER_DRIAN = "10s"'),
    (rules.settings_are_valid, 'ARBITER_GRACE = "30s"', 'ARBITER_GRACE = "soon"'),
    (rules.settings_are_valid, "ARBITER_REDIS_URL={{", "ARBITER_REDIS={{"),
    (rules.check_stands_in_the_app_task, CHECK_BLOCK, ""),
    (rules.check_stands_in_the_app_task, '    task "app" {\n', f'{CHECK_BLOCK}\n    task "app" {{\n'),
    (rules.check_stands_in_the_app_task, '    task "arbiter" {\n', f'    task "arbiter" {{\n{CHECK_BLOCK}'),
    (rules.check_asks_the_arbiter, '"/health/nomad"', '"/health/haproxy"'),
    (rules.check_asks_the_arbiter, '"http"\n', '"tcp"\n'),
    (rules.check_asks_the_arbiter, 'port     = "arbiter"', 'port     = "app"'),
    (rules.check_asks_the_arbiter, 'name     = "arbiter"', 'name     = "arbiter"\n          port = "app"'),
    (rules.check_uses_the_protocol_of_the_listener, CHECK_PATH, f'{CHECK_PATH}\n          protocol = "https"'),
    (rules.check_uses_the_protocol_of_the_listener, DRAIN, TLS),
    (rules.failing_check_restarts_the_app, "limit = 5", "limit = 1"),
    (rules.failing_check_restarts_the_app, "limit = 5", ""),
    (rules.failing_check_restarts_the_app, "limit = 5", "limit = 5\n            ignore_warnings = true"),
    (rules.poll_ends_before_the_next, 'timeout  = "2s"', 'timeout  = "5s"'),
    (rules.poll_ends_before_the_next, 'timeout  = "2s"', ""),
    (rules.check_waits_for_the_image, 'grace = "90s"', 'grace = "10s"'),
    (rules.check_waits_for_the_image, 'grace = "90s"', ""),
    (rules.nomad_outlasts_a_restart_of_the_arbiter, "limit = 5", "limit = 3"),
    (rules.nomad_outlasts_a_restart_of_the_arbiter, 'delay    = "2s"', 'delay    = "15s"'),
    (rules.nomad_outlasts_a_restart_of_the_arbiter, 'ARBITER_STOP_DRAIN = "5s"', 'ARBITER_STOP_DRAIN = "12s"'),
    (rules.cull_ends_within_a_minute, "limit = 5", "limit = 12"),
    (rules.cull_ends_within_a_minute, 'interval = "5s"', 'interval = "30s"'),
    (rules.drain_outlasts_haproxy, 'ARBITER_DRAIN = "10s"', 'ARBITER_DRAIN = "5s"'),
    (rules.port_labels_exist, 'port "arbiter_agent"', 'port "agent"'),
    (rules.port_labels_exist, 'port     = "app"', 'port     = "http"'),
    (rules.ports_lead_to_the_arbiter, "to = 9181", "to = 9180"),
    (rules.ports_lead_to_the_arbiter, "to = 9182", ""),
    (rules.ports_lead_to_the_arbiter, 'ARBITER_DRAIN = "10s"', 'ARBITER_PUBLIC_LISTEN = "0.0.0.0:8081"'),
    (rules.ports_lead_to_the_arbiter, 'ARBITER_DRAIN = "10s"', 'ARBITER_AGENT_LISTEN = "off"'),
    (rules.page_has_a_port, DRAIN, PAGE),
    (rules.deployment_judges_the_app, 'type     = "tcp"', 'type     = "script"'),
    (rules.deployment_judges_the_app, 'timeout  = "3s"', 'timeout  = "3s"\n check_restart {\n limit = 3\n }\n'),
    (rules.restart_in_place_is_noticed, 'ARBITER_APP_PORT = "${NOMAD_PORT_app}"', ""),
    (rules.settings_are_valid, "${NOMAD_PORT_app}", "${NOMAD_PORT_arbiter}"),
    (rules.commands_fit_into_the_memory, "memory = 128 ", "memory = 64 "),
    (rules.commands_fit_into_the_memory, "memory = 128 ", "memory = 128\n memory_max = 256 "),
    (rules.image_has_the_tag_of_this_version, f"health-arbiter:{__version__}", "health-arbiter:latest"),
    (rules.tasks_share_localhost, 'mode = "bridge"', ""),
    (rules.tasks_share_localhost, 'mode = "bridge"', 'mode = "none"'),
    (rules.haproxy_finds_the_agent, "NOMAD_HOST_PORT_arbiter_agent", "NOMAD_PORT_arbiter_agent"),
    (rules.haproxy_finds_the_agent, '"agent-port=${NOMAD_HOST_PORT_arbiter_agent}"', ""),
    (rules.arbiter_lives_beside_the_app, 'hook    = "poststart"', 'hook    = "prestart"'),
    (rules.arbiter_lives_beside_the_app, "sidecar = true", ""),
    (
        rules.arbiter_lives_beside_the_app,
        '    task "app" {\n',
        '    task "app" {\n lifecycle {\n hook = "prestart"\n }\n',
    ),
    (rules.app_is_replaced_and_not_restarted, "attempts = 0", "attempts = 2"),
    (rules.app_is_replaced_and_not_restarted, 'mode     = "fail"', 'mode     = "delay"'),
    (rules.arbiter_is_restarted_for_ever, ARBITER_RESTART, ARBITER_RESTART.replace('"delay"', '"fail"')),
    (rules.arbiter_is_restarted_for_ever, ARBITER_RESTART, ARBITER_RESTART.replace("30", "10")),
    (rules.arbiter_is_restarted_for_ever, ARBITER_RESTART, ARBITER_RESTART.replace("60s", "30s")),
    (rules.replacement_comes_soon, '"constant"', '"exponential"'),
    (rules.replacement_comes_soon, "unlimited      = true", "attempts = 3"),
    (rules.replacement_comes_soon, "unlimited      = true", "unlimited = true\n      attempts = 3"),
    (rules.replacement_comes_soon, 'delay          = "10s"', 'delay          = "5m"'),
    (rules.replacement_comes_soon, 'delay          = "10s"', 'delay          = "1s"'),
    (rules.stopping_arbiter_may_finish, 'kill_timeout = "15s"', 'kill_timeout = "5s"'),
    (rules.stopping_arbiter_may_finish, 'kill_timeout = "15s"', 'kill_timeout = "2m"'),
    (rules.stopping_arbiter_may_finish, 'kill_timeout = "15s"', ""),
    (rules.starting_app_has_grace, 'ARBITER_GRACE = "30s"', ""),
    (rules.fleet_shares_one_budget, "ARBITER_REDIS_URL={{ .redis_url.Value | toJSON }}", ""),
    (rules.fleet_shares_one_budget, "env         = true", ""),
    (
        rules.secret_comes_from_a_nomad_variable,
        'ARBITER_DRAIN = "10s"',
        f'ARBITER_DRAIN = "10s"\n ARBITER_REDIS_URL = "{SECRET_SAMPLE}"',
    ),
    (rules.secret_comes_from_a_nomad_variable, "readonly_rootfs = true", f'args = ["--redis-url", "{SECRET_SAMPLE}"]'),
    (rules.secret_comes_from_a_nomad_variable, '"${NOMAD_SECRETS_DIR}/', '"local/'),
    (rules.secret_comes_from_a_nomad_variable, " | toJSON", ""),
    (rules.secrets_reach_no_core_file, 'core = "0"', 'nofile = "65536"'),
    (rules.changed_secret_does_not_restart_the_fleet, 'change_mode = "noop"', ""),
    (rules.changed_secret_does_not_restart_the_fleet, 'change_mode = "noop"', 'change_mode = "restart"'),
]
TASK_API_MUTATIONS = [
    *MUTATIONS,
    (rules.action_is_asked_of_nomad, 'ARBITER_ACTION = "nomad-stop"', ""),
    (rules.action_is_asked_of_nomad, "file = true", "env = true"),
    (
        rules.restart_has_time_to_end_the_app,
        'ARBITER_ACTION = "nomad-stop"',
        'ARBITER_ACTION = "nomad-restart"\n ARBITER_NOMAD_TASK = "app"',
    ),
    (rules.dead_arbiter_hurts_nobody, 'timeout  = "3s"', 'timeout  = "3s"\n check_restart {\n limit = 3\n }\n'),
    (rules.dead_arbiter_hurts_nobody, SERVICE_OF_THE_ARBITER, CHECK_BLOCK),
]


@pytest.mark.parametrize("rule", [*rules.RULES, *rules.CHECK_RULES], ids=lambda rule: rule.__name__)
def test_job_file_keeps_the_rule_and_each_mutation_breaks_it(rule: rules.Rule) -> None:
    check(rule, read, TEXT, MUTATIONS)


@pytest.mark.parametrize("rule", [*rules.RULES, *rules.TASK_API_RULES], ids=lambda rule: rule.__name__)
def test_job_file_for_the_task_api_keeps_the_rule_and_each_mutation_breaks_it(rule: rules.Rule) -> None:
    check(rule, read, TASK_API, TASK_API_MUTATIONS)


def test_assignments_of_a_template_are_found_between_its_calls() -> None:
    data = '{{ with nomadVar "a/b" }}\n  ONE={{ .x }}\nTWO=plain\n# THREE=no\n{{ end }}\n'
    assert assignments(data) == [("ONE", SECRET_SAMPLE), ("TWO", "plain")]
