"""The runbooks: exactly one for each alert and each reason, and each of their commands shows what they say."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Any, Final

import pytest

from deploy.prometheus_rules import ALERTS, RUNBOOKS, dashboard, documented, names
from harness.command import command
from harness.fleet_driver import FleetDriver, await_denied
from harness.sidecar import ASKS_AGAIN, GATES
from harness.waiting import wait_for
from sidecar.core.explain.reasons import runbook
from sidecar.core.explain.words import FAILURES, MESSAGE_RUNBOOKS, REFUSALS
from sidecar.notify.messages import WORDS

if TYPE_CHECKING:
    from harness.children import StartSidecar
    from harness.redis_server import RedisServer
    from harness.sidecar import Sidecar

TEXT: Final = RUNBOOKS.read_text()
COMMANDS: Final = {"why", "fleet", "events", "report", "hold", "release", "cull", "revive", "doctor"}
PARTS: Final = ("Means", "Look first", "Do", "Leave it alone when")


def _sections(under: str) -> dict[str, str]:
    """The sections below a main heading, by their heading."""
    chapter = re.split(r"^## ", TEXT, flags=re.MULTILINE)
    text = next(one for one in chapter if one.startswith(f"{under}\n"))
    return dict(re.findall(r"^### (\S+)\n\n(.*?)(?=^### |\Z)", text, re.MULTILINE | re.DOTALL))


def _anchor(heading: str) -> str:
    """The anchor of a heading of one word."""
    return heading.lower()


ALERT_SECTIONS: Final = _sections("Alerts")
REASON_SECTIONS: Final = _sections("Why there is no token")


def test_every_alert_has_a_runbook_and_every_runbook_an_alert() -> None:
    assert [*ALERT_SECTIONS] == names(ALERTS, "alert")


def test_every_runbook_of_an_alert_has_its_four_parts() -> None:
    for section in ALERT_SECTIONS.values():
        assert tuple(re.findall(r"^- \*\*(.+?):\*\* \S.*", section, re.MULTILINE)) == PARTS


def test_runbooks_name_commands_metrics_alerts_and_panels_that_exist() -> None:
    assert set(re.findall(r"`health-arbiter (\w+)", TEXT)) == COMMANDS
    assert set(re.findall(r"\barbiter_\w+", TEXT)) <= documented()
    assert set(re.findall(r"\bArbiter[A-Z]\w+", TEXT)) == set(names(ALERTS, "alert"))
    panels = {panel["title"] for panel in dashboard()["panels"]}
    assert set(re.findall(r'the panel "([^"]+)"', TEXT)) <= panels


def test_every_word_leads_to_a_heading_and_every_heading_is_linked_to() -> None:
    messages = {*WORDS}
    words = {*REFUSALS, *FAILURES, *MESSAGE_RUNBOOKS}
    assert messages <= words
    assert MESSAGE_RUNBOOKS.keys() <= messages
    alerts = {_anchor(heading) for heading in ALERT_SECTIONS}
    assert {runbook(word) for word in words} - alerts == {_anchor(heading) for heading in REASON_SECTIONS}


def test_page_names_every_word_of_a_refusal() -> None:
    unnamed = [word for word in REFUSALS if f"`{word}`" not in REASON_SECTIONS[runbook(word)] and runbook(word) != word]
    assert unnamed == []


# -- followed literally -------------------------------------------------------------------------------------------

TYPED: Final = set(re.findall(r"`(?:nomad alloc exec -task arbiter <alloc> )?(health-arbiter [^`]+)`", TEXT))


class Reader:
    """Types the commands of the page as they stand, at one sidecar after another."""

    def __init__(self) -> None:
        self.typed: set[str] = set()

    def types(self, line: str, at: Sidecar, *shown: str, code: int = 0, instance: str = "") -> None:
        """The command ends with this code, and prints all of these (regular expressions)."""
        self.typed.add(line)
        words = [instance if word == "INSTANCE" else str(JOB) if word == "FILE" else word for word in shlex.split(line)]
        done = command(at, *words[1:])
        assert done.code == code, (line, done)
        for wanted in shown:
            assert re.search(wanted, done.out, re.MULTILINE), (line, wanted, done.out)


JOB: Final = RUNBOOKS.parents[1] / "tests" / "cli" / "doctor" / "jobs" / "app.json"


def _instance(one: Sidecar) -> str:
    return str(one.settings["instance"])


@pytest.mark.process
def test_every_command_followed_in_an_incident_shows_what_the_page_says(
    sidecar: StartSidecar, redis_server: RedisServer
) -> None:
    settings = {**GATES, **ASKS_AGAIN, "after_data_loss": "continue"}
    fleet = sidecar.fleet(4, redis_url=redis_server.url, **settings)
    driver, reader = FleetDriver(fleet), Reader()
    driver.await_metrics(fleet_alive=4)
    lost: dict[str, Any] = {"count": 6, "kind": "mysql", "message": "connection refused, password=s3cr3t"}
    for one in fleet:
        one.post_error(**lost)
    (culled,) = wait_for(driver.down, timeout_s=60, what="one is culled")
    driver.replace(culled)
    culled.post_error(**{**lost, "app_start": "life-2"})
    suspect, *_ = waiting = [one for one in fleet if one is not culled]
    with driver.keep_sick(*waiting, kind="mysql"):
        await_denied(suspect, "paused")

        # ArbiterBudget..., ArbiterCullsPaused..., ArbiterSuspectsWithoutToken, paused: look first
        reader.types(
            "health-arbiter fleet",
            suspect,
            r"^app: 4 alive, 4 of them suspect, 0 down, 1 of 10 tokens in use, 9 left, the next is back in ",
            r"^paused  no culls for mysql for \S+.*: the last cull did not help",
            r"^now     All 4 containers have too many errors .* because of mysql\. Culls for it are paused",
            r"^do      A restart is no remedy: repair what is behind mysql, .* health-arbiter why ",
            rf"^{_instance(suspect)} +suspect +mysql",
        )
        since = [rf"culled .*{_instance(culled)}", r"unhelped .*mysql", r"connection refused, password=\*\*\*"]
        reader.types("health-arbiter events --since 1h", suspect, *since)
        reader.types("health-arbiter events", suspect, *since)
        reader.types("health-arbiter report --since 7d", suspect, r"[Cc]ulls", "mysql")
        own = [
            r"\d+ server errors in 60 s \(\d+ of them mysql\)",
            "culls for this cause are paused",
            "connection refused",
        ]
        reader.types("health-arbiter why", suspect, *own, r"health-arbiter release")
        other = next(one for one in fleet if one not in (culled, suspect))
        reader.types(
            "health-arbiter why INSTANCE", suspect, rf"^{_instance(other)} +suspect +mysql", instance=_instance(other)
        )
        reader.types("health-arbiter doctor", suspect, r"[Rr]edis", r"memory|evict", "clock", "role|master")
        reader.types("health-arbiter doctor --job FILE", suspect, "job")

        # ArbiterBudgetLow, ArbiterHeldLong, hold: freeze and end it
        reader.types(
            'health-arbiter hold --for 1h --reason "..." --author NAME', suspect, r"held: the service by NAME, 1h left"
        )
        reader.types("health-arbiter fleet", other, r"^hold    the service by NAME, 1h left: \.\.\.$")
        reader.types("health-arbiter release", other, "the service is released; a suspect asks again at its next check")
        assert (
            command(other, "hold", "--for", "1h", "--reason", "x", "--author", "y", "--instance", _instance(other)).code
            == 0
        )
        reader.types(
            "health-arbiter release --instance INSTANCE",
            suspect,
            rf"instance {_instance(other)} is released",
            instance=_instance(other),
        )

        # paused: end the pause, and one is tried at once; put it back, and cull one by hand
        reader.types("health-arbiter release", suspect, "a suspect asks again at its next check")
        (tried,) = wait_for(driver.down, timeout_s=60, what="the fleet tries one container at once")
    reader.types("health-arbiter revive", tried, rf"revived: instance {_instance(tried)}")
    assert tried.health()[0] == 200
    reader.types("health-arbiter cull --yes", tried, rf"granted: instance {_instance(tried)}")
    wait_for(lambda: tried.health()[0] == 503, timeout_s=60, what="the ordered cull is carried out")
    assert reader.typed == TYPED
