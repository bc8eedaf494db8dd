"""The diagram in ``deploy/states.md`` is what the table of transitions gives."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from sidecar.core.life.transitions import TRANSITIONS
from sidecar.core.types import State

PAGE = Path(__file__).parents[3] / "deploy" / "states.md"


def diagram() -> str:
    """The table as a Mermaid diagram. What leads to ``stopping`` from everywhere is drawn once."""
    reasons: dict[tuple[State, State], list[str]] = defaultdict(list)
    for (state, _), transition in TRANSITIONS.items():
        for other, reason in transition.to.items():
            reasons[state, other].append(reason)
    edges = [
        f"    {state} --> {other}: {', or '.join(reasons[state, other])}"
        for state in State
        for other in State
        if (state, other) in reasons and other is not State.STOPPING
    ]
    stops = {reason for (_, other), found in reasons.items() if other is State.STOPPING for reason in found}
    assert {state for state, other in reasons if other is State.STOPPING} == set(State) - {State.STOPPING}
    ends = f"    any --> stopping: {', or '.join(sorted(stops))}"
    return "\n".join(["```mermaid", "stateDiagram-v2", "    [*] --> starting", *edges, ends, "```"])


def test_page_has_the_diagram_of_the_table() -> None:
    assert diagram() in PAGE.read_text(), f"put this into {PAGE.name}:\n{diagram()}"


def test_page_names_every_state() -> None:
    assert all(f"| `{state}` |" in PAGE.read_text() for state in State)
