"""The bound on culls in words. They are the same wherever the budget is named; ``tests/config/test_bound.py`` looks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sidecar.config import shares

if TYPE_CHECKING:
    from sidecar.config.settings import BudgetConfig

REFUND_FACTOR: Final = 3
_STRATEGIES: Final = {"log": (1, 0), "previous": (2, 1), "fixed": (2, 0)}
"""Strategy -> factor and subtrahend: ``previous`` allows 2N - 1."""


def bound(rules: BudgetConfig, tokens: int | None = None) -> str:
    """The bound with these settings. ``tokens``: N, if it is known better than by the settings alone.

    A budget in percent depends on the fleet: without ``tokens`` its bound is in terms of N.
    """
    if tokens is None:
        amount, is_part = shares.parse(rules.budget)
        tokens = None if is_part else amount
    most = _written(tokens, *_STRATEGIES[rules.budget_strategy])
    culls = f"at most {most} cull{'' if most == '1' else 's'} in any window"
    if rules.refund == "off":
        return culls
    return f"{culls}, or {_written(tokens, REFUND_FACTOR)} with refunds"


def _written(tokens: int | None, factor: int, less: int = 0) -> str:
    if tokens is not None:
        return str(factor * tokens - less)
    return f"{factor if factor > 1 else ''}N{f' - {less}' if less else ''}"
