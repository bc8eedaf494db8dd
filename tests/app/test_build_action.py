"""From the configuration to the action: which one it is, what it lacks, and who is told of its result."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from sidecar.actions.actuator import ActionError, ActionResult
from sidecar.actions.nomad import TaskApi, missing
from sidecar.app import build_action
from sidecar.config.settings import ActionConfig, Config, IdentityConfig
from sidecar.core.types import Entry
from sidecar.telemetry import Observers
from sidecar.telemetry.metrics import Metrics

NOMAD = {"NOMAD_SECRETS_DIR": "/secrets", "NOMAD_ALLOC_ID": "alloc-1"}


def _action(environ: dict[str, str], **settings: Any) -> Any:
    return build_action.action(ActionConfig(**settings), lambda: None, environ=environ, facts={})


def test_nomad_restarts_the_task_of_the_settings_and_stops_this_allocation() -> None:
    restart = _action(NOMAD, action="nomad-restart", nomad_task="web")
    stop = _action(NOMAD, action="nomad-stop")
    assert (restart.func.__name__, restart.args, stop.__name__) == ("restart_task", ("web",), "stop_allocation")
    apis = [restart.func.__self__, stop.__self__]
    assert apis == [TaskApi("/secrets/api.sock", "/secrets/nomad_token", "alloc-1")] * 2


@pytest.mark.parametrize(
    ("environ", "unset"),
    [
        ({}, "NOMAD_SECRETS_DIR and NOMAD_ALLOC_ID not set"),
        ({"NOMAD_ALLOC_ID": "a"}, "NOMAD_SECRETS_DIR not set"),
        ({"NOMAD_SECRETS_DIR": "/secrets", "NOMAD_ALLOC_ID": ""}, "NOMAD_ALLOC_ID not set"),
    ],
    ids=["both", "secrets", "allocation"],
)
async def test_outside_of_nomad_the_action_fails_and_is_told_beforehand(environ: dict[str, str], unset: str) -> None:
    with pytest.raises(ActionError, match=unset):
        await _action(environ, action="nomad-stop")()
    assert missing("nomad-stop", environ) == [f"ARBITER_ACTION nomad-stop: {unset}: this is no allocation of Nomad"]


def test_files_that_nomad_did_not_make_are_named(tmp_path: Path) -> None:
    environ = {"NOMAD_SECRETS_DIR": str(tmp_path), "NOMAD_ALLOC_ID": "a"}
    api, token = missing("nomad-restart", environ)
    assert "the task API is missing" in api
    assert "the token of the task is missing" in token
    for name in ("api.sock", "nomad_token"):
        (tmp_path / name).touch()
    assert missing("nomad-restart", environ) == []


@pytest.mark.parametrize(("action", "environ", "count"), [("exit", NOMAD, 1), ("exit", {}, 0), ("command", NOMAD, 0)])
def test_exit_is_no_action_for_an_allocation_of_nomad(action: str, environ: dict[str, str], count: int) -> None:
    assert len(missing(action, environ)) == count


@pytest.mark.parametrize("failed", [False, True], ids=["done", "failed"])
def test_result_is_a_metric_a_line_and_an_entry(caplog: pytest.LogCaptureFixture, *, failed: bool) -> None:
    caplog.set_level(logging.WARNING)
    metrics, observers, entries = Metrics("enforce", 5, 10), Observers(), list[Entry]()
    observers.actions.append(entries.append)
    config = Config(IdentityConfig(instance="a"), action=ActionConfig(action="command", action_command="true"))
    built = build_action.actuator(config, metrics.registry, observers, lambda: None)
    assert built is not None
    built._on_result(ActionResult("command", 1000.0, 1.23456, "restarted", failed=failed))
    word, other = ("failed", "done") if failed else ("done", "failed")
    page = metrics.page()[0].decode()
    assert f'arbiter_actions_total{{action="command",outcome="{word}"}} 1.0\n' in page
    assert f'arbiter_actions_total{{action="command",outcome="{other}"}} 0.0\n' in page
    what, text = ("action_failed", "the action has failed") if failed else ("acted", "the action is done")
    assert entries == [Entry(what, 1000.0, "a", reason="command", seconds=1.235, detail="restarted")]
    (line,) = caplog.records
    assert (line.message, line.levelname) == (text, "ERROR" if failed else "WARNING")
    assert line.__dict__["fields"] == {"action": "command", "detail": "restarted", "took_s": 1.235}
    assert built._asked is None
