"""``python -m sidecar`` is ``health-arbiter``."""

import sys

from sidecar.cli.main import main

sys.exit(main())
