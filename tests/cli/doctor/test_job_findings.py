"""Every trap of a job by itself, in a job that is right but for that."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from harness.cascade import HAPROXY, notice_s
from sidecar.cli.doctor import job_findings, jobspec
from sidecar.config.rollout import ALONE, SHADOW

JOBS: Final = Path(__file__).parent / "jobs"
NS: Final = jobspec.NS_PER_S

Changes = dict[str, Any]
"""Where in the group -> the value there; None: as if it were left out."""

APP, ARBITER = "Tasks.0", "Tasks.1"
CHECK = f"{APP}.Services.1.Checks.0"
NO_CHECK: Changes = {f"{APP}.Services.1.Checks": None}
NO_RESTART: Changes = {f"{CHECK}.CheckRestart": None}
TEMPLATE = f"{ARBITER}.Templates.0"
IDENTITY: Changes = {f"{ARBITER}.Identity": {"File": True}}


def job(changes: Changes, name: str = "app") -> dict[str, Any]:
    spec: dict[str, Any] = json.loads((JOBS / f"{name}.json").read_text())
    for path, value in changes.items():
        *way, last = path.split(".")
        block: Any = spec["Job"]["TaskGroups"][0]
        for step in way:
            block = block[int(step) if isinstance(block, list) else step]
        if isinstance(block, list):
            block[int(last)] = value
        elif value is None:
            block.pop(last)
        else:
            block[last] = value
    return spec


def found_in(tmp_path: Path, spec: dict[str, Any]) -> list[str]:
    (tmp_path / "job.json").write_text(json.dumps(spec))
    found = list(job_findings.of_job(jobspec.read(str(tmp_path / "job.json"))))
    assert {each.what for each in found} <= {"job"}
    return [f"{each.level} {each.sentence.removeprefix('group web: ')}" for each in found]


def env(**settings: str | None) -> Changes:
    return {f"{ARBITER}.Env.ARBITER_{name}": value for name, value in settings.items()}


TLS: Final = env(TLS_CERT="/c", TLS_KEY="/k", TLS_LISTENERS="public")
NO_TAG = "of arbiter has no fixed tag: Nomad pulls latest at every start, and the fleet runs several versions; name one"
ATTEMPTS = "warn restart of arbiter: after 29 restarts within 60s Nomad waits for the rest of that time, and"
IN_PLACE = "is restarted where it is, on a node that may be the cause, and only after 3 restarts within 30m it"
LIMITED = "FAIL reschedule is limited: after these attempts a failed app stays down; set unlimited = true"
ASKS = "of /health/nomad"

TRAPS: Final[dict[str, tuple[Changes, str]]] = {
    # the check
    "no check": (NO_CHECK, "FAIL no check asks /health/nomad: Nomad never restarts a culled app"),
    "no check_restart": (NO_RESTART, f"FAIL the check {ASKS} has no check_restart: it restarts nothing"),
    "misspelt check_restart": (
        {**NO_RESTART, f"{CHECK}.CheckRestart_": {"Limit": 5}},
        f"FAIL CheckRestart_ of the check {ASKS}: Nomad knows no such field and ignores it; write CheckRestart",
    ),
    "limit": (
        {f"{CHECK}.CheckRestart.Limit": 1},
        "warn check_restart limit 1: one lost poll of /health/nomad restarts the app",
    ),
    "grace": (
        {f"{CHECK}.CheckRestart.Grace": 10 * NS},
        "warn check_restart grace 10 s: pulling the arbiter's image may take longer, and then the app is restarted",
    ),
    "timeout": ({f"{CHECK}.Timeout": 5 * NS}, f"warn the check {ASKS}: timeout 5 s is not below the interval 5 s"),
    "path, slow": (
        {f"{CHECK}.Path": "/health"},
        "warn the check asks /health, which fails as the drain begins: it has to ask /health/nomad",
    ),
    "path, in the drain": (
        {f"{CHECK}.Path": "/health", f"{CHECK}.CheckRestart.Limit": 2},
        "FAIL the check asks /health, which fails as the drain begins: it has to ask /health/nomad; the app is",
    ),
    "long": (
        {f"{CHECK}.Interval": 30 * NS},
        "warn a culled app is restarted 130 to 161 s after the grant, and no sooner than 210 s after its start: a",
    ),
    "impatient": (
        {f"{CHECK}.CheckRestart.Limit": 2},
        "warn 5 s of failures restart the app, and a restarted arbiter is away for 14.5 s: shorten its restart delay,",
    ),
    "no check of the app": (
        {f"{APP}.Services.0.Checks": None},
        "warn no check asks the app itself: a deployment of an app that does not listen is successful",
    ),
    "restart by a check of the app": (
        {f"{APP}.Services.0.Checks.0.CheckRestart": {"Limit": 3}},
        "warn the check of port app has a check_restart, which restarts the app without asking the fleet",
    ),
    "type": (
        {f"{CHECK}.Type": "tcp"},
        f"FAIL the check {ASKS} is of type tcp, to which a culled app is well",
    ),
    "port of the app": (
        {f"{CHECK}.PortLabel": "app"},
        f"FAIL the check {ASKS} asks port app (8080), and the arbiter answers at 9181 (ARBITER_PUBLIC_LISTEN)",
    ),
    "unknown port": (
        {f"{CHECK}.PortLabel": "health"},
        f"FAIL the check {ASKS} asks port health, which is not in the network block",
    ),
    "TLS, http": (
        TLS,
        f"FAIL the check {ASKS} speaks http, and the arbiter https (ARBITER_TLS_LISTENERS): it fails always",
    ),
    "TLS, no name": (
        {**TLS, f"{CHECK}.Protocol": "https"},
        f"FAIL the check {ASKS} asks by address, which no certificate has: set tls_skip_verify or tls_server_name",
    ),
    # settings
    "misspelt": (env(DRIAN="10s"), "FAIL ARBITER_DRIAN: unknown setting; did you mean ARBITER_DRAIN?"),
    "misspelt in a template": (
        {f"{TEMPLATE}.EmbeddedTmpl": "ARBITER_REDIS={{ .url }}"},
        "FAIL ARBITER_REDIS: unknown setting; did you mean ARBITER_REDIS_URL?",
    ),
    "bad value": (
        env(GRACE="soon"),
        "FAIL ARBITER_GRACE: 'soon' from env is not a duration: write a number with ms, s, m, h or d, such as 10s,",
    ),
    "no grace": (env(GRACE=None), "warn no ARBITER_GRACE: an app that is slow to start is judged at once"),
    "contradiction": (env(TLS_CERT="/c"), "FAIL ARBITER_TLS_CERT: needs ARBITER_TLS_KEY, the other half of the pair"),
    "no Redis": ({f"{ARBITER}.Templates": None}, f"warn {ALONE[SHADOW]}"),
    "drain": (
        env(DRAIN="6s"),
        "warn ARBITER_DRAIN 6s: HAProxy may notice only after 6s, and then sends requests to an app that is being",
    ),
    "own port": (
        env(APP_PORT="${NOMAD_PORT_arbiter}"),
        "FAIL ARBITER_APP_PORT: 9181 is a port of the sidecar (ARBITER_PUBLIC_LISTEN=0.0.0.0:9181): name that of the",
    ),
    "secret in args": (
        {f"{ARBITER}.Config.args": ["--redis-url", "redis://:p@h"]},
        "FAIL a password stands in the args of arbiter: every user of the node can read it; use a template",
    ),
    "secret for all": (
        {f"{TEMPLATE}.DestPath": "local/arbiter.env"},
        "warn ARBITER_REDIS_URL is written to local/arbiter.env, which nomad alloc fs shows: write it below",
    ),
    "secret with #": (
        {f"{TEMPLATE}.EmbeddedTmpl": "ARBITER_REDIS_URL={{ .url.Value }}"},
        "warn ARBITER_REDIS_URL without | toJSON in a template: a # in the password ends the value",
    ),
    "secret": (
        env(REDIS_URL="redis://:p@h"),
        "warn ARBITER_REDIS_URL stands in env with a password: everybody who reads the job has it",
    ),
    # actions
    "action and check_restart": (
        env(ACTION="command", ACTION_COMMAND="/bin/restart-app"),
        "warn ARBITER_ACTION command, and check_restart of /health/nomad: a dead arbiter has the app restarted; leave",
    ),
    "exit": (
        {**env(ACTION="exit"), **NO_RESTART},
        "FAIL ARBITER_ACTION exit: Nomad restarts the arbiter alone, and the culled app goes on; set nomad-restart,",
    ),
    "action without token": (
        {**env(ACTION="nomad-stop"), **NO_CHECK},
        "FAIL ARBITER_ACTION nomad-stop needs the token of the task: write identity { file = true } into arbiter",
    ),
    "action for another task": (
        {**env(ACTION="nomad-restart", NOMAD_TASK="web"), **NO_CHECK},
        "FAIL ARBITER_NOMAD_TASK web is no task of the group",
    ),
    # network
    "agent": (
        {"Networks.0.DynamicPorts.2.To": 9183},
        "warn no port of the group leads to the agent-check at 9182 (ARBITER_AGENT_LISTEN): HAProxy gets no drain and",
    ),
    "agent tag": (
        {f"{APP}.Services.0.Tags": ["agent-port=${NOMAD_HOST_PORT_arbiter}"]},
        "FAIL the tag agent-port names port arbiter (9181), and the agent-check listens at 9182 (ARBITER_AGENT_LISTEN)",
    ),
    "agent tag inside": (
        {f"{APP}.Services.0.Tags": ["agent-port=${NOMAD_PORT_arbiter_agent}"]},
        "FAIL the tag agent-port has the port inside the allocation: write NOMAD_HOST_PORT_arbiter_agent",
    ),
    "page": (
        env(TOKEN_FILE="/secrets/token", PAGE_LISTEN="0.0.0.0:9183"),
        "warn no port of the group leads to the status page at 9183 (ARBITER_PAGE_LISTEN)",
    ),
    "public": (
        {"Networks.0.DynamicPorts.1.To": 9184},
        "warn no port of the group leads to the health answers at 9181 (ARBITER_PUBLIC_LISTEN): HAProxy and",
    ),
    "network none": (
        {"Networks.0.Mode": "none"},
        "FAIL network mode none without ARBITER_SOCKET: no port leads to the arbiter; set mode bridge",
    ),
    "no network": (
        {"Networks.0.Mode": ""},
        "FAIL no network mode: docker gives each task a network of its own, so the app does not reach the arbiter on",
    ),
    "host": (
        {"Networks.0.Mode": "host", **env(AGENT_LISTEN="0.0.0.0:${NOMAD_PORT_arbiter_agent}")},
        "warn network mode host: a second allocation on a node finds ARBITER_LOCAL_LISTEN (127.0.0.1:9180),",
    ),
    # tasks
    "restart mode": (
        {f"{ARBITER}.RestartPolicy": None},
        "FAIL restart mode fail of arbiter: a broken arbiter takes the app down",
    ),
    "attempts": (
        {f"{ARBITER}.RestartPolicy.Attempts": 29},
        f"{ATTEMPTS} restarts the app meanwhile; attempts x delay has to be interval",
    ),
    "attempts, action": (
        {f"{ARBITER}.RestartPolicy.Attempts": 29, **env(ACTION="exit")},
        f"{ATTEMPTS} nobody judges the app meanwhile; attempts x delay has to be interval",
    ),
    "attempts of the app": (
        {f"{APP}.RestartPolicy.Attempts": 3},
        f"warn restart attempts 3 of app: a culled app {IN_PLACE} is replaced; set attempts = 0",
    ),
    "attempts of the app that waits": (
        {f"{APP}.RestartPolicy": {"Attempts": 3, "Mode": "delay"}},
        f"warn restart attempts 3 of app: a culled app {IN_PLACE} waits for the rest of that time; set attempts = 0",
    ),
    "in place": (
        {f"{APP}.RestartPolicy": None, **env(APP_PORT=None)},
        "warn app is restarted in place: set ARBITER_APP_PORT, or it has to report its app_start, or stays culled",
    ),
    "shutdown_delay": (
        {f"{APP}.ShutdownDelay": 0},
        'warn shutdown_delay 0 s of app: at a planned stop requests still come when it has ended; set "10s"',
    ),
    "lifecycle": (
        {f"{ARBITER}.Lifecycle": None},
        "warn arbiter has no lifecycle with sidecar = true: it does not live and end with the app",
    ),
    "kill_timeout": (
        {f"{ARBITER}.KillTimeout": 5 * NS},
        "warn kill_timeout 5 s of arbiter is not above ARBITER_STOP_DRAIN 5 s",
    ),
    "kill_timeout, long": (
        {f"{ARBITER}.KillTimeout": 31 * NS},
        "warn kill_timeout 31 s of arbiter: Nomad's clients allow 30 s, unless their max_kill_timeout is longer",
    ),
    "memory": (
        {f"{ARBITER}.Resources.MemoryMB": 127},
        "warn memory 127 of arbiter: with less than 128 (MiB) the kernel may kill doctor, or the arbiter beside it",
    ),
    "memory_max": (
        {f"{ARBITER}.Resources.MemoryMaxMB": 256},
        "warn memory_max 256 of arbiter: Nomad ignores it where memory oversubscription is off, as by default; what",
    ),
    "latest": (
        {f"{ARBITER}.Config.image": "registry.example:5000/health-arbiter:latest"},
        f"warn image registry.example:5000/health-arbiter:latest {NO_TAG}",
    ),
    "no tag": (
        {f"{ARBITER}.Config.image": "registry.example:5000/health-arbiter"},
        f"warn image registry.example:5000/health-arbiter {NO_TAG}",
    ),
    "core files": (
        {f"{ARBITER}.Config.ulimit": None},
        'warn arbiter may write core files, in which its passwords and tokens are: write ulimit { core = "0" } into',
    ),
    "change_mode": (
        {f"{TEMPLATE}.ChangeMode": None},
        "warn change_mode restart of a template of arbiter: a new value restarts the arbiters of the whole fleet at",
    ),
    "reschedule limited": ({"ReschedulePolicy.Attempts": 3}, LIMITED),
    "no reschedule": ({"ReschedulePolicy.Unlimited": False}, LIMITED),
    "slow reschedule": (
        {"ReschedulePolicy.Delay": 300 * NS},
        "warn reschedule delay 300 s: so long no app replaces a failed one",
    ),
    "default reschedule": (
        {"ReschedulePolicy": None},
        "warn reschedule is exponential, as by default: each replacement waits longer, up to 1 h;",
    ),
}


def test_job_that_we_ship_says_how_long_a_cull_takes_and_nothing_else(tmp_path: Path) -> None:
    times = "30 to 36 s after the grant, and no sooner than 110 s after its start: a drain of 10 s and 5 polls of 5 s"
    assert found_in(tmp_path, job({})) == [f"ok a culled app is restarted {times}"]
    assert found_in(tmp_path, job({}, "app-task-api")) == [
        "ok ARBITER_ACTION nomad-stop replaces the allocation 10 s after the grant"
    ]


@pytest.mark.parametrize(("changes", "said"), TRAPS.values(), ids=TRAPS)
def test_trap_is_found_and_says_what_to_do(changes: Changes, said: str, tmp_path: Path) -> None:
    assert [found for found in found_in(tmp_path, job(changes)) if found.startswith(said)]


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ("arbiter", "restarts arbiter, the arbiter, not the app"),
        ("", "is one of the group: its check_restart restarts the arbiter too; put the service into the app's task"),
    ],
    ids=["task", "group"],
)
def test_check_of_another_task_is_found(task: str, said: str, tmp_path: Path) -> None:
    service = job({})["Job"]["TaskGroups"][0]["Tasks"][0]["Services"][1]
    moved = {f"{ARBITER}.Services" if task else "Services": [service], f"{APP}.Services": None}
    assert f"FAIL the check of /health/nomad {said}" in found_in(tmp_path, job(moved))


@pytest.mark.parametrize(
    "changes",
    [
        env(PUBLIC_ALLOW="10.0.0.5,${attr.unique.network.ip-address}"),
        {**env(SOCKET="${NOMAD_ALLOC_DIR}/tmp/arbiter.sock"), "Networks.0.Mode": ""},
        env(SERVICE="${meta.name}"),
        {**env(CONFIG="/local/arbiter.toml"), f"{ARBITER}.Templates": None},
        {**TLS, f"{CHECK}.Protocol": "https", f"{CHECK}.TLSSkipVerify": True},
        {
            "Networks.0.Mode": "host",
            "Networks.0.DynamicPorts": [{"Label": name} for name in ("app", "arbiter", "arbiter_agent", "local")],
            **env(
                PUBLIC_LISTEN="0.0.0.0:${NOMAD_PORT_arbiter}",
                AGENT_LISTEN="0.0.0.0:${NOMAD_PORT_arbiter_agent}",
                LOCAL_LISTEN="127.0.0.1:${NOMAD_PORT_local}",
            ),
        },
        {
            **env(ACTION="nomad-restart", NOMAD_TASK="app"),
            **NO_CHECK,
            **IDENTITY,
        },
        {**env(ACTION="command", ACTION_COMMAND="/only/there"), **NO_CHECK},
    ],
    ids=["allowed", "socket", "unknown", "file", "TLS", "host", "task API", "program of another machine"],
)
def test_what_nomad_fills_in_is_no_finding(changes: Changes, tmp_path: Path) -> None:
    assert [found for found in found_in(tmp_path, job(changes)) if not found.startswith("ok")] == []


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (
            {**env(ACTION="command", ACTION_COMMAND="'open"), **NO_CHECK},
            "ARBITER_ACTION_COMMAND: cannot be read: No closing quotation",
        ),
        (
            {**env(ACTION="nomad-restart"), **NO_CHECK, **IDENTITY, f"{APP}.KillTimeout": NS},
            "ARBITER_NOMAD_TASK: missing, though ARBITER_ACTION=nomad-restart",
        ),
        (
            env(SCRAPE_ERRORS="errors_total"),
            "ARBITER_SCRAPE_URL: missing, though there are selectors of what to count on the page",
        ),
    ],
    ids=["bad command", "no task", "no page"],
)
def test_problem_of_one_setting_hides_no_other_setting(changes: Changes, problem: str, tmp_path: Path) -> None:
    found = [said for said in found_in(tmp_path, job(changes)) if not said.startswith("ok")]
    assert found == [f"FAIL {problem}"]


def test_haproxy_that_hears_of_ended_allocations_late_is_found(tmp_path: Path) -> None:
    (found,) = found_in(tmp_path, job({}, "haproxy"))
    assert found == "ok group haproxy: the template local/haproxy.cfg follows Nomad in time"
    (found,) = found_in(tmp_path, job({f"{APP}.Templates.0.Wait": None}, "haproxy"))
    assert found == (
        "warn group haproxy: the template local/haproxy.cfg of haproxy waits 5 s or longer: HAProxy still sends "
        'requests to an allocation that has ended; write wait { min = "500ms", max = "2s" } into it'
    )


def test_job_without_an_arbiter_is_a_warning(tmp_path: Path) -> None:
    changes = {f"{APP}.Env.ARBITER_APP_START": "1", f"{ARBITER}.Name": "other", f"{ARBITER}.Env": {}}
    assert found_in(tmp_path, job(changes)) == [
        "warn no task of it runs a health-arbiter: none has ARBITER_* in its env"
    ]


def test_drain_is_compared_with_the_slowest_configuration_that_we_ship() -> None:
    assert max(notice_s(path.read_text()) for path in HAPROXY.glob("*.cfg")) == job_findings.HAPROXY_S


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({f"{APP}.Services": None, f"{APP}.ShutdownDelay": 0}, "shutdown_delay"),
        ({**env(ACTION="nomad-stop"), **NO_CHECK, **IDENTITY, f"{APP}.RestartPolicy.Attempts": 3}, "attempts 3"),
    ],
    ids=["nobody finds the app", "Nomad replaces what is culled"],
)
def test_what_does_no_harm_is_not_warned_of(changes: Changes, word: str, tmp_path: Path) -> None:
    assert [said for said in found_in(tmp_path, job(changes)) if word in said] == []
