"""The words by which the fleet refuses and the store fails, read from their source: a new one is known at once."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from sidecar import controller, store
from sidecar.core import fleet, life


def refusals() -> list[str]:
    """Every text that could be the first argument of a ``GateRefusal``, or of a refusal by the sidecar itself."""
    own = {word for word in _first_arguments(life.__file__, "Denied") if word}
    return sorted(_first_arguments(fleet.__file__, "GateRefusal") | own)


def failures() -> set[str]:
    """Every word for an unclear answer: named where it arises, or beside the exception that it stands for."""
    words = {
        *_first_arguments(store.__file__, "Unknown", "StoreError"),
        *_first_arguments(controller.__file__, "Unknown"),
    }
    for node in _nodes(store.__file__):
        if isinstance(node, ast.Tuple) and len(node.elts) == 2 and ast.unparse(node.elts[0]).endswith("Error"):
            words |= _texts(node.elts[1])
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            words |= {*re.findall(r"\(\?P<(\w+)>", node.value)}
    return words


def _first_arguments(package: str | None, *names: str) -> set[str]:
    calls = [node for node in _nodes(package) if isinstance(node, ast.Call) and node.args]
    named = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id in names]
    return {text for call in named for text in _texts(call.args[0])}


def _texts(part: ast.expr) -> set[str]:
    constants = [node for node in ast.walk(part) if isinstance(node, ast.Constant)]
    return {constant.value for constant in constants if isinstance(constant.value, str)}


def _nodes(package: str | None) -> Iterator[ast.AST]:
    assert package is not None
    for path in Path(package).parent.glob("*.py"):
        yield from ast.walk(ast.parse(path.read_text()))
