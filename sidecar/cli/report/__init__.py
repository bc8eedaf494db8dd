"""``report``: a summary of the ledger, as text or as one HTML page."""
