"""The words by which the fleet refuses, read from the source of its rules: a new one is known at once."""

from __future__ import annotations

import ast
from pathlib import Path

from sidecar.core import fleet


def refusals() -> list[str]:
    """Every text that could be the first argument of a ``Refusal``."""
    modules = [ast.parse(path.read_text()) for path in Path(fleet.__file__).parent.glob("*.py")]
    calls = [node for module in modules for node in ast.walk(module) if isinstance(node, ast.Call)]
    reasons = [call.args[0] for call in calls if isinstance(call.func, ast.Name) and call.func.id == "Refusal"]
    constants = [part for reason in reasons for part in ast.walk(reason) if isinstance(part, ast.Constant)]
    return sorted({constant.value for constant in constants if isinstance(constant.value, str)})
