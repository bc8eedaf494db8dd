"""The shipped job files keep the rules."""

from __future__ import annotations

import hcl2
import pytest

from deploy import nomad_rules as rules
from deploy.nomad_job import JOB_FILE, SECRET_SAMPLE, TASK_API_JOB_FILE, JobFile, assignments, blocks, one, read
from sidecar.runlock import durations

TEXT = JOB_FILE.read_text()
TASK_API = TASK_API_JOB_FILE.read_text()
POLICY = (JOB_FILE.parent / "arbiter.policy.hcl").read_text()
README = (JOB_FILE.parent / "README.md").read_text()

DRAIN = 'ARBITER_DRAIN = "10s"'
TLS = f'''{DRAIN}
        ARBITER_TLS_CERT = "/secrets/tls.crt"
        ARBITER_TLS_KEY = "/secrets/tls.key"
        ARBITER_TLS_LISTENERS = "page,public"'''
PAGE = f'''{DRAIN}
        ARBITER_PAGE_LISTEN = "0.0.0.0:9183"
        ARBITER_TOKEN_FILE = "/secrets/token"'''


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


@pytest.mark.parametrize("rule", [*rules.RULES, *rules.CHECK_RULES], ids=lambda rule: rule.__name__)
def test_job_file_keeps_the_rule(rule: rules.Rule) -> None:
    assert rule(read(TEXT)) == []


@pytest.mark.parametrize("rule", [*rules.RULES, *rules.TASK_API_RULES], ids=lambda rule: rule.__name__)
def test_job_file_for_the_task_api_keeps_the_rule(rule: rules.Rule) -> None:
    assert rule(read(TASK_API)) == []


def test_assignments_of_a_template_are_found_between_its_calls() -> None:
    data = '{{ with nomadVar "a/b" }}\n  ONE={{ .x }}\nTWO=plain\n# THREE=no\n{{ end }}\n'
    assert assignments(data) == [("ONE", SECRET_SAMPLE), ("TWO", "plain")]
