"""The shipped jobs under a real Nomad, where one is on PATH, with the shipped times: this takes half an hour.

``-s`` shows the seconds of each story. test_nomad_stories.py has such stories with a stand-in, everywhere.
"""

from __future__ import annotations

import json
import signal
import socket
from contextlib import closing
from http.client import HTTPResponse
from typing import TYPE_CHECKING

import pytest

from deploy.nomad_site import FILES, Clock, NomadSite
from deploy.nomad_stand_in import TOKEN, TaskApi
from deploy.nomad_story import CHECK, RESTART, RESTORED_S, STOP, see_a_cull

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = [pytest.mark.site, pytest.mark.timeout(900), pytest.mark.redis, pytest.mark.haproxy]

# -- the files --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FILES)
def test_shipped_job_is_valid_and_only_its_driver_is_missing(site: NomadSite, name: str) -> None:
    words = ("-var", "app_image=shop:42", str(FILES[name]))
    assert "Job validation successful" in site.nomad.run("job", "validate", *words)
    plan = site.nomad.run("job", "plan", *words, code=1)
    assert "(3 create)" in plan
    assert 'Constraint "missing drivers": 1 nodes excluded' in plan
    assert plan.count("WARNING") == 1


# -- the check --------------------------------------------------------------------------------------------------------


def test_check_has_a_sick_app_replaced(site: NomadSite, clock: Clock) -> None:
    see_a_cull(site, clock, CHECK, within_s=2 * RESTORED_S)


# -- the task API -----------------------------------------------------------------------------------------------------


def test_task_api_has_a_sick_app_restarted_in_place(site: NomadSite, clock: Clock) -> None:
    see_a_cull(site, clock, RESTART, within_s=RESTORED_S)


def test_task_api_has_the_allocation_of_a_sick_app_replaced(site: NomadSite, clock: Clock) -> None:
    see_a_cull(site, clock, STOP, within_s=RESTORED_S)


def test_killed_or_stopped_arbiter_leaves_the_app_alone(site: NomadSite, clock: Clock) -> None:
    killed, stopped, _ = site.deploy(STOP)
    before = {one.id: site.app_pid(one) for one in site.nomad.running()}
    clock.restart()
    site.signal_arbiter(killed, signal.SIGKILL)
    site.signal_arbiter(stopped, signal.SIGSTOP)
    clock.until(lambda: site.now(killed).restarts["arbiter"] == 1 and site.is_up_for_nomad(killed), "one is back")
    clock.until(lambda: clock.seconds > 60, "the other was stopped for 60 s")
    site.signal_arbiter(stopped, signal.SIGCONT)
    clock.until(lambda: site.is_up(stopped), "it answers")
    assert {one.id: site.app_pid(one) for one in site.nomad.running()} == before


def test_stand_in_answers_what_the_task_api_answers(site: NomadSite, run_dir: Path) -> None:
    one = site.deploy(STOP)[0]
    real, unknown = site.nomad.secrets(one.id, "arbiter"), "5cfd2a7c-0a1b-4a0e-9a9d-3f7d8c1f9c11"
    restart, stop = f"/v1/client/allocation/{one.id}/restart", f"/v1/allocation/{one.id}/stop"
    tokens = {run_dir: TOKEN, real: (real / "nomad_token").read_text()}

    def answers(secrets: Path, token: str, *paths: str) -> list[tuple[int, str]]:
        return [ask(secrets, path, token, {"TaskName": "app"}) for path in paths]

    with TaskApi(run_dir, one.id, lambda _: None, lambda: None):
        refused = {
            secrets: [
                *answers(secrets, "", restart),
                *answers(secrets, "no", restart),
                *answers(secrets, token, restart.replace(one.id, unknown), stop.replace(one.id, unknown), f"{stop}s"),
            ]
            for secrets, token in tokens.items()
        }
        assert refused[run_dir] == refused[real]
        done = {secrets: answers(secrets, token, restart, stop) for secrets, token in tokens.items()}
        assert _keys(done[run_dir]) == _keys(done[real])


def ask(secrets: Path, path: str, token: str, body: object) -> tuple[int, str]:
    """Status and body of a POST to the task API in ``secrets``, the real one or the stand-in."""
    content = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: nomad\r\nConnection: close\r\nContent-Length: {len(content)}\r\n"
    head += f"X-Nomad-Token: {token}\r\n\r\n" if token else "\r\n"
    with closing(socket.socket(socket.AF_UNIX)) as connection:
        connection.settimeout(60)
        connection.connect(str(secrets / "api.sock"))
        connection.sendall(head.encode() + content)
        response = HTTPResponse(connection)
        response.begin()
        return response.status, response.read().decode()


def _keys(answers: list[tuple[int, str]]) -> list[tuple[int, set[str]]]:
    return [(status, set(json.loads(text))) for status, text in answers]
