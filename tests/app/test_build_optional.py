"""The parts that few sidecars have, from their settings: what they act on, and who is told of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from harness import receiver as listening
from harness.waiting import wait_for
from sidecar.actions.actuator import ActionError, ActionResult
from sidecar.actions.nomad import TaskApi, missing
from sidecar.app import build_optional
from sidecar.config.load import load
from sidecar.config.settings import ActionConfig, AppConfig, Config, IdentityConfig, JudgingConfig
from sidecar.core.app_reports import ErrorLevel, Missed, Report, Sample
from sidecar.core.explain.samples import ErrorSample
from sidecar.core.types import Entry
from sidecar.notify.messenger import Delivery
from sidecar.telemetry import Observers
from sidecar.telemetry.log import Log
from sidecar.telemetry.metrics import Metrics

NOMAD = {"NOMAD_SECRETS_DIR": "/secrets", "NOMAD_ALLOC_ID": "alloc-1"}
SCRAPING = AppConfig(scrape_url="http://127.0.0.1:9/m", scrape_errors="errors_total")
SAMPLE = Sample({"web": 3}, requests=9, in_flight=2)


@pytest.fixture
def metrics() -> Metrics:
    return Metrics("enforce", 5, 10)


# -- the action -------------------------------------------------------------------------------------------------------


def _action(environ: dict[str, str], **settings: Any) -> Any:
    return build_optional.action(ActionConfig(**settings), lambda: None, environ, {})


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
def test_result_is_a_metric_a_line_and_an_entry(
    metrics: Metrics, caplog: pytest.LogCaptureFixture, *, failed: bool
) -> None:
    caplog.set_level(logging.WARNING)
    observers, entries = Observers(), list[Entry]()
    observers.actions.append(entries.append)
    config = Config(IdentityConfig(instance="a"), action=ActionConfig(action="command", action_command="true"))
    built = build_optional.actuator(config, metrics, observers, lambda: None)
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


# -- the scraper ------------------------------------------------------------------------------------------------------


def _passed_on(config: Config, *scraped: Sample | Missed) -> tuple[list[Report], list[Sample | Missed]]:
    """What the controller and the observers get."""
    offered: list[Report] = []
    observed: list[Sample | Missed] = []

    def offer(reports: Sequence[Report]) -> bool:
        offered.extend(reports)
        return True

    observers = Observers()
    observers.scrapes.append(observed.append)
    built = build_optional.scraper(config, offer, observers)
    for each in scraped:
        built._take(each)
    return offered, observed


def test_observers_get_every_scrape_and_the_controller_every_sample() -> None:
    missed = Missed("timeout")
    assert _passed_on(Config(app=SCRAPING), missed, SAMPLE) == ([SAMPLE], [missed, SAMPLE])


def test_counts_since_a_scrape_that_is_older_than_the_window_are_left_out() -> None:
    config = Config(app=SCRAPING, judging=JudgingConfig(error_window=0))
    assert _passed_on(config, SAMPLE) == ([Sample({}, requests=0, in_flight=2)], [SAMPLE])


# -- the messages -----------------------------------------------------------------------------------------------------


def settings(**given: object) -> Config:
    return load({}, {f"ARBITER_{name.upper()}": str(value) for name, value in given.items()})


async def test_result_of_an_action_and_a_sample_have_no_secrets(tmp_path: Path, metrics: Metrics) -> None:
    """The sidecar of the container sends, without any claim, by the samples of its own app."""
    with listening.webhook() as hook:
        (tmp_path / "template").write_text('{"text": "$sentence", "sample": "$sample"}')
        observers = Observers()
        records: Any = NoMembers()
        samples = [
            ErrorSample("f", "redis", ErrorLevel.SERVER_ERROR, 3, 0.0, 2.0, "token=hunter2 refused"),
            ErrorSample("g", "", ErrorLevel.SERVER_ERROR, 2, 0.0, 1.0, "password=hunter2 of 10.1.2.3"),
        ]
        config = settings(webhook_url=hook.url, webhook_template=tmp_path / "template")
        built = build_optional.messenger(config, records, metrics, observers, Log(), samples=lambda: samples)
        observers.acted(Entry("action_failed", 1.0, detail=f"exit code 1: {'x ' * 70} password=hunter2 {'y ' * 70}"))
        running = asyncio.create_task(built.run())
        await asyncio.to_thread(wait_for, lambda: hook.accepted, timeout_s=60, what="the message has come")
        running.cancel()
        (message,) = hook.accepted
    assert "password=*** y" in message["text"]
    assert len(message["text"]) < build_optional.MOST_OF_RESULT + 200
    assert message["sample"] == "2 x : password=*** of 10.1.2.3"


class NoMembers:
    """The records of a fleet of none, in which nobody else claims anything."""

    async def first(self, _word: str, _for_s: float) -> bool:
        return True

    async def member_list(self) -> object:
        raise TimeoutError


def test_metrics_count_outcomes_and_the_log_has_the_host_once(
    metrics: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    observe = build_optional.deliveries(metrics, Log(lambda: 0.0))
    for _ in range(3):
        observe(Delivery("sent", "paused", "hooks.slack.com"))
        observe(Delivery("failed", "paused", "status 500"))
    for outcome in ("sent", "failed"):
        assert metrics.registry.get_sample_value("arbiter_messages_total", {"outcome": outcome}) == 3
    assert [(record.message, record.levelname) for record in caplog.records] == [
        ("message sent", "INFO"),
        ("message failed", "WARNING"),
    ]
    assert caplog.records[0].__dict__["fields"]["detail"] == "hooks.slack.com"


async def test_template_that_has_become_unusable_gives_way_to_the_text(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "template").write_text('{"text": "$sentence"}')
    with listening.webhook() as hook:
        config = settings(webhook_url=hook.url, webhook_template=tmp_path / "template")
        (tmp_path / "template").write_text('{"text": $sentence}')
        assert await build_optional.send_test_message(config) == ("sent to 127.0.0.1", True)
        assert "This is a test of the messages" in hook.accepted[0]["text"]
    assert "ARBITER_WEBHOOK_TEMPLATE" in caplog.text


async def test_test_message_goes_to_the_webhook() -> None:
    with listening.webhook() as hook:
        config = settings(webhook_url=hook.url, runbook_url="http://book")
        assert await build_optional.send_test_message(config) == ("sent to 127.0.0.1", True)
        assert hook.refused == []
        assert "http://book#messages" in hook.accepted[0]["text"]
    result, is_sent = await build_optional.send_test_message(config)
    assert (result, is_sent) == ("not sent: connection", False)
