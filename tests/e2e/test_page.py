"""The status page of real sidecars with a real Redis in a headless Chromium, with mouse and keyboard.

The tests of the site tier show given data in a page of one shared sidecar: ``_show`` ends the live data.
"""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any, Final

import pytest

from harness.browser import Browser, Window
from harness.children import StartRedis
from harness.ports import free_port
from harness.sidecar import AT_ONCE
from harness.waiting import wait_for
from sidecar.app import build_store
from sidecar.config.load import load
from sidecar.core.claims import Beat, Fleet, Presence, Unknown
from sidecar.core.fleet.members import About, fleet_json
from sidecar.core.types import Entry, State

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from harness.children import Children, StartSidecar
    from harness.redis_server import RedisServer
    from harness.sidecar import Sidecar

pytestmark = [pytest.mark.redis, pytest.mark.process]

FAST: Final[dict[str, Any]] = {**AT_ONCE, "drain": "1s"}
CROWD: Final = 2000
SHOWN: Final = "!document.getElementById('board').hidden && document.querySelectorAll('#containers tr').length > 0"
HOSTILE: Final = "<img src=x onerror=alert(1)>\"'`</script><script>alert(2)</script>\u202eevil\u2066&amp;{{7*7}}"
TOKEN: Final = "sesame-0123456789-sesame"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with Browser() as browser:
        yield browser


@pytest.fixture
def browser(chromium: Browser) -> Iterator[Browser]:
    yield chromium
    chromium.close_windows()


@pytest.fixture(scope="module")
def redis(shared_dir: Path, shared_children: Children) -> RedisServer:
    return StartRedis(shared_dir, shared_children)()


@pytest.fixture(scope="module")
def one(shared_sidecar: StartSidecar, redis: RedisServer) -> Sidecar:
    """A sidecar whose long beat interval keeps others as members after one beat."""
    return shared_sidecar(redis_url=redis.url, **{**FAST, "beat_interval": "300s"})


def _url(one: Sidecar, listener: str = "local") -> str:
    host, port = one.address(listener)
    return f"http://{host}:{port}/page"


def _shown(browser: Browser, one: Sidecar, **options: Any) -> Window:
    window = browser.open(_url(one), **options)
    window.wait(SHOWN)
    return window


def _holds(one: Sidecar) -> list[dict[str, Any]]:
    holds: list[dict[str, Any]] = one.request("local", "GET", "/fleet").json()["holds"]
    return holds


def _call_budget(one: Sidecar, *calls: Any) -> None:
    """Make these calls to the budget of ``one``, in a thread, because the browser has this one's event loop."""

    results: list[Any] = []

    async def tell() -> None:
        loaded = load({name: str(value) for name, value in one.settings.items()}, {})
        budget = build_store.fleet_budget(loaded, build_store.redis_store(loaded))
        results.extend([await call(budget) for call in calls])
        await budget.aclose()

    thread = threading.Thread(target=asyncio.run, args=(tell(),))
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    assert len(results) == len(calls)
    assert not [answer for answer in results if isinstance(answer, Unknown)]


def _heard(instance: str, presence: Presence = Presence.WELL, kind: str = "redis") -> Any:
    return lambda budget: budget.beat(Beat(instance, "life", presence, kind))


def _click(window: Window, *selectors: str) -> None:
    for selector in selectors:
        window.page.click(selector)


# -- live ---------------------------------------------------------------------------------------------------


def test_page_of_the_service_shows_a_cull_and_links_to_the_container(
    browser: Browser, sidecar: StartSidecar, redis: RedisServer
) -> None:
    other = {**FAST, "service": "cull", "redis_url": redis.url}
    one, well = sidecar("sick", **other), sidecar("well", **other)
    window = browser.open(_url(well))
    window.wait("document.querySelectorAll('#containers tr').length == 2")
    window.wait("document.getElementById('banner').className == 'ok'")
    window.wait_text("#banner-sentence", "All is well: 2 containers, none suspect, none down.")
    window.wait_text("#budget-text", "tokens are free: at most 10 culls in any window")
    one.post_error(n=5, kind="redis", message="connect failed, token=s3cr3t")
    wait_for(lambda: one.health()[0] == 503, timeout_s=60, what="it is culled")
    window.wait("document.getElementById('banner').className == 'warning'")
    window.wait_text("#budget-text", "9 of 10 tokens are free")
    window.wait("document.getElementById('events').innerText.includes('culled')")
    window.wait("document.querySelector('#containers tr td:nth-child(2)').textContent == 'down'")
    window.wait_text("#banner-sentence", "1 container (sick) was culled because of redis")
    window.wait_text("#trials", "1 of at most 1 culls")
    _click(window, "#containers tr:first-child a")
    window.wait("document.title.includes('cull: down: sick')")
    window.wait_text("#containers", "down")
    window.wait_text("#elsewhere", "Its own sidecar knows more")
    window.wait_text("#events", "culled")
    assert not window.page.is_visible("#why")
    assert window.complaints == []
    own = browser.open(f"{_url(one)}?container=sick", width=360, height=740)
    own.wait_text("#why", "window now: 5 errors in ")
    own.wait_text("#why", "haproxy down")
    own.wait_text("#why", "connect failed, token=***")
    assert not own.page.is_visible("#elsewhere")
    assert not own.page.is_visible("#tiles")
    assert not own.overflows
    _click(own, "#back a")
    own.wait("document.querySelectorAll('#containers tr').length == 2")
    own.wait("document.getElementById('banner-clue').textContent == 'sick: connect failed, token=***'")
    assert own.complaints == []


@pytest.mark.site
def test_page_keeps_what_was_known_while_redis_and_then_the_sidecar_are_away(
    browser: Browser, sidecar: StartSidecar, start_redis: StartRedis
) -> None:
    redis_server = start_redis()
    one = sidecar(redis_url=redis_server.url, **{**FAST, "beat_interval": "20s"})  # so long that b is never silent
    _call_budget(one, _heard("b"))
    window = _shown(browser, one)
    window.wait("document.querySelectorAll('#containers tr').length == 2")
    redis_server.stop()
    window.wait("document.getElementById('known-text').textContent.includes('was known at')")
    assert window.page.locator("main.away").count() == 1
    assert f"Redis cannot be reached ({redis_server.url}" in window.text("#banner-sentence")
    assert window.page.locator("#containers tr").count() == 2
    one.post_error(n=3, kind="disk")
    window.wait("[...document.querySelectorAll('#containers tr')].some((row) => row.innerText.includes('3/5'))")
    assert all("502" in complaint for complaint in window.complaints)
    one.kill()
    window.wait("document.getElementById('live').textContent.startsWith('connection lost')")
    assert window.page.locator("main.stale").count() == 1
    one.start()
    window.wait("document.getElementById('live').textContent.startsWith('live')")


# -- orders -------------------------------------------------------------------------------------------------


def test_keyboard_alone_holds_a_container_and_searches(browser: Browser, one: Sidecar) -> None:
    _call_budget(one, *(_heard(f"c{number:02}") for number in range(5)))
    window = browser.open(f"{_url(one)}?container=c03", width=360, height=740)
    window.wait_text("#containers", "up")
    press, focused = window.page.keyboard.press, "document.activeElement.id || document.activeElement.textContent"

    def reach(wanted: str) -> None:
        for _ in range(30):
            press("Tab")
            if window.page.evaluate(focused) == wanted:
                return
        raise AssertionError(f"Tab does not reach {wanted}")

    reach("open-hold")
    press("Enter")
    assert window.page.evaluate("document.getElementById('hold-dialog').open")
    press("Escape")
    assert window.page.evaluate(focused) == "open-hold"
    press("Enter")
    reach("hold-reason")
    window.page.keyboard.type("deploy")
    press("Tab")
    window.page.keyboard.type("bob")
    press("Enter")
    (hold,) = wait_for(lambda: _holds(one), timeout_s=60, what="the container is held")
    assert (hold["author"], hold["reason"], hold["scope"], hold["instance"]) == ("bob", "deploy", "instance", "c03")
    assert 3500 < hold["until"] - time.time() <= 3601
    window.wait("document.getElementById('holds').textContent.includes('bob')")
    window.page.focus("#holds button")
    for _ in range(2):  # drawn again
        window.page.evaluate("poll()")
    assert window.page.evaluate("document.activeElement.textContent") == "Release"
    press("Enter")
    wait_for(lambda: not _holds(one), timeout_s=60, what="the hold is over")
    window.wait("document.getElementById('holds').textContent.includes('No hold')")
    assert window.page.evaluate(focused) == "open-hold"
    _click(window, "#back a")
    window.wait("document.querySelectorAll('#containers tr').length >= 6")
    reach("search")
    window.page.keyboard.type("c04 up")
    window.wait("document.querySelectorAll('#containers tr').length == 1")
    reach("c04")
    press("Enter")
    window.wait("document.getElementById('title').textContent == 'c04'")
    window.page.goto(f"{_url(one)}?container=nobody")
    window.wait_text("#containers-text", "The fleet does not know this container now.")
    assert window.complaints == []


# -- given data -----------------------------------------------------------------------------------------------

SHOW: Final = "(given) => { poll = async () => {}; draw(...given.map((answer) => read(JSON.stringify(answer)))); }"


def _show(window: Window, one: Sidecar, *events: dict[str, Any], **of_fleet: Any) -> None:
    """Show these events and these fields of ``/fleet``, and the rest as it is now; no live data from then on."""
    why, fleet = (one.request("local", "GET", path).json() for path in ("/why", "/fleet"))
    window.page.evaluate("events = []")
    window.page.evaluate(SHOW, [why, {**fleet, **of_fleet}, {"events": events, "stored": False}])


def _event(what: str, **fields: Any) -> dict[str, Any]:
    rest = dict.fromkeys(("instance", "kind", "reason", "author", "detail", "id"), "")
    return {"what": what, "at": time.time(), **rest, "seconds": None, **fields}


def _member(
    instance: str, state: str = "up", kind: str = "", *, duplicate: bool = False, **about: Any
) -> dict[str, Any]:
    """A member as in ``/fleet``."""
    told = {"errors": 0, "limit": 5, "weight": 100, "version": "0.2.0", "node": "", "app_version": "", **about}
    row = {"instance": instance, "state": state, "kind": kind, "since": int(time.time()) - 90, "age_s": 1.0}
    return {**row, "about": told, "duplicate": duplicate}


def _summary(**fields: Any) -> dict[str, Any]:
    """The fleet as in ``/fleet``."""
    fleet = Fleet(4, 2, 1, "redis", helped=3, unhelped=1, median_errors=3, median_ratio=0.0125)
    return {**fleet_json(fleet), **fields}


@pytest.mark.site
def test_fleet_trials_duplicates_and_departed_are_shown(browser: Browser, one: Sidecar) -> None:
    window = _shown(browser, one)
    trials = [
        {"cause": "disk", "limit": 2, "out": 1, "paused_s": 0, "failures": 0, "since": 1_700_000_000},
        {"cause": HOSTILE, "limit": 1, "out": 0, "paused_s": 900, "failures": 2, "since": 0},
    ]
    gone = [{"instance": f"gone{HOSTILE}", "age_s": 60}]
    rows = [_member("b", "suspect", "redis", errors=7, weight=40), _member("c", duplicate=True), _member("d", "silent")]
    rows += [_member("n10", node=f"n7{HOSTILE}"), _member("n9")]
    denied = _event("denied", instance="b", detail=f"too few would stay{HOSTILE}")
    _show(window, one, denied, fleet=_summary(trials=trials), members=rows, departed=gone)
    assert "b was refused a token at " in window.text("#banner-refusal")
    assert "median of errors: 3, median of failed requests: 1.25\u00a0%" in window.text("#fleet-text")
    shown = window.page.locator("#trials li")
    assert "1 of at most 2 culls without an outcome" in shown.nth(0).inner_text()
    assert "the last 2 did not help" in shown.nth(1).inner_text()
    assert "two containers run under this name" in window.text("#containers")
    names = window.page.locator("#containers a").all_inner_texts()
    assert [name[:4] for name in names] == ["b", "d", "gone", "c", "n9", "n10"]
    assert window.page.locator("#tiles b").first.inner_text() == "5"
    assert window.page.locator("#containers img, #containers script").count() == 0
    assert window.complaints == []


@pytest.mark.site
def test_page_of_two_thousand_containers_is_usable(browser: Browser, one: Sidecar) -> None:
    rows = [_member(f"c{number:04}") for number in range(CROWD)]
    for number in range(100, 103):
        rows[number] = _member(f"c{number:04}", "suspect", "redis", errors=9, weight=30)
    window = _shown(browser, one, width=1280, height=740)
    _show(window, one, fleet=_summary(alive=CROWD + 5, down=0), members=rows, departed=[])
    assert window.page.locator("#containers tr").count() == 50
    first = window.page.locator("#containers tr:nth-child(-n+3) .suspect")
    assert first.count() == 3
    assert "50 of 2000 containers, 5 more are not listed" in window.text("#containers-text")
    assert window.page.locator("#tiles b").all_inner_texts()[:2] == ["2005", "2"]
    _click(window, "#more")
    assert window.page.locator("#containers tr").count() == 250
    window.page.fill("#search", "redis c0101")
    assert window.page.locator("#containers tr").count() == 1
    window.page.fill("#search", "")
    _click(window, "#columns .of-errors button")
    assert window.text("#containers tr:first-child .number:nth-child(5)") == "9/5"
    for width, scheme in ((1280, "dark"), (360, "light")):
        window.page.set_viewport_size({"width": width, "height": 740})
        window.page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        assert not window.overflows
    assert window.complaints == []


@pytest.mark.site
def test_evidence_that_is_open_stays_open_when_the_list_is_drawn_again(browser: Browser, one: Sidecar) -> None:
    window = _shown(browser, one)
    culled = _event("culled", instance="b", detail="5 errors\n7 x redis: connect failed")
    _show(window, one, culled)
    _click(window, "#events summary")
    _show(window, one, culled, _event("replaced", instance="b", at=time.time() + 1))
    assert window.text("#events details[open] pre") == "7 x redis: connect failed"
    assert window.page.evaluate("document.activeElement.tagName") == "SUMMARY"
    assert window.page.locator("#events li").count() == 2


@pytest.mark.site
def test_link_to_the_runbook_is_that_of_the_newest_banner(browser: Browser, one: Sidecar) -> None:
    window = _shown(browser, one)
    for runbook in ("https://wiki/#hold", "https://wiki/#paused"):
        banner = {"level": "warning", "sentence": "s", "action": "a", "command": "c", "runbook": runbook}
        _show(window, one, banner=banner)
        assert window.page.get_attribute("#banner-link a", "href") == runbook


def test_hostile_text_is_shown_and_not_executed(browser: Browser, sidecar: StartSidecar, redis: RedisServer) -> None:
    one = sidecar(redis_url=redis.url, service="hostile", **{**FAST, "beat_interval": "300s"})
    long, rtl = "x" * 10_000, "\u05e9\u05dc\u05d5\u05dd\u202e\u200f"
    window = browser.open(_url(one))
    for number, text in enumerate((HOSTILE, long, rtl, "\0\n\r\u2028")):
        one.post_error(kind=f"kind{number}", message=text[:4096])
    about = About(State.SUSPECT, 1, HOSTILE, 80, 2, 5, HOSTILE, 1).dump()
    _call_budget(
        one,
        lambda budget: budget.beat(Beat(HOSTILE[:100], "life", Presence.SUSPECT, HOSTILE, about=about)),
        _heard(long[:128], Presence.SUSPECT, long[:200]),
        _heard(rtl),
        lambda budget: budget.hold("", HOSTILE, long, 3600),
        lambda budget: budget.hold(HOSTILE, rtl, HOSTILE, 3600),
        lambda budget: budget.note(
            [Entry("hold", time.time(), text, text, text, text, 1e9, text) for text in (HOSTILE, long, rtl)]
        ),
    )
    window.wait("document.querySelectorAll('#holds li').length == 2")
    window.wait("document.querySelectorAll('#containers tr').length == 4")
    window.wait("document.querySelectorAll('#events li').length >= 3")
    own = browser.open(f"{_url(one)}?container=a")
    own.wait("(document.getElementById('why').textContent.match(/^error /gm) ?? []).length >= 3")
    other = browser.open(_url(one))
    other.wait(SHOWN)
    _click(other, f"#containers tr:has-text('{HOSTILE[:20]}') a")
    other.wait("document.title.includes(': suspect: ')")
    places = {window: ("#holds", "#events", "#containers", "#banner"), own: ("#why",), other: ("#containers", "#title")}
    for shown, selectors in places.items():
        for selector in selectors:
            shown.wait_text(selector, "<img src=x onerror=alert(1)>")
        assert shown.page.locator("img, main script, iframe").count() == 0
        for width in (1280, 360):
            shown.page.set_viewport_size({"width": width, "height": 740})
            assert not shown.overflows, selectors
        seen = shown.page.evaluate(
            "document.body.textContent + [...document.querySelectorAll('[title]')].map((e) => e.title)"
        )
        assert not set(seen) & set("\0\u202e\u2066\u200f\u2028")
        assert seen.count("\u2068") == seen.count("\u2069")
    assert own.complaints == other.complaints == []
    _click(window, "#holds li:nth-child(2) button")
    window.wait("document.getElementById('order-text').textContent.includes('instance')")
    bad_request = "error: Failed to load resource: the server responded with a status of 400 (Bad Request)"
    assert [complaint for complaint in window.complaints if complaint != bad_request] == []


# -- accessibility -----------------------------------------------------------------------------------------------


@pytest.mark.site
def test_page_fits_and_is_legible_in_every_situation(browser: Browser, one: Sidecar) -> None:
    window = _shown(browser, one)
    rows = [_member(f"c{at}", state, "redis") for at, state in enumerate(("suspect", "down", "starting", "up"))]
    hold = {"author": "anna", "instance": "", "reason": "migration", "until": time.time() + 600}
    trial = {"cause": "redis", "limit": 1, "out": 0, "paused_s": 900, "failures": 1, "since": 0}
    parts = {"fleet": _summary(trials=[trial]), "members": rows, "local_hold": hold, "used": 1, "grants": [time.time()]}
    small = """[...document.querySelectorAll("button, select, input, summary")]
      .filter((e) => e.offsetHeight && e.offsetHeight < 32).map((e) => e.outerHTML)"""
    for width, scheme in ((1920, "light"), (1280, "dark"), (360, "light"), (360, "dark")):
        window.page.set_viewport_size({"width": width, "height": 740})
        window.page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        dark = window.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(13, 17, 22)"
        assert dark is (scheme == "dark")
        for level, away in (("ok", {}), ("critical", {"error": "connection", "fleet_age_s": 90})):
            banner = {"level": level, "sentence": "s", "action": "a", "command": "c", "runbook": "https://wiki/#a"}
            _show(window, one, _event("culled"), **parts, **away, banner=banner)
            assert not window.overflows
            assert window.page.evaluate(small) == []
            assert window.page.evaluate(FAINT) == []
    assert window.complaints == []


FAINT: Final = """(() => {
  const numbers = (color) => color.match(/[0-9.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((part) => part / 255)
    .map((part) => (part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4))
    .reduce((sum, part, at) => sum + part * [0.2126, 0.7152, 0.0722][at], 0);
  const ground = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const color = numbers(getComputedStyle(at).backgroundColor);
      if (color.length < 4 || color[3] > 0) return color;
    }
    return [255, 255, 255];
  };
  return [...document.querySelectorAll("body *")].filter((element) => element.offsetHeight
    && [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim())).filter((element) => {
      const both = [numbers(getComputedStyle(element).color), ground(element)].map(light).sort((a, b) => b - a);
      return (both[0] + 0.05) / (both[1] + 0.05) < 4.5;
    }).map((element) => element.outerHTML);
})()"""
"""Texts with less contrast than level AA of WCAG 2.2 needs (success criterion 1.4.3)."""


@pytest.fixture
def with_token(sidecar: StartSidecar, redis: RedisServer, run_dir: Path) -> Sidecar:
    (run_dir / "token").write_text(f"{TOKEN}\n")
    page = f"127.0.0.1:{free_port()}"
    return sidecar(redis_url=redis.url, service=run_dir.name, page_listen=page, token_file=run_dir / "token", **FAST)


@pytest.mark.site
def test_page_listener_shows_the_page_with_the_token(browser: Browser, with_token: Sidecar, run_dir: Path) -> None:
    plain = browser.open(_url(with_token, "page"), java_script_enabled=False)
    assert "needs JavaScript" in plain.text("body")
    assert not plain.page.is_visible("#login")
    window = browser.open(_url(with_token, "page"))
    window.wait("!document.getElementById('login').hidden")
    assert not window.page.is_visible("#board")
    window.page.fill("#token", "wrong")
    window.page.keyboard.press("Enter")
    window.wait("document.getElementById('login-text').textContent != ''")
    window.page.fill("#token", TOKEN)
    window.page.keyboard.press("Enter")
    window.wait(SHOWN)
    _click(window, "#open-hold")
    window.page.fill("#hold-reason", "from afar")
    window.page.fill("#hold-author", "anna")
    _click(window, "#do-hold")
    wait_for(lambda: _holds(with_token), timeout_s=60, what="the fleet is held")
    (run_dir / "token").write_text("another-0123456789\n")
    window.wait("!document.getElementById('login').hidden")
    assert all("401" in complaint for complaint in window.complaints)
