"""The first line about a service, on the page and in ``/fleet``: what is wrong, in one sentence, and what to do.

The rules stand in the order of urgency, and the first that applies writes the banner. A sentence has instants and no
durations, so that it stays the same while nothing happens.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from shlex import quote
from typing import Any, Final, NamedTuple

from sidecar.core.claims import Fleet, Unknown
from sidecar.core.explain import reasons
from sidecar.core.fleet.common_trait import CommonTrait
from sidecar.core.types import Hold, State
from sidecar.server.replies import ALONE

OK: Final = "ok"
INFO: Final = "info"
WARNING: Final = "warning"
CRITICAL: Final = "critical"

NOT_REPLACED_S: Final = 480
"""As the alert ArbiterNotReplaced."""

OUTAGE: Final = 0.2
"""From this part of suspects on the service is in an outage, as for the alert ArbiterSuspectsWithoutToken."""

URGENT: Final = ("paused", "window")
"""Refusals that a person should know of at once, whatever the number of suspects."""

MOST_NAMES: Final = 3
LONGEST_NAME: Final = 60


class Banner(NamedTuple):
    """``level``: ``ok``, ``info``, ``warning`` or ``critical``. ``anchor``: a heading of the runbooks, or empty."""

    level: str
    sentence: str
    action: str = ""
    command: str = ""
    anchor: str = ""

    def as_json(self, runbooks: str) -> dict[str, str]:
        """The banner as JSON values, with a link if ``runbooks``, the address of the runbooks, is not empty."""
        fields = {name: getattr(self, name) for name in ("level", "sentence", "action", "command")}
        return {**fields, "runbook": f"{runbooks}#{self.anchor}" if runbooks and self.anchor else ""}


class ContainerRow(NamedTuple):
    """One container; what is not known is None or ``""``."""

    instance: str
    state: str
    """A word of ``State``, or ``silent``."""
    cause: str = ""
    """The kind of most of its errors when it is suspect or down."""
    since: int | None = None
    """Unix seconds."""
    errors: int | None = None
    weight: int | None = None
    duplicate: bool = False


class Situation(NamedTuple):
    """What the rules read; instants are Unix seconds."""

    fleet: Fleet | None
    rows: Sequence[ContainerRow]
    holds: Sequence[Hold]
    tokens: Mapping[str, Any]
    """As in ``/fleet``."""
    unknown: Unknown | None
    """The error of the store."""
    away_since: float | None
    """Since when there is no answer of the store."""
    alone: str
    """What it means that there is no shared store; empty if there is one."""
    is_shadow: bool
    now: float
    store: str = ""
    """The address of the store without passwords."""
    common: CommonTrait | None = None
    """What the suspects have in common, and the healthy have not."""

    def of_state(self, *states: str) -> list[ContainerRow]:
        """The containers in one of these states."""
        return [row for row in self.rows if row.state in states]

    def is_outage(self, suspects: Sequence[ContainerRow]) -> bool:
        """Whether so many suspects are an incident of the service."""
        return len(suspects) > 1 and len(suspects) >= OUTAGE * len(self.rows)

    def cause_of(self, suspects: Sequence[ContainerRow]) -> str:
        """The cause that most or all of them share, empty if there is none."""
        if len({row.cause for row in suspects}) == 1:
            return name(suspects[0].cause)
        return name(self.fleet.cause) if self.fleet is not None else ""


def banner(seen: Situation) -> Banner:
    """The banner of the first rule that applies."""
    made = next(filter(None, (rule(seen) for rule in _RULES)))
    if (common := seen.common) is not None and seen.unknown is None:
        made = made._replace(sentence=f"{made.sentence} {common.sentence[0].upper()}{common.sentence[1:]}.")
    if not seen.is_shadow:
        return made
    return made._replace(sentence=f"Shadow mode, nothing is culled. {made.sentence}")


def _redis_away(seen: Situation) -> Banner | None:
    if seen.unknown is None or seen.unknown.error == ALONE:
        return None
    since = f" since {clock(seen.away_since)}" if seen.away_since else ""
    return Banner(
        CRITICAL,
        f"Redis has given no answer{since}, so no container can be culled: {reasons.unreachable(seen.unknown)}."
        " Health answers are unchanged.",
        f"Repair Redis{f' ({seen.store})' if seen.store else ''} or the network to it; the sidecars try again by"
        " themselves. Below is what was known last.",
        "health-arbiter doctor",
        reasons.runbook(seen.unknown.error),
    )


def _held(seen: Situation) -> Banner | None:
    if not seen.holds:
        return None
    hold = next((one for one in seen.holds if not one.instance), seen.holds[0])
    troubled = seen.of_state(State.SUSPECT)
    what = name(hold.instance) if hold.instance else "all culls"
    said = f"{name(hold.author)} holds {what} until {clock(hold.until)}"
    rest = f", and {containers(troubled)} {_have(troubled)} too many errors" if troubled else ""
    scope = f" --instance {quote(hold.instance)}" if hold.instance else ""
    return Banner(
        CRITICAL if seen.is_outage(troubled) else WARNING if troubled else INFO,
        f"{said} ({name(hold.reason)}){rest}.",
        f"Ask {name(hold.author)} before you end it.",
        f"health-arbiter release{scope}",
        "hold",
    )


def _not_replaced(seen: Situation) -> Banner | None:
    late = [
        row
        for row in seen.of_state(State.DRAINING, State.DOWN)
        if row.since is not None and seen.now - row.since > NOT_REPLACED_S
    ]
    if not late:
        return None
    oldest = min(row.since or 0 for row in late)
    return Banner(
        CRITICAL,
        f"{containers(late)} {_have(late)} been down since {clock(oldest)} and {_have(late)} no replacement.",
        "Ask the scheduler why; under Nomad the command places them again.",
        "nomad job eval -force-reschedule <job>",
        "arbiternotreplaced",
    )


def _suspects(seen: Situation) -> Banner | None:
    suspects = seen.of_state(State.SUSPECT)
    if not suspects:
        return None
    word, rest = _refused(seen, suspects)
    is_urgent = seen.is_outage(suspects) or word in URGENT
    cause = seen.cause_of(suspects)
    action = "Look at its errors." if len(suspects) == 1 else "Look at the errors of the worst."
    repair = f"repair what is behind {cause or 'it'}, or roll back"
    if word == "paused":
        action = f"A restart is no remedy: {repair}, then health-arbiter release."
    elif seen.is_outage(suspects):
        action = f"Treat it as an incident of the service: {repair}."
    begun = [row.since for row in suspects if row.since is not None]
    since = f" since {clock(min(begun))}" if begun else ""
    most = ", most" if len({row.cause for row in suspects}) > 1 else ""
    because = f"{most} because of {cause}" if cause else ""
    worst = max(suspects, key=lambda row: row.errors or 0)
    said = f"{containers(suspects, len(seen.rows))} {_have(suspects)} too many errors{since}{because}."
    return Banner(
        CRITICAL if is_urgent else WARNING,
        f"{said} {rest}".rstrip(),
        action,
        f"health-arbiter why {quote(worst.instance)}",
        reasons.runbook(word),
    )


def _refused(seen: Situation, suspects: Sequence[ContainerRow]) -> tuple[str, str]:
    """The word for why no suspect gets a token, and its sentence, as far as trials and tokens tell it."""
    causes, tokens = {row.cause for row in suspects}, seen.tokens
    trials = [trial for trial in (seen.fleet.trials if seen.fleet else ()) if trial.cause in causes]
    if any(trial.paused_s > 0 for trial in trials):
        return "paused", "Culls for it are paused, because the last one did not help."
    if tokens["used"] and tokens["used"] >= tokens["capacity"]:
        back = f"at {clock(tokens['grants'][0] + tokens['budget_window'])}" if tokens["grants"] else "soon"
        return "window", f"All tokens are in use, and the next comes back {back}."
    if any(trial.out for trial in trials):
        return "trial", "The fleet tries one cull, and waits to see whether it helps."
    return "", ""


def _paused(seen: Situation) -> Banner | None:
    if seen.fleet is None or not seen.fleet.paused:
        return None
    causes = ", ".join(map(name, seen.fleet.paused))
    suspects = f"{seen.fleet.suspect} containers are suspect." if seen.fleet.suspect else "No container is suspect now."
    return Banner(
        WARNING,
        f"Culls for {causes} are paused, because the last one did not help. {suspects}",
        "See what happened, and whether it is repaired.",
        "health-arbiter events --since 1h",
        "paused",
    )


def _down(seen: Situation) -> Banner | None:
    down = seen.of_state(State.DRAINING, State.DOWN)
    if not down:
        return None
    cause = f" because of {name(down[0].cause)}" if down[0].cause and len({row.cause for row in down}) == 1 else ""
    return Banner(
        WARNING,
        f"{containers(down)} {'was' if len(down) == 1 else 'were'} culled{cause} and {_have(down)} not been replaced"
        " yet.",
        "Nothing to do yet: the scheduler replaces what is down.",
        "health-arbiter events --since 1h",
    )


def _all_have_errors(seen: Situation) -> Banner | None:
    """A slow outage: many containers have errors or less weight, and none of them stands out."""
    with_errors = [row for row in seen.rows if row.errors]
    lighter = [row for row in seen.rows if row.weight is not None and row.weight < 100 and row.state == State.UP]  # noqa: PLR2004 - percent
    troubled = with_errors if len(with_errors) >= len(lighter) else lighter
    if len(troubled) < max(2, len(seen.rows) / 2):
        return None
    said = f"{sum(row.errors or 0 for row in with_errors)} errors in {len(with_errors)} of {len(seen.rows)} containers"
    weight = f", {len(lighter)} {'would ' * seen.is_shadow}get fewer requests" if lighter else ""
    return Banner(
        WARNING,
        f"{said}{weight}, and none stands out: a restart of single containers would not help.",
        "Look for what all of them use: a dependency, the network, the last deployment.",
        "health-arbiter events --since 1h",
    )


def _setup(seen: Situation) -> Banner | None:
    """What is wrong with the fleet itself."""
    doubles = [row for row in seen.rows if row.duplicate]
    if doubles:
        said = f"Two containers run under one instance name ({names(doubles)}), and neither may be culled."
        return Banner(WARNING, said, "Give each its own ARBITER_INSTANCE.", "health-arbiter doctor", "duplicate")
    fleet = seen.fleet
    if fleet is not None and fleet.settings > 1:
        said = f"The sidecars run with {fleet.settings} different settings; the strictest of each holds."
        return Banner(WARNING, said, "Finish the deployment, or roll it back.", "health-arbiter doctor")
    silent = seen.of_state("silent")
    if silent:
        said = f"The fleet has not heard from {containers(silent)} for three beats."
        return Banner(WARNING, said, "See whether they still run.", "health-arbiter fleet")
    return None


def _rest(seen: Situation) -> Banner:
    if seen.alone:
        return Banner(INFO, seen.alone, "Set ARBITER_REDIS_URL, the same in all sidecars of the service.", "", "redis")
    if seen.unknown is not None:
        return Banner(INFO, "There is no shared store: this page shows one container.")
    if seen.fleet is None:
        return Banner(INFO, "The fleet is not known yet: this sidecar has just started.")
    starting = seen.of_state(State.STARTING)
    if len(starting) == len(seen.rows):
        return Banner(INFO, f"{containers(starting)} start: nobody is judged yet.")
    if seen.fleet.suspect or seen.fleet.down:  # they are not listed yet
        said = (
            f"{seen.fleet.suspect} of {seen.fleet.alive} containers are suspect, {seen.fleet.down} drain or are down."
        )
        return Banner(WARNING, said, "Look at the list, which comes in a moment.", "health-arbiter fleet")
    count = f"{seen.fleet.alive} container{'' if seen.fleet.alive == 1 else 's'}"
    return Banner(OK, f"All is well: {count}, none suspect, none down.")


_RULES: Final[tuple[Callable[[Situation], Banner | None], ...]] = (
    _redis_away,
    _not_replaced,
    _held,
    _suspects,
    _paused,
    _down,
    _all_have_errors,
    _setup,
    _rest,
)


def containers(rows: Sequence[ContainerRow], of: int = 0) -> str:
    """``1 container (a)``, ``2 of 40 containers (a, b)``, ``All 9 containers``; at most ``MOST_NAMES`` names."""
    count = f"{len(rows)} of {of}" if of else f"{len(rows)}"
    if len(rows) == of > 1:
        count = f"All {of}"
    noun = "container" if (of or len(rows)) == 1 else "containers"
    return f"{count} {noun} ({names(rows)})" if len(rows) <= MOST_NAMES else f"{count} {noun}"


def names(rows: Sequence[ContainerRow]) -> str:
    """The first names, and how many more."""
    return reasons.names([name(row.instance) for row in rows], MOST_NAMES)


def name(text: str) -> str:
    """A name in a sentence, cut."""
    return text if len(text) <= LONGEST_NAME else f"{text[: LONGEST_NAME - 1]}…"


def clock(at: float) -> str:
    """The time of day in UTC."""
    return time.strftime("%H:%M UTC", time.gmtime(at))


def _have(rows: Sequence[ContainerRow]) -> str:
    return "has" if len(rows) == 1 else "have"
