"""The HTML page of ``simulate``: what happened over time, and the trade-off between settings."""
