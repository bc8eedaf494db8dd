"""What balancers and people see of a container in its snapshot."""

from __future__ import annotations

from harness.containers import DOWN, LATCH, UP, begun
from sidecar.core.life.snapshot import Snapshot
from sidecar.core.types import Evidence


def test_snapshot_has_no_weight_for_a_container_out_of_balance_and_tells_its_instants_in_unix_time() -> None:
    snapshot = Snapshot(100.0, begun()._replace(state=UP), Evidence(60), None, weight=40, unix=5_000.0)
    assert (snapshot.share, snapshot._replace(container=begun()._replace(state=DOWN, latch=LATCH)).share) == (40, 0)
    assert (snapshot.unix_of(90.0), snapshot.unix_of(101.5)) == (4_990.0, 5_001.5)
