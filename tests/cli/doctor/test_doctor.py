"""The doctor before real servers and beside real sidecars, with something wrong with them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.cluster import Cluster
from harness.command import Done, command
from harness.ports import free_port
from harness.sidecar import Setting
from harness.sidecar_thread import SidecarThread
from harness.waiting import wait_for
from sidecar.config.settings import WITHOUT_REDIS

if TYPE_CHECKING:
    from cli.conftest import StartThread
    from harness.children import StartRedis
    from harness.redis_server import RedisServer

SECRET = "hunter2"  # not one: the string to look for
ACL = Path(__file__).parents[3] / "deploy" / "redis" / "users.acl"
JOB = Path(__file__).parent / "jobs" / "app.json"
ROOT = Path(__file__).parents[3]


WITH_PEAK = """
import sys
from pathlib import Path
from sidecar.cli.main import main
code = main(sys.argv[1:])
# Not the maximum of getrusage: that counts the process that has started this one, too (getrusage(2)).
sys.stderr.write(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
sys.exit(code)
"""
"""Runs a command, and prints its maximum resident memory in KiB."""


def _doctor(sidecar: SidecarThread, **environ: str) -> Done:
    done = command(sidecar, "doctor", **environ)
    assert SECRET not in done.out + done.err
    assert done.err == ""
    found = levels(done)
    assert done.code == (1 if "FAIL" in found.values() else 69 if "no_sidecar" in found else 0)
    return done


def levels(done: Done) -> dict[str, str]:
    """What was looked at, and how bad it is; with several servers the worst."""
    worst: dict[str, str] = {}
    for line in done.out.splitlines():
        level, what = line.split()[:2]
        worst[what.rstrip(":")] = max(level, worst.get(what.rstrip(":"), level), key=["ok", "warn", "FAIL"].index)
    return worst


def _alone(directory: Path, url: str, redis_timeout: str = "10s") -> SidecarThread:
    """One that does not run: all that the doctor has is its settings."""
    return SidecarThread(directory, redis_url=url, redis_timeout=redis_timeout)


def _seen(sidecar: SidecarThread, count: int) -> bool:
    return len(sidecar.request("local", "GET", "/fleet").json()["members"]) == count


def test_shared_server_with_a_fleet_on_it_is_well(start_thread: StartThread, start_redis: StartRedis) -> None:
    server = start_redis("redis", "--appendonly", "yes", "--maxmemory-policy", "noeviction", password=SECRET)
    server.cli("ACL", "SETUSER", "app", "on", f">{SECRET}", "~{ha:default/app}:*", "+@all")
    url = server.url.replace("redis://:", "redis://app:")
    sidecar, _ = (start_thread(name, redis_url=url) for name in ("a", "b"))
    wait_for(lambda: _seen(sidecar, 2), timeout_s=60, what="both are seen")
    done = _doctor(sidecar)
    assert done.code == 0
    assert set(levels(done).values()) == {"ok"}
    assert done.out.startswith(f"ok   reachable: redis://app:***@127.0.0.1:{server.port}/0 answers\n")
    assert "ok   shared: 1 other instance is seen, and this one\n" in done.out
    assert "ok   write: a key of the service was written and removed again\n" in done.out
    assert f"ok   public: {sidecar.settings['public_listen']}: /livez is 200\n" in done.out
    assert done.out.splitlines()[-1].startswith("ok   files: ")


def test_limit_within_the_usual_errors_of_the_fleet_is_warned_of(
    start_thread: StartThread, redis_server: RedisServer
) -> None:
    settings: dict[str, Setting] = {"redis_url": redis_server.url, "beat_interval": "500ms", "outlier": "off"}
    fleet = [start_thread(name, **settings) for name in ("a", "b", "c")]
    for sidecar in fleet:
        sidecar.post_error(count=3)
    wait_for(lambda: _usual(fleet[0]) >= 3, timeout_s=60, what="the fleet's median is known")
    said = "3 errors a minute when well; a limit of 5 culls for noise: noise reaches it in 18 % of all windows"
    assert f"warn limit: your containers have {said}" in _doctor(fleet[0]).out


def _usual(sidecar: SidecarThread) -> float:
    return float(sidecar.request("local", "GET", "/why").json()["window"]["usual"])


@pytest.mark.parametrize(
    ("breaks", "said"),
    [("stopped", "Redis cannot be reached"), ("hung", "Redis did not answer in time"), ("wrong password", "refused")],
)
def test_server_that_does_not_answer_is_a_failure(
    run_dir: Path, redis_server: RedisServer, breaks: str, said: str
) -> None:
    url = redis_server.url
    if breaks == "stopped":
        redis_server.kill()
    elif breaks == "hung":
        redis_server.pause()
    else:
        url = url.replace("redis://", f"redis://:{SECRET}@")
    done = _doctor(_alone(run_dir, url, "500ms" if breaks == "hung" else "10s"))
    assert levels(done) == {"reachable": "FAIL", "no_sidecar": "warn", "files": "ok"}
    assert said in done.out.splitlines()[0]


@pytest.mark.parametrize(
    ("rights", "said"),
    [
        (ACL.read_text().split()[2:], "ok ok warn ok"),
        ([*ACL.read_text().split()[2:], "resetkeys", "~{ha:default/app}:*"], "ok ok ok ok"),
        (["on", "~*", "+ping", "+info", "+time"], "ok FAIL None FAIL"),
    ],
    ids=["that we ship", "for one service", "without scripts"],
)
def test_user_is_told_what_it_lacks(run_dir: Path, redis_server: RedisServer, rights: list[str], said: str) -> None:
    redis_server.cli("ACL", "SETUSER", "arbiter", *rights, f">{SECRET}")
    done = _doctor(_alone(run_dir, redis_server.url.replace("redis://", f"redis://arbiter:{SECRET}@")))
    assert [str(levels(done).get(what)) for what in ("role", "write", "user", "scripts")] == said.split()
    assert ("nothing can be written" in done.out) == ("FAIL" in said)


def test_clock_that_is_far_off_is_warned_of(run_dir: Path, faketime_redis: RedisServer) -> None:
    assert levels(_doctor(_alone(run_dir, faketime_redis.url)))["clock"] == "warn"


def test_owner_of_the_keys_is_found_in_a_cluster(run_dir: Path, start_redis: StartRedis) -> None:
    cluster = Cluster(start_redis)
    strangers = cluster.strangers_to("{ha:default/app}:grants")
    for node in strangers:
        node.cli("CONFIG", "SET", "appendonly", "yes")
    by_cluster = levels(_doctor(_alone(run_dir, cluster.url_of(*strangers))))
    assert (by_cluster["role"], by_cluster["persistence"], by_cluster["scripts"]) == ("ok", "warn", "ok")
    assert "cluster" not in by_cluster
    by_node = levels(_doctor(_alone(run_dir, strangers[0].url)))
    assert (by_node["cluster"], by_node["persistence"], by_node["scripts"]) == ("warn", "ok", "FAIL")


def test_sidecar_that_runs_with_other_settings_is_noticed(start_thread: StartThread, redis_server: RedisServer) -> None:
    sidecar = start_thread()
    other = {"NAMESPACE": "x", "SERVICE": "other", "MODE": "shadow", "REDIS_URL": redis_server.url}
    out = _doctor(sidecar, **{f"ARBITER_{name}": value for name, value in other.items()}).out
    there = {"NAMESPACE": "default", "SERVICE": "app", "MODE": "enforce", "REDIS_URL": "in this process"}
    named = ", ".join(f"ARBITER_{name} (there {there[name]}, here {value})" for name, value in other.items())
    assert f"warn sidecar: the one that answers runs with other settings: {named}\n" in out
    assert redis_server.cli("KEYS", "*") == [], "it leaves nothing behind"


def test_findings_are_printed_as_json(start_thread: StartThread) -> None:
    done = command(start_thread(), "doctor", "--json")
    printed = json.loads(done.out)
    assert (done.code, printed["failed"]) == (0, False)
    assert printed["findings"][0] == {"level": "warn", "what": "store", "sentence": WITHOUT_REDIS["enforce"]}
    assert [each["what"] for each in printed["findings"]] == ["store", "sidecar", "public", "files"]


def test_listener_without_an_answer_is_a_failure_and_what_the_sidecar_misses_is_told(start_thread: StartThread) -> None:
    sidecar = start_thread(action="nomad-stop")
    wait_for(lambda: sidecar.request("local", "GET", "/why").json()["warnings"], timeout_s=60, what="it looked")
    at = f"127.0.0.1:{free_port()}"
    done = _doctor(sidecar, ARBITER_PUBLIC_LISTEN=at)
    assert "warn sidecar: ARBITER_ACTION nomad-stop: NOMAD_SECRETS_DIR and NOMAD_ALLOC_ID not set" in done.out
    assert f"FAIL public: nothing answers at {at}: connection refused\n" in done.out


def test_job_file_is_looked_at_too(start_thread: StartThread, run_dir: Path) -> None:
    sidecar = start_thread()
    good = command(sidecar, "doctor", "--job", str(JOB))
    assert good.code == 0
    assert "ok   job: group web: a culled app is restarted 30 to 36 s after the grant" in good.out
    (run_dir / "bad.nomad").write_text(JOB.read_text().replace("/health/nomad", "/health"))
    bad = command(sidecar, "doctor", "--json", "--job", str(run_dir / "bad.nomad"))
    assert bad.code == 1
    assert any("it has to ask /health/nomad" in each["sentence"] for each in json.loads(bad.out)["findings"])
    assert "no_sidecar" in levels(command(_alone(run_dir, ""), "doctor", "--job", str(JOB)))
    assert command(_alone(run_dir, ""), "doctor", "--job", str(JOB)).code == 0, "none is needed for a job"
    scraped = command(sidecar, "doctor", "--scrape", f"http://127.0.0.1:{free_port()}/metrics")
    assert (scraped.code, "FAIL scrape: the metrics page cannot be read: connection" in scraped.out) == (1, True)
    none = command(sidecar, "doctor", "--job", str(run_dir / "none"))
    assert none == (2, "", f"health-arbiter: --job: {run_dir / 'none'} cannot be read: no such file or directory\n")


def test_job_file_alone_is_looked_at_on_a_machine_without_settings() -> None:
    doctor = [sys.executable, "-m", "sidecar", "doctor", "--job", str(JOB)]
    done = subprocess.run(doctor, cwd=ROOT, env={}, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, {line.split()[1] for line in done.stdout.splitlines()}) == (0, {"job:"})


def test_doctor_fits_beside_the_daemon_into_the_memory_of_the_job(
    start_thread: StartThread, redis_server: RedisServer
) -> None:
    sidecar = start_thread(redis_url=redis_server.url)
    doctor = [sys.executable, "-c", WITH_PEAK, "doctor", "--job", str(JOB)]
    done = subprocess.run(doctor, env=sidecar._env(), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout
    assert "ok   job: group web" in done.stdout
    assert int(done.stderr) < 60 * 1024  # 47 MiB; the daemon has 45, and the job 128
