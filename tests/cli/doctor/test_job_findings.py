"""Every trap of a job by itself, in a job that is right but for that; and files that are no job."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any, Final

import pytest

from sidecar.cli.doctor import job as jobs
from sidecar.cli.doctor import job_findings
from sidecar.cli.doctor.job import JobError
from sidecar.config.settings import SHADOW, WITHOUT_REDIS

JOBS: Final = Path(__file__).parent / "jobs"
NS: Final = jobs.NS_PER_S

Changes = dict[str, Any]
"""Where in the group -> the value there; None: as if it were left out."""

APP, ARBITER = "Tasks.0", "Tasks.1"
CHECK = f"{APP}.Services.1.Checks.0"
NO_CHECK: Changes = {f"{APP}.Services.1.Checks": None}
NO_RESTART: Changes = {f"{CHECK}.CheckRestart": None}
TEMPLATE = f"{ARBITER}.Templates.0"
IDENTITY: Changes = {f"{ARBITER}.Identity": None, f"{ARBITER}.Identities": [{"Name": "default", "File": True}]}
ALWAYS: Final = {"Attempts": 30, "Delay": 2 * NS, "Mode": "delay", "Interval": 60 * NS}


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
    found = list(job_findings.of_job(jobs.read(str(tmp_path / "job.json"))))
    assert {each.what for each in found} <= {"job"}
    return [f"{each.level} {each.sentence.removeprefix('group web: ')}" for each in found]


def env(**settings: str | None) -> Changes:
    return {f"{ARBITER}.Env.ARBITER_{name}": value for name, value in settings.items()}


TLS: Final = env(TLS_CERT="/c", TLS_KEY="/k", TLS_LISTENERS="public")
RESTARTS: Final = env(ACTION="nomad-restart", NOMAD_TASK="app")
SERVICE: Final = json.loads((JOBS / "app.json").read_text())["Job"]["TaskGroups"][0]["Tasks"][0]["Services"][1]
ASKS = "the check of /health/nomad"
SLOW = "warn reschedule is slow or limited"

TRAPS: Final[dict[str, tuple[Changes, str]]] = {
    # the check
    "no check": (NO_CHECK, "FAIL no check asks /health/nomad: Nomad never restarts a culled app"),
    "no check_restart": (NO_RESTART, f"FAIL {ASKS} has no check_restart: it restarts nothing"),
    "grace": ({f"{CHECK}.CheckRestart.Grace": 59 * NS}, "warn check_restart grace 59 s: pulling"),
    "path": ({f"{CHECK}.Path": "/health"}, "FAIL the check of /health fails as the drain begins: it has to ask"),
    "impatient": (
        {f"{CHECK}.CheckRestart.Limit": 3},
        "warn 10 s of failures restart the app, and a restarted arbiter is away for 14.5 s: shorten its restart delay,",
    ),
    "restart by a check of the app": (
        {f"{APP}.Services.0.Checks.0.CheckRestart": {"Limit": 3}},
        "warn the check of port app has a check_restart, which does not ask the fleet",
    ),
    "port of the app": ({f"{CHECK}.PortLabel": "app"}, f"FAIL {ASKS} asks port app, and not 9181"),
    "check of the arbiter's task": (
        {f"{ARBITER}.Services": [SERVICE], f"{APP}.Services": None},
        f"FAIL {ASKS} restarts the arbiter: put its service into the app's task",
    ),
    "check of the group": (
        {"Services": [SERVICE], f"{APP}.Services": None},
        f"FAIL {ASKS} restarts the arbiter: put its service into the app's task",
    ),
    "TLS, http": (TLS, f"FAIL {ASKS} fails always: TLS needs protocol https"),
    "TLS, no name": ({**TLS, f"{CHECK}.Protocol": "https"}, f"FAIL {ASKS} fails always"),
    # settings
    "misspelt": (env(DRIAN="10s"), "FAIL ARBITER_DRIAN: unknown setting; did you mean ARBITER_DRAIN?"),
    "misspelt in a template": (
        {f"{TEMPLATE}.EmbeddedTmpl": "ARBITER_REDIS={{ .url }}"},
        "FAIL ARBITER_REDIS: unknown setting; did you mean ARBITER_REDIS_URL?",
    ),
    "contradiction": (
        env(SCRAPE_ERRORS="errors_total"),
        "FAIL ARBITER_SCRAPE_URL: missing, though there are selectors",
    ),
    "own port": (env(APP_PORT="${NOMAD_PORT_arbiter}"), "FAIL ARBITER_APP_PORT: 9181 is a port of the sidecar"),
    "no Redis": ({f"{ARBITER}.Templates": None}, f"warn {WITHOUT_REDIS[SHADOW]}"),
    # actions
    "action and check_restart": (
        env(ACTION="command", ACTION_COMMAND="/only/there"),
        "warn ARBITER_ACTION command with a check_restart of /health: leave one of the two out",
    ),
    "exit": ({**env(ACTION="exit"), **NO_RESTART}, "FAIL ARBITER_ACTION exit restarts the arbiter alone"),
    "action without token": (
        {**env(ACTION="nomad-stop"), **NO_CHECK},
        "FAIL ARBITER_ACTION nomad-stop needs identity { file = true } in arbiter",
    ),
    "token of another identity": (
        {**env(ACTION="nomad-stop"), **NO_CHECK, f"{ARBITER}.Identities": [{"Name": "vault", "File": True}]},
        "FAIL ARBITER_ACTION nomad-stop needs identity { file = true } in arbiter",
    ),
    "action for another task": (
        {**RESTARTS, **env(NOMAD_TASK="web"), **NO_CHECK},
        "FAIL ARBITER_NOMAD_TASK web is no task of the group",
    ),
    # network
    "agent": ({"Networks.0.DynamicPorts.2.To": 9183}, "warn no port of the group leads to the agent-check at 9182"),
    "public": ({"Networks.0.DynamicPorts.1.To": 9184}, "warn no port of the group leads to the health answers at 9181"),
    "agent tag": (
        {f"{APP}.Services.0.Tags": ["agent-port=${NOMAD_HOST_PORT_arbiter}"]},
        "FAIL the tag agent-port names port arbiter, and not that of ARBITER_AGENT_LISTEN",
    ),
    "agent tag inside": (
        {f"{APP}.Services.0.Tags": ["agent-port=${NOMAD_PORT_arbiter_agent}"]},
        "FAIL the tag agent-port has the port inside the allocation: write NOMAD_HOST_PORT_arbiter_agent",
    ),
    "no localhost": ({"Networks.0.Mode": ""}, "FAIL the tasks share no localhost: set network mode bridge"),
    # tasks
    "restart mode": ({f"{ARBITER}.RestartPolicy": None}, "FAIL restart mode fail of arbiter"),
    "attempts": ({f"{ARBITER}.RestartPolicy.Attempts": 29}, "warn restart of arbiter: after 29 restarts it stays away"),
    "lifecycle": ({f"{ARBITER}.Lifecycle": None}, "warn arbiter has no lifecycle with sidecar = true"),
    "memory": ({f"{ARBITER}.Resources.MemoryMB": 127}, "warn memory 127 of arbiter: below 128"),
    "secret in args": ({f"{ARBITER}.Config.args": ["--redis-url", "redis://:p@h"]}, "FAIL a password stands in"),
    "secret in a command of words": ({f"{ARBITER}.Config.command": ["x", "redis://:p@h"]}, "FAIL a password stands in"),
    "secret in env": (env(REDIS_URL="redis://:p@h"), "FAIL a password stands in the args or the env of arbiter"),
    "change_mode": ({f"{TEMPLATE}.ChangeMode": None}, "warn change_mode restart of a template of arbiter restarts"),
    "reschedule limited": ({"ReschedulePolicy.Attempts": 3}, SLOW),
    "no reschedule": ({"ReschedulePolicy.Unlimited": False}, SLOW),
    "slow reschedule": ({"ReschedulePolicy.Delay": 300 * NS}, SLOW),
    "default reschedule": ({"ReschedulePolicy": None}, SLOW),
    "in place": ({f"{APP}.RestartPolicy": None, **env(APP_PORT=None)}, "warn app is restarted in place: without"),
}


def test_job_that_we_ship_says_how_long_a_cull_takes_and_nothing_else(tmp_path: Path) -> None:
    times = "30 to 36 s after the grant, and no sooner than 110 s after its start: a drain of 10 s and 5 polls"
    assert found_in(tmp_path, job({})) == [f"ok a culled app is restarted {times}"]
    assert found_in(tmp_path, job({}, "app-task-api")) == [
        "ok ARBITER_ACTION nomad-stop is carried out 10 s after the grant"
    ]


@pytest.mark.parametrize(("changes", "said"), TRAPS.values(), ids=TRAPS)
def test_trap_is_found_and_says_what_to_do(changes: Changes, said: str, tmp_path: Path) -> None:
    assert [found for found in found_in(tmp_path, job(changes)) if found.startswith(said)]


@pytest.mark.parametrize(
    "changes",
    [
        env(PUBLIC_ALLOW="10.0.0.5,${attr.unique.network.ip-address}"),
        env(TOKEN_FILE="/secrets/token", PAGE_LISTEN="0.0.0.0:9183"),
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
        {**RESTARTS, **NO_CHECK, **IDENTITY},
        {**env(ACTION="command", ACTION_COMMAND="/only/there"), **NO_CHECK},
        env(PUBLIC_LISTEN="0.0.0.0:${NOMAD_PORT_elsewhere}"),
    ],
    ids=["allowed", "page", "socket", "unknown", "file", "TLS", "host", "task API", "program", "unknown port"],
)
def test_what_nomad_fills_in_is_no_finding(changes: Changes, tmp_path: Path) -> None:
    assert [found for found in found_in(tmp_path, job(changes)) if not found.startswith("ok")] == []


def test_job_without_an_arbiter_is_a_warning(tmp_path: Path) -> None:
    changes = {f"{APP}.Env.ARBITER_APP_START": "1", f"{ARBITER}.Name": "other", f"{ARBITER}.Env": {}}
    assert found_in(tmp_path, job(changes)) == [
        "warn no task of it runs a health-arbiter: none has ARBITER_* in its env"
    ]


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({f"{ARBITER}.RestartPolicy": None, "RestartPolicy": ALWAYS}, "restart mode"),
        (
            {**env(PUBLIC_LISTEN="0.0.0.0:7"), "Networks.0.ReservedPorts": [{"Label": "a", "Value": 7, "To": 0}]},
            "no port",
        ),
        ({**env(PUBLIC_LISTEN="0.0.0.0:9181"), f"{CHECK}.PortLabel": "9181"}, "asks port"),
        ({f"{CHECK}.CheckRestart.Limit": 4}, "is away"),
    ],
    ids=["restart of the group", "reserved port", "port by number", "patient"],
)
def test_what_does_no_harm_is_not_warned_of(changes: Changes, word: str, tmp_path: Path) -> None:
    assert [said for said in found_in(tmp_path, job(changes)) if word in said] == []


GROUP: dict[str, Any] = {"Name": "web", "Tasks": [{"Name": "arbiter", "Env": None, "Services": None}], "Networks": None}


def test_what_a_job_leaves_out_is_the_default_of_nomad(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps({"TaskGroups": [GROUP]})))
    said = [each.sentence for each in job_findings.of_job(jobs.read("-"))]
    for default in ("restart mode fail of arbiter", "reschedule is slow or limited"):
        assert [sentence for sentence in said if default in sentence]


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "{}", "[" * 100_000, '{"Job": []}', 'job "app" {\n}', "\ufffd"),
        json.dumps({"TaskGroups": [{**GROUP, "Tasks": 5}]}),
        json.dumps({"TaskGroups": [{**GROUP, "Tasks": ["a"]}]}),
        json.dumps({"TaskGroups": [{**GROUP, "RestartPolicy": {"Delay": "soon"}}]}),
    ],
    ids=lambda text: text[-20:],
)
def test_file_without_a_job_is_a_sentence_with_what_to_give(tmp_path: Path, text: str) -> None:
    (tmp_path / "job").write_text(text)
    with pytest.raises(JobError, match="--job: is not a job of Nomad in JSON: give the output of nomad job run"):
        list(job_findings.of_job(jobs.read(str(tmp_path / "job"))))


def test_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="cannot be read: no such file"):
        jobs.read(str(tmp_path / "none"))
