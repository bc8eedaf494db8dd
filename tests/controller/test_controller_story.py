"""Any story of pings, answers and time, against a model that counts anew on each question."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from harness.controller import POLICY, ControllerRig
from harness.virtual_time import in_virtual_time
from sidecar.core.app_reports import ErrorLevel, ErrorReport
from sidecar.core.claims import Answer, Denied, Granted, Unknown
from sidecar.core.life.events import Culled
from sidecar.core.types import State

GRANTED = Granted(1, 10)
DENIED = Denied("window", 10, 10, 60.0)
LIVES = ["boot-1", "boot-2", "boot-3", None]
PINGS = st.builds(
    ErrorReport,
    errors=st.integers(0, 4),
    level=st.sampled_from([ErrorLevel.SERVER_ERROR, ErrorLevel.SERVER_ERROR, ErrorLevel.CLIENT_ERROR]),
    kind=st.sampled_from(["redis", "http", "unknown"]),
    app_start=st.sampled_from(LIVES),
)
ANSWERS = st.sampled_from([GRANTED, GRANTED, DENIED, Unknown("timeout"), RuntimeError("broken")])
TIMES = st.sampled_from([0.25, 0.5, 1.0, 3.0, 9.75, 30.0])
Action = list[ErrorReport] | float | Answer | Exception
ACTIONS: st.SearchStrategy[Action] = st.one_of(st.lists(PINGS, min_size=1, max_size=3), TIMES, ANSWERS)


@dataclass
class Naive:
    """What the window should hold: every error with its second, of the life that goes on."""

    window_s: int
    life: str | None = None
    ended: set[str | None] = field(default_factory=set)
    errors: list[tuple[int, str, int]] = field(default_factory=list)
    stale: int = 0
    culled: bool = False

    def receive(self, ping: ErrorReport, now: float) -> None:
        if ping.app_start in self.ended:
            self.stale += 1
            return
        if ping.app_start not in (None, self.life):
            self._begin(ping.app_start)
        if ping.level is ErrorLevel.SERVER_ERROR and ping.errors:
            self.errors.append((int(now), ping.kind, ping.errors))

    def _begin(self, life: str | None) -> None:
        if self.life is not None or self.culled:
            self.errors = []
            self.culled = False
        if self.life is not None:
            self.ended.add(self.life)
        self.life = life

    def kinds(self, now: float) -> dict[str, int]:
        counts = Counter[str]()
        for second, kind, errors in self.errors:
            if second > int(now) - self.window_s:
                counts[kind] += errors
        return dict(counts)


@dataclass
class Play:
    """One random story, played to the controller and to the model."""

    rig: ControllerRig
    naive: Naive
    granted: list[str] = field(default_factory=list)

    async def act(self, action: Action) -> None:
        rig = self.rig
        if isinstance(action, float):
            await rig.advance(action)
        elif isinstance(action, list):
            for ping in action:
                self.naive.receive(ping, rig.loop.time())
                self.naive.culled |= rig.latch is not None
            await rig.reports(*action)
        elif rig.budget.outstanding:
            if isinstance(action, Granted):
                self.granted += rig.budget.outstanding
            await rig.answered(action)
            self.naive.culled = rig.latch is not None

    def check(self) -> None:
        controller, now = self.rig.controller, self.rig.loop.time()
        assert controller.snapshot.evidence.kinds == self.naive.kinds(now)
        assert controller.snapshot.evidence.errors == sum(self.naive.kinds(now).values())
        assert controller.stale_reports == self.naive.stale
        assert self.rig.budget.most_at_once <= 1
        assert controller.container.state is not State.DRAINING or controller.container.latch is not None
        assert controller.container.latch is None or controller.container.latch.claim_id in self.granted


@settings(max_examples=100, deadline=None)
@given(actions=st.lists(ACTIONS, max_size=40), settle_s=st.sampled_from([0.0, 3.0]))
def test_any_story_keeps_the_window_exact_and_culls_only_with_a_grant(
    *, actions: list[Action], settle_s: float
) -> None:
    @in_virtual_time
    async def story() -> None:
        policy = replace(POLICY, settle_s=settle_s)
        async with ControllerRig(policy, window_s=10) as rig:
            play = Play(rig, Naive(10))
            for action in actions:
                await play.act(action)
                play.check()
            for _, record in rig.observed:
                if any(isinstance(event, Culled) for event in record.events):
                    assert record.evidence.errors >= policy.error_limit or record.evidence.fatal
            assert all(isinstance(error, RuntimeError | TimeoutError) for error in rig.failures)

    story()
