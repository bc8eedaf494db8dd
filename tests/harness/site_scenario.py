"""Three incidents at a site, in phases, and the facts that every source should show at the end of each phase.

A database is down for most containers; a hold is set during an incident; a lone container is sick. In this order,
because the end of an episode is sent after a quiet minute, and the last incident sends no message.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from harness.fleet_driver import await_denied
from harness.sidecar import command
from harness.site import FLEET
from harness.waiting import wait_for

if TYPE_CHECKING:
    from harness.prometheus import AlertHistory
    from harness.sidecar import Sidecar
    from harness.site import Site

Facts = dict[str, Any]
"""Facts of the fleet by name; a source has only some of them."""

AUTHOR: Final = "anna"
RELEASER: Final = "bert"
REASON: Final = "db migration"
TIMEOUT_S: Final = 60.0
HELD_S: Final = 2.0
SLOW: Final = {"command": ("held", "lone", "well")}
"""Sources that are read after some phases only, because each reading takes a process."""

CALM: Final[Facts] = {"alive": FLEET, "suspect": 0, "light": 0, "down": 0, "trials": {}, "paused": [], "hold": None}
PAUSED: Final[Facts] = {**CALM, "paused": ["mysql"], "unhelped": 1}
RELEASED: Final[Facts] = {**CALM, "unhelped": 1}

PHASES: Final[dict[str, Facts]] = {
    "calm": CALM | {"used": 0, "culls": 0, "helped": 0, "unhelped": 0},
    "tried": CALM | {"alive": 19, "suspect": 17, "down": 1, "trials": {"mysql": (1, 1)}, "used": 1, "culls": 1},
    "paused": PAUSED | {"suspect": 18, "used": 1, "culls": 1, "helped": 0},
    "over": PAUSED | {"used": 1, "culls": 1, "helped": 0},
    "first": PAUSED | {"alive": 19, "down": 1, "trials": {"redis": (1, 1)}, "used": 2, "culls": 2, "helped": 0},
    "held": PAUSED
    | {"suspect": 2, "light": 2, "trials": {"redis": (1, 0)}, "used": 1, "culls": 2, "helped": 1}
    | {"hold": (AUTHOR, REASON)},
    "released": RELEASED
    | {"alive": 19, "suspect": 1, "light": 1, "down": 1, "trials": {"mysql": (1, 0), "redis": (1, 1)}}
    | {"used": 2, "culls": 3, "helped": 1},
    "lone": RELEASED
    | {"alive": 19, "down": 1, "trials": {"mysql": (1, 0), "rabbitmq": (1, 1), "redis": (1, 0)}}
    | {"used": 2, "culls": 4, "helped": 2},
    "well": RELEASED
    | {"trials": {"mysql": (1, 0), "rabbitmq": (1, 0), "redis": (1, 0)}, "used": 1, "culls": 4, "helped": 3},
}
"""``trials``: limit and culls without an outcome, by cause, where culls are not paused. A cull that helped gives its
token back; without suspects for a probation its cause begins anew with one. ``light``: containers whose weight is
lowered.
"""

ALERTED: Final[dict[str, set[str]]] = {
    "paused": {"ArbiterCullsPausedForMost"},
    "over": {"ArbiterCullsPaused"},
    "held": {"ArbiterHeldLong"},
    "lone": {"ArbiterCulls"},
}
"""The phase lasts until its alerts fire, because a shorter incident sends no alert."""

Source = Callable[[], Facts]


class Recording(NamedTuple):
    """The facts by phase and source; ``held_at``: the beginning and the end of the hold."""

    phases: dict[tuple[str, str], Facts]
    held_at: tuple[float, float]


class SiteScenario:
    """Plays the phases at the site. After each phase the sources are read until they agree, or until a timeout, and so
    are the alerts of the phase.
    """

    def __init__(self, site: Site, sources: dict[str, Source], alerts: AlertHistory) -> None:
        self._site = site
        self._sources = sources
        self._alerts = alerts
        self._facts: dict[tuple[str, str], Facts] = {}
        self._lost = set[str]()

    def play(self) -> Recording:
        """Play all phases."""
        self._ask("calm")
        self._outage()
        held_at = self._hold()
        self._lone()
        return Recording(self._facts, held_at)

    def _outage(self) -> None:
        """All but two containers use the database, and are sick before and after a restart."""
        site, (_, _, *users) = self._site, self._site.fleet
        site.apps.make_sick(*users, kind="mysql")
        (first,) = self._await_down(1)
        self._ask("tried")
        for one in users:
            if one is not first:
                await_denied(one, "trial")
        site.replace(first)
        site.apps.make_sick(first, kind="mysql")
        self._ask("paused")
        for one in users:
            await_denied(one, "paused")
        site.apps.heal(*users)
        self._ask("over")

    def _hold(self) -> tuple[float, float]:
        """Containers get sick one after the other, until a person sets a hold."""
        site, (first, *others) = self._site, self._site.fleet[2:5]
        site.apps.make_sick(first, kind="redis")
        self._await_down(1)
        self._ask("first")
        # First the replacement: a sidecar that ends at the hold may have claimed its message, and not sent it.
        site.replace(first)
        self._await_helped(1)
        self._order("hold", "--for", "10m", "--reason", REASON, "--author", AUTHOR)
        since = time.time()
        site.apps.make_sick(*others, kind="redis")
        for one in others:
            await_denied(one, "hold")
        time.sleep(HELD_S)  # time for culls that must not happen
        self._ask("held")
        until = time.time()
        self._order("release", "--author", RELEASER)
        self._await_down(1)
        self._ask("released")
        for one in others:
            site.replace(one)
        self._await_helped(2)
        return since, until

    def _lone(self) -> None:
        site, one = self._site, self._site.fleet[5]
        site.apps.make_sick(one, kind="rabbitmq")
        self._await_down(1)
        self._ask("lone")
        site.replace(one)
        self._ask("well")

    def _await_helped(self, count: int) -> None:
        """Wait until so many culls are found to have helped; with that their episodes are over."""

        def helped() -> bool:
            events: list[dict[str, Any]] = self._site.fleet[0].request("local", "GET", "/events").json()["events"]
            return len([event for event in events if event["what"] == "helped"]) >= count

        wait_for(helped, timeout_s=TIMEOUT_S, what=f"{count} culls are found to help")

    def _order(self, *arguments: str) -> None:
        done = command(self._site.fleet[0], *arguments)
        assert done.code == 0, done

    def _await_down(self, count: int) -> list[Sidecar]:
        """Wait until ``count`` containers are down; the containers."""

        def down() -> list[Sidecar]:
            found = [one for one in self._site.fleet if one.health("/health/nomad")[0] != 200]
            return found if len(found) == count else []

        return wait_for(down, timeout_s=TIMEOUT_S, what=f"{count} are down")

    def _ask(self, phase: str) -> None:
        """Read the sources until all agree; do not wait again for one that disagreed at the end of an earlier phase."""
        self._await_alerts(phase)
        deadline = time.monotonic() + TIMEOUT_S
        waiting = [name for name in self._sources if is_asked(name, phase)]
        while waiting:
            waiting = [name for name in waiting if not self._agrees(name, phase)]
            if time.monotonic() > deadline or self._lost.issuperset(waiting):
                self._lost.update(waiting)
                return

    def _await_alerts(self, phase: str) -> None:
        """Wait for the alerts of this phase; the tests report the missing ones."""

        def shown() -> bool:
            return ALERTED.get(phase, set()) <= self._alerts.severities.keys()

        with suppress(AssertionError):
            wait_for(shown, timeout_s=TIMEOUT_S, what=f"the alerts of {phase}")

    def _agrees(self, name: str, phase: str) -> bool:
        facts: Facts = {}
        with suppress(OSError):  # a late reply counts as none
            facts = self._sources[name]()
        self._facts[phase, name] = facts
        return bool(facts) and not differences(facts, PHASES[phase])


def is_asked(source: str, phase: str) -> bool:
    """Whether this source is read after that phase."""
    return phase in SLOW.get(source, PHASES)


def differences(facts: Facts, wanted: Facts) -> list[str]:
    """The facts that differ from what is wanted, a sentence each."""
    return list(_differing(facts, wanted))


def _differing(facts: Facts, wanted: Facts) -> Iterator[str]:
    for word in facts.keys() & wanted.keys():
        if facts[word] != wanted[word]:
            yield f"{word} is {wanted[word]!r} and not {facts[word]!r}"
