"""The HTML page of ``simulate`` and ``backtest``: what happened over time, and the trade-off between settings."""
