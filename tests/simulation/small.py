"""The small fleet of the tests of planned ends: what they have in common."""

from __future__ import annotations

from typing import Final

from simulation.rules import aging

HOUR_S: Final = 3600.0
FEW: Final = 20
SHORT_S: Final = HOUR_S
"""Its lifetime."""

PATIENCE_S: Final = 2 * SHORT_S
YOUNG: Final = aging("1", SHORT_S)
PATIENT: Final = aging("1", SHORT_S, patience_s=PATIENCE_S)

ASK_S: Final = 12.5
"""The longest wait of who was refused: a check, and a quarter of it as jitter."""

ON_THE_WAY_S: Final = 0.02
"""The longest way of a beat to the bucket, and of a lease back."""
