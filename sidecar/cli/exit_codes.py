"""The exit codes of all commands, and the sentence about them in each help.

``exec`` also has those of the command that it runs; its help lists them.
"""

from __future__ import annotations

import os
from typing import Final

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_NO_SIDECAR: Final = os.EX_UNAVAILABLE
EXIT_BUG: Final = os.EX_SOFTWARE

EXIT_CODES: Final = f"""\
Exit codes: 0 done; {EXIT_FAILED} not done: the answer is no, something failed, or Redis does not answer; {EXIT_USAGE}
the command line or a setting cannot be used, or the order is not allowed; {EXIT_NO_SIDECAR} no sidecar answers on this
machine or at --url."""
