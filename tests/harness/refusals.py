"""The words by which a bucket refuses, read from its source: a new one is known to the tests as soon as it is there."""

from __future__ import annotations

import ast
import inspect

from sidecar.core import gates


def refusals() -> list[str]:
    """Every text that could be the first argument of a ``Refusal``."""
    calls = [node for node in ast.walk(ast.parse(inspect.getsource(gates))) if isinstance(node, ast.Call)]
    reasons = [call.args[0] for call in calls if isinstance(call.func, ast.Name) and call.func.id == "Refusal"]
    constants = [part for reason in reasons for part in ast.walk(reason) if isinstance(part, ast.Constant)]
    return sorted({constant.value for constant in constants if isinstance(constant.value, str)})
