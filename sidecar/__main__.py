"""``python -m sidecar`` is ``health-arbiter``."""

import sys

from sidecar.cli import main

sys.exit(main())
