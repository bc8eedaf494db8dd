"""Three incidents of one afternoon at a site, in chapters, and what everybody ought to tell at the end of each.

A database that is down for nearly all, a hold in the middle of an incident, a lone bad container: in this order,
for people are told that something is over after a quiet minute, and the last incident is one that nobody is told of.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from harness.command import command
from harness.crew import await_denied
from harness.site import FLEET
from harness.waiting import wait_for

if TYPE_CHECKING:
    from harness.sidecar import Sidecar
    from harness.site import Site
    from harness.site_alerts import SiteAlerts

Facts = dict[str, Any]
"""What is known of the fleet, by word: only the words that a teller has."""

AUTHOR: Final = "anna"
RELEASER: Final = "bert"
REASON: Final = "db migration"
PATIENCE_S: Final = 30.0
HELD_S: Final = 2.0
SLOW: Final = {"command": ("held", "lone", "well")}
"""Tellers that are asked after some chapters only, for each takes a process of its own."""

CALM: Final[Facts] = {"alive": FLEET, "suspect": 0, "light": 0, "down": 0, "trials": {}, "paused": [], "hold": None}
PAUSED: Final[Facts] = {**CALM, "paused": ["mysql"], "unhelped": 1}
FORGIVEN: Final[Facts] = {**CALM, "unhelped": 1}

CHAPTERS: Final[dict[str, Facts]] = {
    "calm": CALM | {"used": 0, "culls": 0, "helped": 0, "unhelped": 0},
    "tried": CALM | {"alive": 19, "suspect": 17, "down": 1, "trials": {"mysql": (1, 1)}, "used": 1, "culls": 1},
    "paused": PAUSED | {"suspect": 18, "used": 1, "culls": 1, "helped": 0},
    "over": PAUSED | {"used": 1, "culls": 1, "helped": 0},
    "first": PAUSED | {"alive": 19, "down": 1, "trials": {"redis": (1, 1)}, "used": 2, "culls": 2, "helped": 0},
    "held": PAUSED
    | {"suspect": 2, "light": 2, "trials": {"redis": (2, 0)}, "used": 1, "culls": 2, "helped": 1}
    | {"hold": (AUTHOR, REASON)},
    "released": FORGIVEN
    | {"alive": 18, "down": 2, "trials": {"mysql": (1, 0), "redis": (2, 2)}, "used": 3, "culls": 4, "helped": 1},
    "lone": FORGIVEN
    | {"alive": 19, "down": 1, "trials": {"mysql": (1, 0), "rabbitmq": (1, 1), "redis": (6, 0)}}
    | {"used": 2, "culls": 5, "helped": 3},
    "well": FORGIVEN
    | {"trials": {"mysql": (1, 0), "rabbitmq": (2, 0), "redis": (6, 0)}, "used": 1, "culls": 5, "helped": 4},
}
"""``trials``: limit and culls without an outcome of every cause whose culls are not paused. A cull that helped gives
its token back. ``light``: containers whose weight is lowered.
"""

ALERTED: Final[dict[str, dict[str, set[str]]]] = {
    "paused": {"sidecar": {"ArbiterCullsPausedForMost"}, "prometheus": {"ArbiterCullsPausedForMost"}},
    "over": {"prometheus": {"ArbiterCullsPaused"}},
    "held": {"sidecar": {"ArbiterHeld"}, "prometheus": {"ArbiterHeldLong"}},
    "released": {"sidecar": {"ArbiterBudgetHalf"}, "prometheus": {"ArbiterBudgetHalf"}},
    "lone": {"prometheus": {"ArbiterCulls"}},
}
"""Alerts by who sends them: so long the chapter lasts, for what is over sooner nobody needs to hear of."""

Teller = Callable[[], Facts]


class Told(NamedTuple):
    """What each teller told of each chapter, by both names; ``held_at``: from when to when culls were held.

    ``culled``: the body of the lone bad container's health, and how ``health-arbiter why`` puts it here and there.
    ``stuck``: what would clear one of those for whose cause culls are paused.
    """

    chapters: dict[tuple[str, str], Facts]
    held_at: tuple[float, float]
    culled: dict[str, str]
    stuck: list[str]


class Story:
    """Plays it at the site; ``tellers`` are asked after each chapter until they agree, or patience ends.

    As long ``alerts`` has for showing what the chapter is alerted of.
    """

    def __init__(self, site: Site, tellers: dict[str, Teller], alerts: SiteAlerts) -> None:
        self._site = site
        self._tellers = tellers
        self._alerts = alerts
        self._told: dict[tuple[str, str], Facts] = {}
        self._lost = set[str]()

    def play(self) -> Told:
        """All of it."""
        self._ask("calm")
        stuck = self._outage()
        held_at = self._hold()
        culled = self._lone()
        return Told(self._told, held_at, culled, stuck)

    def _outage(self) -> list[str]:
        """All that use the database suffer, restarted or not; two containers do not."""
        site, (_, _, *users) = self._site, self._site.fleet
        site.apps.suffer(*users, kind="mysql")
        (first,) = self._await_down(1)
        self._ask("tried")
        for one in users:
            if one is not first:
                await_denied(one, "trial")
        site.replace(first)
        site.apps.suffer(first, kind="mysql")
        self._ask("paused")
        for one in users:
            await_denied(one, "paused")
        stuck: list[str] = first.request("local", "GET", "/why").json()["clears"]
        site.apps.heal(*users)
        self._ask("over")
        return stuck

    def _hold(self) -> tuple[float, float]:
        """One after the other goes bad, until a person wants to look."""
        site, (first, *others) = self._site, self._site.fleet[2:5]
        site.apps.suffer(first, kind="redis")
        self._await_down(1)
        self._ask("first")
        # Who ends as soon as it has heard of the hold may have told of it, and not that it has: then it is told twice.
        site.replace(first)
        self._order("hold", "--for", "10m", "--reason", REASON, "--author", AUTHOR)
        since = time.time()
        site.apps.suffer(*others, kind="redis")
        for one in others:
            await_denied(one, "hold")
        time.sleep(HELD_S)  # for culls that should not come
        self._ask("held")
        until = time.time()
        self._order("release", "--author", RELEASER)
        self._await_down(2)
        self._ask("released")
        for one in others:
            site.replace(one)
        return since, until

    def _lone(self) -> dict[str, str]:
        site, one = self._site, self._site.fleet[5]
        site.apps.suffer(one, kind="rabbitmq")
        self._await_down(1)
        self._ask("lone")
        culled = {
            "health": one.health()[1],
            "why beside it": command(one, "why").out,
            "why elsewhere": command(site.fleet[0], "why", str(one.settings["instance"])).out,
        }
        site.replace(one)
        self._ask("well")
        return culled

    def _order(self, *arguments: str) -> None:
        done = command(self._site.fleet[0], *arguments)
        assert done.code == 0, done

    def _await_down(self, count: int) -> list[Sidecar]:
        """Wait until so many are down for HAProxy and Nomad; who they are."""

        def down() -> list[Sidecar]:
            found = [one for one in self._site.fleet if one.health("/health/nomad")[0] != 200]
            return found if len(found) == count else []

        return wait_for(down, timeout_s=PATIENCE_S, what=f"{count} are down")

    def _ask(self, chapter: str) -> None:
        """Ask until all agree; who has disagreed to the end of an earlier chapter is not waited for again."""
        self._await_alerts(chapter)
        deadline = time.monotonic() + PATIENCE_S
        waiting = [name for name in self._tellers if is_asked(name, chapter)]
        while waiting:
            waiting = [name for name in waiting if not self._agrees(name, chapter)]
            if time.monotonic() > deadline or self._lost.issuperset(waiting):
                self._lost.update(waiting)
                return

    def _await_alerts(self, chapter: str) -> None:
        """What is not shown is found missing in the end."""

        def shown() -> bool:
            wanted = ALERTED.get(chapter, {})
            return all(names <= self._alerts.by(sender).keys() for sender, names in wanted.items())

        with suppress(AssertionError):
            wait_for(shown, timeout_s=PATIENCE_S, what=f"the alerts of {chapter}")

    def _agrees(self, name: str, chapter: str) -> bool:
        facts: Facts = {}
        with suppress(OSError):  # a reply too late is no reply yet
            facts = self._tellers[name]()
        self._told[chapter, name] = facts
        return bool(facts) and not differences(facts, CHAPTERS[chapter])


def is_asked(teller: str, chapter: str) -> bool:
    """Whether this teller is asked after that chapter."""
    return chapter in SLOW.get(teller, CHAPTERS)


def differences(facts: Facts, wanted: Facts) -> list[str]:
    """What is told otherwise than it was, one sentence each."""
    return list(_differing(facts, wanted))


def _differing(facts: Facts, wanted: Facts) -> Iterator[str]:
    for word in facts.keys() & wanted.keys():
        if facts[word] != wanted[word]:
            yield f"{word} is {wanted[word]!r} and not {facts[word]!r}"
