"""What others read: health, agent-check, metrics page, why, orders, the status page."""
