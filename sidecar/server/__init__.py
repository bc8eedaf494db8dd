"""The outputs of the sidecar: health, agent-check, metrics page, why, orders, the status page."""
