"""The commands of an engineer, asked of the sidecar on this machine, and how they end.

They take its way to the bucket, so that they need no secret on the command line and work with every kind of Redis.
Click and rich are for these rooms alone: a sidecar that runs never imports them.
"""

from __future__ import annotations

import os
from typing import Final

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_NO_SIDECAR: Final = os.EX_UNAVAILABLE
