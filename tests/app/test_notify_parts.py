"""From settings to the messenger: who is told, what is imported for it, the metrics, the log, the test message."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from harness import receiver as listening
from harness.ports import free_port
from sidecar.app import notify_parts
from sidecar.config.settings import load
from sidecar.notify.episodes import Occasion
from sidecar.notify.message import Context, Message
from sidecar.notify.outbox import Posted
from sidecar.notify.rules import Severity
from sidecar.telemetry.log import Log

if TYPE_CHECKING:
    from sidecar.config.settings import Settings
    from sidecar.telemetry.observers import Observers


def settings(**given: object) -> Settings:
    return load({}, {f"ARBITER_{name.upper()}": str(value) for name, value in given.items()})


class FakeObservers:
    """A log with a clock that stands still, and a registry."""

    def __init__(self) -> None:
        self.log = Log(lambda: 0.0)
        self.metrics = SimpleNamespace(registry=CollectorRegistry())

    def failed(self, where: str, error: Exception) -> None:
        raise AssertionError(where) from error


class FakeBucket:
    async def first(self, _word: str, _for_s: float) -> bool:
        return True

    async def roll(self) -> Any:
        raise AssertionError("nobody asks")


@pytest.fixture
def told() -> Observers:
    return cast("Observers", cast("Any", FakeObservers()))


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def posted(outcome: str, detail: str = "") -> Posted:
    occasion = Occasion("paused", "paused", Severity.ERROR, "s", 0.0)
    return Posted("slack", outcome, Message(occasion, Context("web", "prod", "a"), 0.0, 0.0), detail)


NOBODY: list[dict[str, object]] = [{}, {"webhook_url": "http://a/hook", "messages": "off"}]


@pytest.mark.parametrize("given", NOBODY, ids=["no receiver", "messages off"])
def test_without_a_receiver_there_is_no_messenger(told: Observers, given: dict[str, object]) -> None:
    assert notify_parts.messenger(settings(**given), FakeBucket(), told) is None


def test_each_receiver_that_is_set_is_told(tmp_path: Path) -> None:
    made = notify_parts.receivers(
        settings(
            webhook_url="http://a/1, http://a/2",
            slack_url_file=tmp_path / "slack",
            pagerduty_key_file=tmp_path / "key",
            alertmanager_url="http://b:9093",
        )
    )
    assert [one.name for one in made] == ["webhook", "slack", "pagerduty", "alertmanager"]
    assert [list(one.addresses()) for one in (made[0], made[2], made[3])] == [
        ["http://a/1", "http://a/2"],
        ["https://events.pagerduty.com/v2/enqueue"],
        ["http://b:9093/api/v2/alerts"],
    ]


def test_webhooks_of_a_file_are_told_in_the_same_way(opened: ExitStack, tmp_path: Path) -> None:
    hook, file = opened.enter_context(listening.webhook()), tmp_path / "hooks"
    assert [one.name for one in notify_parts.receivers(settings(webhook_url_file=file))] == ["webhook"]
    file.write_text(hook.url)
    assert notify_parts.test_message(settings(webhook_url_file=file)) == 0
    assert (len(hook.accepted), hook.refused) == (2, [])


def test_metrics_tell_what_becomes_of_messages(told: Observers) -> None:
    assert notify_parts.messenger(settings(webhook_url="http://a/hook"), FakeBucket(), told) is not None
    assert b"arbiter_messages_waiting 0.0" in generate_latest(told.metrics.registry)
    tally = notify_parts.Tally(told)
    for outcome in ("sent", "failed", "failed"):
        tally.told(posted(outcome))
    samples = {tuple(s.labels.values()): s.value for family in tally.collect() for s in family.samples if s.labels}
    assert samples == {("slack", "sent"): 1, ("slack", "failed"): 2}


def test_log_has_the_host_and_repeats_nothing(told: Observers, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    tally = notify_parts.Tally(told)
    for _ in range(3):
        tally.told(posted("sent", "hooks.slack.com"))
        tally.told(posted("failed", "status 500"))
    assert [(record.message, record.levelname) for record in caplog.records] == [
        ("message sent", "INFO"),
        ("message failed", "WARNING"),
    ]
    assert caplog.records[0].__dict__["fields"]["detail"] == "hooks.slack.com"


def test_log_is_silent_about_what_is_only_repeated(told: Observers, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    notify_parts.Tally(told).told(posted("sent", "alerts")._replace(is_repeat=True))
    assert caplog.records == []


# -- template ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "says"),
    [(b'{"text": "$sentence"}', ""), (b'{"text": $sentence}', "within quotes"), (b"\xff", "UTF-8"), (None, "No such")],
    ids=["good", "no JSON", "binary", "missing"],
)
def test_template_is_checked(tmp_path: Path, content: bytes | None, says: str) -> None:
    file = tmp_path / "template"
    if content is not None:
        file.write_bytes(content)
    view = cast("Settings", SimpleNamespace(webhook_template=str(file)))
    found = notify_parts.problems(view)
    assert bool(found) == bool(says)
    assert all(says in one and one.startswith("ARBITER_WEBHOOK_TEMPLATE") for one in found)


def test_without_a_template_there_is_nothing_to_check() -> None:
    assert notify_parts.problems(settings()) == []


# -- a test message ------------------------------------------------------------------------------------------------


def test_test_message_goes_to_everybody(opened: ExitStack, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kinds = (listening.webhook, listening.slack, listening.pagerduty, listening.alertmanager)
    hook, slack, duty, alerts = (opened.enter_context(kind()) for kind in kinds)
    (tmp_path / "slack").write_text(slack.url)
    (tmp_path / "key").write_text(listening.ROUTING_KEY)
    chosen = settings(
        webhook_url=hook.url,
        slack_url_file=tmp_path / "slack",
        pagerduty_key_file=tmp_path / "key",
        pagerduty_url=duty.url,
        alertmanager_url=alerts.base,
    )
    assert notify_parts.test_message(chosen) == 0
    assert [one.refused for one in (hook, slack, duty, alerts)] == [[]] * 4
    assert [len(one.accepted) for one in (hook, slack, duty, alerts)] == [2] * 4
    assert [event["event_action"] for event in duty.accepted] == ["trigger", "resolve"]
    said = capsys.readouterr()
    assert said.out.count("sent to 127.0.0.1") == 4
    assert "s3cret" not in said.out + said.err


def test_test_message_says_who_could_not_be_told(opened: ExitStack, capsys: pytest.CaptureFixture[str]) -> None:
    there = opened.enter_context(listening.webhook())
    chosen = settings(webhook_url=there.url, alertmanager_url=f"http://127.0.0.1:{free_port()}")
    assert notify_parts.test_message(chosen) == 1
    assert capsys.readouterr().out.splitlines() == ["webhook: sent to 127.0.0.1", "alertmanager: not sent: connection"]


def test_test_message_without_a_receiver_is_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    assert notify_parts.test_message(settings()) == 2
    assert "ARBITER_WEBHOOK_URL" in capsys.readouterr().err


# -- imports -------------------------------------------------------------------------------------------------------

PROBE = """
import sys
from types import SimpleNamespace
from sidecar.app import notify_parts
view = SimpleNamespace(messages="on", webhook_url="", alertmanager_url="")
for name in ("webhook_url_file", "slack_url_file", "pagerduty_key_file"):
    setattr(view, name, "")
assert notify_parts.messenger(view, None, None) is None
print(sorted(name for name in sys.modules if name.startswith(("sidecar.notify", "aiohttp"))))
"""


def test_who_tells_nobody_imports_nothing_for_it() -> None:
    done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.strip() == "[]"
