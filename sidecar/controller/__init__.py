"""The only writer of one container's state, and what it asks for: claims, beats, ledger entries, evidence."""
