"""What happened to a fleet, read from Prometheus, access logs or the ledger, played again by the real controllers."""
