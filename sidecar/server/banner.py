"""The first line about a service, on the page and in ``/fleet``: what is wrong, in one sentence, and what to do.

The rules stand in the order of urgency, and the first that applies writes the banner. A sentence has instants and no
durations, so that it stays the same while nothing happens.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from shlex import quote
from typing import Any, Final, NamedTuple

from sidecar.core.claims import ALONE, Fleet, Unknown
from sidecar.core.explain import reasons
from sidecar.core.fleet.common_trait import CommonTrait
from sidecar.core.measure.weight import FULL
from sidecar.core.types import Hold, State

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

SILENT: Final = "silent"
"""The state of a container whose beats the fleet has missed."""

MOST_NAMES: Final = 3
LONGEST_NAME: Final = 60


class Banner(NamedTuple):
    """What is wrong, and what to do."""

    level: str  # ``ok``, ``info``, ``warning`` or ``critical``
    sentence: str
    action: str = ""
    command: str = ""
    anchor: str = ""  # a heading of the runbooks

    def as_json(self, runbooks: str) -> dict[str, str]:
        """The banner as JSON values, with a link if ``runbooks``, the address of the runbooks, is not empty."""
        fields = self._asdict()
        anchor = fields.pop("anchor")
        return {**fields, "runbook": f"{runbooks}#{anchor}" if runbooks and anchor else ""}


class ContainerRow(NamedTuple):
    """One container; what is not known is None or ``""``."""

    instance: str
    state: str  # a word of ``State``, or ``SILENT``
    cause: str = ""  # the kind of most of its errors when it is suspect or down
    since: int | None = None  # Unix seconds
    errors: int | None = None
    weight: int | None = None  # percent
    duplicate: bool = False


class Situation(NamedTuple):
    """What the rules read; instants are Unix seconds."""

    fleet: Fleet | None
    rows: Sequence[ContainerRow]
    holds: Sequence[Hold]
    tokens: Mapping[str, Any]  # as in ``/fleet``
    unknown: Unknown | None  # the error of the store
    away_since: float | None  # since when the store gives no answer
    alone: str  # what it means that there is no shared store; empty if there is one
    is_shadow: bool
    now: float
    store: str = ""  # its address without passwords
    common: CommonTrait | None = None  # what the suspects have in common, and the healthy have not

    def of_state(self, *states: str) -> list[ContainerRow]:
        """The containers in one of these states."""
        return [row for row in self.rows if row.state in states]

    @property
    def suspects(self) -> list[ContainerRow]:
        """The containers that have too many errors."""
        return self.of_state(State.SUSPECT)

    @property
    def is_outage(self) -> bool:
        """Whether so many are suspect that it is an incident of the service."""
        return len(self.suspects) >= max(2, OUTAGE * len(self.rows))


def banner(situation: Situation) -> Banner:
    """The banner of the first rule that applies."""
    made = next(filter(None, (rule(situation) for rule in _RULES)))
    before = "Shadow mode, nothing is culled. " if situation.is_shadow else ""
    common = situation.common.sentence if situation.common and not situation.unknown else ""
    after = f" {_sentence(common)}" if common else ""
    return made._replace(sentence=f"{before}{made.sentence}{after}")


def _redis_away(situation: Situation) -> Banner | None:
    unknown = situation.unknown
    if unknown is None or unknown.error == ALONE:
        return None
    since = f" since {clock(situation.away_since)}" if situation.away_since else ""
    return Banner(
        CRITICAL,
        f"Redis has given no answer{since}, so no container can be culled: {reasons.unreachable(unknown)}."
        " Health answers are unchanged.",
        f"Repair Redis{f' ({situation.store})' if situation.store else ''} or the network to it; the sidecars try again"
        " by themselves. Below is what was known last.",
        "health-arbiter doctor",
        reasons.runbook(unknown.error),
    )


def _not_replaced(situation: Situation) -> Banner | None:
    at_latest = situation.now - NOT_REPLACED_S
    down = situation.of_state(State.DRAINING, State.DOWN)
    late = {row.instance: row.since for row in down if row.since is not None and row.since < at_latest}
    if not late:
        return None
    have = "has" if len(late) == 1 else "have"
    return Banner(
        CRITICAL,
        f"{containers(late)} {have} been down since {clock(min(late.values()))} and {have} no replacement.",
        "Ask the scheduler why; under Nomad the command places them again.",
        "nomad job eval -force-reschedule <job>",
        "arbiternotreplaced",
    )


def _held(situation: Situation) -> Banner | None:
    if not situation.holds:
        return None
    hold = next((hold for hold in situation.holds if not hold.instance), situation.holds[0])
    author, suspects = name(hold.author), situation.suspects
    what = name(hold.instance) if hold.instance else "all culls"
    scope = f" --instance {quote(hold.instance)}" if hold.instance else ""
    return Banner(
        CRITICAL if situation.is_outage else WARNING if suspects else INFO,
        f"{author} holds {what} until {clock(hold.until)} ({name(hold.reason)})"
        f"{f', and {_have_too_many_errors(suspects)}' if suspects else ''}.",
        f"Ask {author} before you end it.",
        f"health-arbiter release{scope}",
        "hold",
    )


def _suspects(situation: Situation) -> Banner | None:
    suspects = situation.suspects
    if not suspects:
        return None
    word, refusal = _refusal(situation)
    causes = {row.cause for row in suspects}
    of_most = situation.fleet.cause if situation.fleet else ""
    shared, most = (suspects[0].cause, "") if len(causes) == 1 else (of_most, ", most")
    cause = f"{most} because of {name(shared)}" if shared else ""
    begun_at = min((row.since for row in suspects if row.since is not None), default=None)
    since = f" since {clock(begun_at)}" if begun_at is not None else ""
    worst = max(suspects, key=lambda row: row.errors or 0)
    return Banner(
        CRITICAL if situation.is_outage or word in URGENT else WARNING,
        f"{_have_too_many_errors(suspects, len(situation.rows))}{since}{cause}.{refusal}",
        _what_to_do(situation, word, name(shared) or "it"),
        f"health-arbiter why {quote(worst.instance)}",
        reasons.runbook(word),
    )


def _refusal(situation: Situation) -> tuple[str, str]:
    """The word for why no suspect gets a token, and its sentence, as far as trials and tokens tell it."""
    causes, tokens = {row.cause for row in situation.suspects}, situation.tokens
    trials = [trial for trial in (situation.fleet.trials if situation.fleet else ()) if trial.cause in causes]
    if any(trial.paused_s > 0 for trial in trials):
        return "paused", " Culls for it are paused, because the last one did not help."
    if tokens["used"] and tokens["used"] >= tokens["capacity"]:
        back = f"at {clock(tokens['grants'][0] + tokens['budget_window'])}" if tokens["grants"] else "soon"
        return "window", f" All tokens are in use, and the next comes back {back}."
    if any(trial.out for trial in trials):
        return "trial", " The fleet tries one cull, and waits to see whether it helps."
    return "", ""


def _what_to_do(situation: Situation, word: str, cause: str) -> str:
    if word == "paused":
        return f"A restart is no remedy: repair what is behind {cause}, or roll back, then health-arbiter release."
    if situation.is_outage:
        return f"Treat it as an incident of the service: repair what is behind {cause}, or roll back."
    return "Look at the errors of the worst." if len(situation.suspects) > 1 else "Look at its errors."


def _paused(situation: Situation) -> Banner | None:
    fleet = situation.fleet
    if fleet is None or not fleet.paused:
        return None
    causes = ", ".join(map(name, fleet.paused))
    suspects = f"{fleet.suspect} containers are suspect." if fleet.suspect else "No container is suspect now."
    return Banner(
        WARNING,
        f"Culls for {causes} are paused, because the last one did not help. {suspects}",
        "See what happened, and whether it is repaired.",
        "health-arbiter events --since 1h",
        "paused",
    )


def _down(situation: Situation) -> Banner | None:
    down = situation.of_state(State.DRAINING, State.DOWN)
    if not down:
        return None
    causes = {row.cause for row in down}
    cause = f" because of {name(down[0].cause)}" if down[0].cause and len(causes) == 1 else ""
    was, have = ("was", "has") if len(down) == 1 else ("were", "have")
    return Banner(
        WARNING,
        f"{containers(_names(down))} {was} culled{cause} and {have} not been replaced yet.",
        "Nothing to do yet: the scheduler replaces what is down.",
        "health-arbiter events --since 1h",
    )


def _all_have_errors(situation: Situation) -> Banner | None:
    """A slow outage: many containers have errors or less weight, and none of them stands out."""
    of, up = len(situation.rows), situation.of_state(State.UP)
    errors = [row.errors for row in situation.rows if row.errors]
    lighter = sum(row.weight is not None and row.weight < FULL for row in up)
    if max(len(errors), lighter) < max(2, of / 2):
        return None
    weight = f", {lighter} {'would ' * situation.is_shadow}get fewer requests" if lighter else ""
    return Banner(
        WARNING,
        f"{sum(errors)} errors in {len(errors)} of {of} containers{weight}, and none stands out:"
        " a restart of single containers would not help.",
        "Look for what all of them use: a dependency, the network, the last deployment.",
        "health-arbiter events --since 1h",
    )


def _setup(situation: Situation) -> Banner | None:
    """What is wrong with the fleet itself."""
    if doubles := [row.instance for row in situation.rows if row.duplicate]:
        said = f"Two containers run under one instance name ({names(doubles)}), and neither may be culled."
        return Banner(WARNING, said, "Give each its own ARBITER_INSTANCE.", "health-arbiter doctor", "duplicate")
    if situation.fleet is not None and situation.fleet.settings > 1:
        said = f"The sidecars run with {situation.fleet.settings} different settings; the strictest of each holds."
        return Banner(WARNING, said, "Finish the deployment, or roll it back.", "health-arbiter doctor")
    if silent := situation.of_state(SILENT):
        said = f"The fleet has not heard from {containers(_names(silent))} for three beats."
        return Banner(WARNING, said, "See whether they still run.", "health-arbiter fleet")
    return None


def _rest(situation: Situation) -> Banner:
    fleet = situation.fleet
    if situation.alone:
        do = "Set ARBITER_REDIS_URL, the same in all sidecars of the service."
        return Banner(INFO, _sentence(situation.alone), do, anchor="redis")
    if fleet is None:
        return Banner(INFO, "The fleet is not known yet: this sidecar has just started.")
    if fleet.suspect or fleet.down:  # ``rows`` has the first by name, and the own container as it is since its beat
        said = f"{fleet.suspect} of {fleet.alive} containers are suspect, {fleet.down} drain or are down."
        do = "The list does not show them: look at the events."
        return Banner(WARNING, said, do, "health-arbiter events --since 1h")
    starting = _names(situation.of_state(State.STARTING))
    if starting and len(starting) >= fleet.alive:
        said = f"No container is judged yet: {containers(starting)} {'is' if len(starting) == 1 else 'are'} starting."
        return Banner(INFO, said)
    return Banner(OK, f"All is well: {fleet.alive} container{'s' * (fleet.alive != 1)}, none suspect, none down.")


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


def _have_too_many_errors(suspects: Sequence[ContainerRow], of: int = 0) -> str:
    return f"{containers(_names(suspects), of)} {'has' if len(suspects) == 1 else 'have'} too many errors"


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _names(rows: Sequence[ContainerRow]) -> list[str]:
    return [row.instance for row in rows]


def containers(instances: Collection[str], of: int = 0) -> str:
    """``1 container (a)``, ``2 of 40 containers (a, b)``, ``All 9 containers``; at most ``MOST_NAMES`` names."""
    number = len(instances)
    count = f"All {of}" if number == of > 1 else f"{number} of {of}" if of else str(number)
    text = f"{count} container{'s' * ((of or number) != 1)}"
    return f"{text} ({names(instances)})" if number <= MOST_NAMES else text


def names(instances: Collection[str]) -> str:
    """The first names, and how many more."""
    return reasons.names([name(instance) for instance in instances], MOST_NAMES)


def name(text: str) -> str:
    """A name in a sentence, cut."""
    return text if len(text) <= LONGEST_NAME else f"{text[: LONGEST_NAME - 1]}…"


def clock(at: float) -> str:
    """The time of day in UTC."""
    return time.strftime("%H:%M UTC", time.gmtime(at))
