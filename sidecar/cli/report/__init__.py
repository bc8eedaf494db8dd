"""``report``: what the fleet's ledger adds up to, as text or as one HTML page."""
