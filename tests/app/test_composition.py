"""What no setting decides: the clock of each part, where a failure is counted, who observes, and who may ask what."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import pytest

from harness.composition import WORD, Composed, Facts, composed, on_any_port, with_every_part
from sidecar.controller.journal import Journal, SavedIncarnation
from sidecar.core.claims import Fleet, Unknown
from sidecar.core.fleet.fleet_events import FleetWatch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

BY_BOOT_TIME: Final = {"AloneBudget.clock", "OwnBeats.clock"}
"""A machine that slept would else look to the budget like a stepped clock of Redis."""

FAILURES: Final = {
    "AppPort.": "app_port",
    "Controller.": "step",
    "Datagrams.": "listener",
    "EffectRunner.": "step",
    "AgentCheck.": "listener",
    "Hook.": "hook",
    "Ledger.": "ledger",
    "LocalServer(local).": "listener",
    "LocalServer(page).": "page",
    "Membership.": "beat",
    "Messenger.": "message",
    "PublicServer(public).": "listener",
    "Scraper.": "listener",
}
OBSERVERS: Final = {
    "steps": [
        "Actuator.notice",
        "ContainerOrders.notice",
        "Ledger.notice",
        "Log.observe",
        "Messenger.notice",
        "Metrics.observe",
    ],
    "beats": ["Ledger.beaten", "Log.beaten", "Messenger.beaten", "Metrics.beaten"],
    "scrapes": ["Log.scraped", "Metrics.scraped"],
    "actions": ["Ledger.add", "messenger.<locals>.<lambda>"],
    "failures": ["Log.failed", "Metrics.failed"],
}
LISTENERS: Final = {
    "LocalServer(local).max": "256",
    "LocalServer(page).max": "64",
    "RequestCheck.is_remote": "False True",
    **{f"LocalServer({name}).on_refusal()": name for name in ("local", "page")},
    **{f"LocalServer({name}).on_refusal": "Metrics.refused" for name in ("local", "page")},
}
WORKS: Final = [
    "Actuator.run",
    "AppPort.run",
    "Controller.run",
    "Ledger.run",
    "Membership.run",
    "Messenger.run",
    "Scraper.run",
    "_warn_of_files",
]
TOKEN: Final = {"Authorization": f"Bearer {WORD}"}
BROWSER: Final = {"Sec-Fetch-Site": "cross-site"}
OWN_PAGE: Final = {"Sec-Fetch-Site": "same-origin"}


@pytest.fixture
async def whole(tmp_path: Path) -> AsyncIterator[Composed]:
    """A sidecar with every part but TLS, that was asked once by an operator."""
    async with composed(with_every_part(tmp_path)) as one:
        await one.ask("local", "GET /fleet")
        yield one


@pytest.fixture
async def facts(whole: Composed) -> Facts:
    return whole.facts()


async def test_every_part_goes_by_the_clock_that_it_is_made_for(facts: Facts) -> None:
    clocks = {key: {*values} for key, values in facts.items() if key.endswith((".clock", ":clock"))}
    walls = {key: {*values} for key, values in facts.items() if key.endswith(".wall")}
    assert {key for key, values in clocks.items() if values == {"boot_time"}} == BY_BOOT_TIME
    assert {key for key, values in clocks.items() if values == {"monotonic"}} == clocks.keys() - BY_BOOT_TIME
    assert {key for key, values in walls.items() if values != {"time"}} == set()
    owners = {key.partition(".")[0] for key in walls}
    assert owners >= {"FleetApi", "HoldOrders", "Controller", "Ledger", "Messenger", "WhySources"}


async def test_shared_budget_goes_by_the_same_clocks() -> None:
    async with composed(on_any_port({"redis_url": "redis://127.0.0.1:1", "instance": "a"})) as one:
        facts = one.facts()
    assert facts["FleetBudget.clock"] == facts["OwnBeats.clock"] == {"boot_time"}
    assert [*facts["LocalHolds.wall"], *facts["LocalHolds.instance"]] == ["time", "a"]


async def test_a_failure_is_counted_where_it_happened(facts: Facts) -> None:
    found = {key: values for key, values in facts.items() if key.endswith("on_failure()")}
    assert {owner: " ".join(found.get(f"{owner}on_failure()", ())) for owner in FAILURES} == FAILURES


async def test_advice_to_a_person_is_a_warning_in_the_log(facts: Facts) -> None:
    given = ("Actuator.on_missing", "Datagrams.on_advice", "HoldOrders.log", "ContainerOrders.log")
    assert {key: [*facts[key]] for key in given} == {key: ["Logger.warning"] for key in given}


async def test_every_observer_is_registered_once(whole: Composed) -> None:
    names = {
        kind: sorted(observe.__qualname__ for observe in getattr(whole.sidecar.observers, kind)) for kind in OBSERVERS
    }
    assert names == OBSERVERS


async def test_every_part_that_has_work_is_run(whole: Composed) -> None:
    assert sorted(name for name, _ in whole.works) == WORKS


async def test_each_listener_has_its_guard_its_bounds_and_its_name(facts: Facts) -> None:
    assert {key: " ".join(sorted(facts[key])) for key in LISTENERS} == LISTENERS


# -- every kind of event ------------------------------------------------------------------------------------------


async def test_outage_of_the_store_is_a_metric_a_line_and_an_entry(
    whole: Composed, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    watch = FleetWatch()
    whole.sidecar.observers.beat(watch.record(Unknown("timeout"), 0.0))
    assert whole.metrics()["/metrics arbiter_budget_reachable"] == {"0.0"}
    whole.sidecar.observers.beat(watch.record(Fleet(alive=1, suspect=0, used=0, capacity=10), 1.0))
    assert whole.metrics()["/metrics arbiter_budget_reachable"] == {"1.0"}
    assert [entry.what for entry in whole.sidecar.ledger.local(0)] == ["redis_away", "redis_back"]
    assert [record.message.partition(":")[0] for record in caplog.records if record.message.startswith("store")] == [
        "store unreachable",
        "store reachable again",
    ]


async def test_counts_of_the_controller_are_read_at_each_scrape(whole: Composed) -> None:
    controller = whole.sidecar.controller
    controller.stale_reports, controller.lag_s = 3, 0.5
    metrics = whole.metrics()
    assert metrics["/metrics arbiter_stale_reports_total"] == {"3.0"}
    assert metrics["/metrics arbiter_loop_lag_seconds"] == {"0.5"}


async def test_app_that_does_not_listen_is_a_metric_and_a_warning(
    whole: Composed, caplog: pytest.LogCaptureFixture
) -> None:
    assert whole.metrics()["/metrics arbiter_app_listening"] == {"0.0"}
    assert whole.sidecar.app_port is not None
    whole.sidecar.app_port._on_absent()
    sentence = "nobody listens at ARBITER_APP_PORT 9: a restart of the app in place is not noticed"
    assert [record.message for record in caplog.records] == whole.sidecar.warnings() == [sentence]
    assert not whole.sidecar.app_port._is_well()  # it is still starting


async def test_sidecar_knows_the_socket_of_the_app_beside_which_it_starts_again(tmp_path: Path) -> None:
    config = with_every_part(tmp_path)
    app = config.identity.app
    await Journal(tmp_path, app, lambda *_: None).save(SavedIncarnation(app, "boot-1", "boot-1", socket="4711"))
    async with composed(config) as one:
        assert one.sidecar.controller.container.app_start == "boot-1"
        assert one.sidecar.controller.ids.socket == "4711"


# -- who may ask what ---------------------------------------------------------------------------------------------


PUBLIC: Final = ("/health", "/health/haproxy", "/health/nomad", "/metrics", "/why")
PAGE: Final = ("/why", "/fleet", "/events")


@pytest.mark.parametrize(
    ("listener", "request_lines", "headers", "status"),
    [
        ("public", [f"GET {path}" for path in PUBLIC], {}, 200),
        ("public", ["GET /livez", "GET /readyz"], {}, 503),  # nothing runs here
        ("public", [f"GET {path}" for path in ("/hold", "/fleet", "/events", "/page", "/verdict")], {}, 404),
        ("page", [*(f"GET {path}" for path in PAGE), "POST /hold", "DELETE /hold"], {}, 401),
        ("page", [f"GET {path}" for path in PAGE], TOKEN, 200),
        ("page", ["POST /errors", "POST /cull"], TOKEN, 404),
        ("local", ["GET /why", "GET /fleet", "GET /verdict"], {}, 200),
        ("local", ["GET /why"], BROWSER, 403),
        ("local", ["GET /fleet"], OWN_PAGE, 200),
        ("local", ["GET /fleet"], {"Host": "rebound.example"}, 403),
        ("local", ["POST /cull", "POST /revive", "POST /hold"], {}, 401),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
async def test_each_listener_serves_what_its_clients_may_ask(
    whole: Composed, listener: str, request_lines: list[str], headers: dict[str, str], status: int
) -> None:
    for line in request_lines:
        assert (await whole.ask(listener, line, **headers)).status == status, line
